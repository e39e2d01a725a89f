"""Candidates under other interpreters than ours: what runs inside is standard library code of Python 3.10 to 3.13."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.verdicts import AnswerKind
from tests.sandbox.shared import LATE, QUICK, verdicts


def pythons() -> list[str]:
    root = os.environ.get("PYENV_ROOT") or str(Path.home() / ".pyenv")
    return [p for minor in (10, 12, 13) for p in sorted(glob.glob(f"{root}/versions/3.{minor}.*/bin/python"))[:1]]


@pytest.fixture(scope="module", params=pythons() or [None], ids=lambda p: Path(p).parts[-3] if p else "none")
def box(request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    if request.param is None:
        pytest.skip("no other Python under pyenv")
    with LocalSandbox(1, python=request.param) as sandbox:
        yield sandbox


def test_it_is_the_interpreter_that_was_asked_for(box: LocalSandbox) -> None:
    run = box.run("import sys\ndef f(): return '.'.join(map(str, sys.version_info[:3]))", "f", ["f()"], QUICK)
    assert run.answers[0].value is not None
    assert run.answers[0].value.data == box.hello["python"]
    assert box.python.split("/")[-3] == box.hello["python"]


VALUES = [
    "None", "True", "12", "-1 << 200", "1.5", "float('nan')", "'a\\ud800'", "b'x'", "[1, (2, {3})]", "{'a': {1: None}}",
    "__import__('decimal').Decimal('1.50')", "__import__('fractions').Fraction(1, 3)", "__import__('datetime').date(2000, 1, 2)",
    "__import__('collections').Counter('aab')", "__import__('collections').deque([1])", "range(3)", "1j", "...",
]  # fmt: skip


def test_values_come_back(box: LocalSandbox) -> None:
    judge = Judge(box, limits=QUICK)
    for text in VALUES:
        program = f"def f(): return {text}"
        expected = judge.expected(program, "f", ["f()"])
        assert expected["f()"].valid, (text, expected)
        assert judge.equal(expected["f()"].value, eval(text))


def test_dataclasses_enums_and_named_tuples(box: LocalSandbox) -> None:
    program = (
        "import dataclasses, enum, collections\n@dataclasses.dataclass\nclass P:\n    x: int\n"
        "class E(enum.IntEnum):\n    A = 1\nN = collections.namedtuple('N', 'a')\ndef f(): return [P(1), E.A, N(2)]"
    )
    judge = Judge(box, limits=QUICK)
    expected = judge.expected(program, "f", ["f()"])
    assert expected["f()"].valid
    assert judge.equal(expected["f()"].value[1:], [1, (2,)])
    assert verdicts(judge.check(program, "f", ["f()"], expected)) == ["passed"]
    assert verdicts(judge.check(program.replace("P(1)", "P(2)"), "f", ["f()"], expected)) == ["failed"]


PROGRAMS = {
    "asyncio": ("import asyncio\nasync def g():\n    await asyncio.sleep(0.001)\n    return 1\ndef f(): return asyncio.run(g())", AnswerKind.VALUE),
    "a thread pool": ("import concurrent.futures as c\ndef f():\n    with c.ThreadPoolExecutor(4) as p: return list(p.map(abs, [1, -2]))", AnswerKind.VALUE),
    "too many threads": ("import threading, time\ndef f():\n    for _ in range(500): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()", AnswerKind.RAISED),
    "a subprocess": ("import subprocess\ndef f(): return subprocess.check_output(['/bin/echo', 'x'])", AnswerKind.VALUE),
    "a subprocess of its own interpreter": ("import subprocess, sys\ndef f(): return subprocess.check_output([sys.executable, '-c', 'print(1)'])", AnswerKind.VALUE),
    "multiprocessing": ("import multiprocessing as m\ndef g(x): return x\ndef f():\n    with m.get_context('fork').Pool(2) as p: return p.map(g, [1])", AnswerKind.VALUE),
    "a lazy import": ("import wave, sqlite3, xml.dom.minidom, http.client\ndef f(): return sqlite3.connect(':memory:').execute('select 1').fetchall()", AnswerKind.VALUE),
    "time zones": ("import zoneinfo, datetime\ndef f(): return str(datetime.datetime(2000, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Paris')))", None),
    "recursion": ("def f(): return f()", AnswerKind.RAISED),
    "deep but finite recursion": ("import sys\nsys.setrecursionlimit(20000)\ndef g(n): return n and g(n - 1)\ndef f(): return g(15000)", AnswerKind.VALUE),
    "memory": ("def f(): return bytearray(1 << 40)", AnswerKind.MEMORY),
    "a loop": ("def f():\n    while True: pass", AnswerKind.TIMEOUT),
    "a crash": ("import ctypes\ndef f(): ctypes.string_at(0)", AnswerKind.CRASHED),
    "a flood": ("def f():\n    while True: print('x' * 65536)", AnswerKind.OUTPUT_LIMIT),
    "deep source": ("def f(): return " + "-" * 60000 + "1", AnswerKind.LOAD_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_behaves(box: LocalSandbox, name: str) -> None:
    program, wanted = PROGRAMS[name]
    limits = LATE if wanted is AnswerKind.TIMEOUT else Limits(time_s=15, memory_mb=512, processes=32)
    answer = box.run(program, "f", ["f()"], limits).answers[0]
    assert answer.kind not in (AnswerKind.UNSCORED, AnswerKind.UNENCODABLE), answer
    if wanted is AnswerKind.LOAD_ERROR:
        assert answer.kind in (wanted, AnswerKind.CRASHED, AnswerKind.MEMORY)
    elif wanted is not None:
        assert answer.kind is wanted, answer


def test_numpy_imports_under_the_default_limits(sandbox: LocalSandbox) -> None:
    program = "import numpy as np\ndef f(): return float(np.linalg.norm(np.ones((200, 200)) @ np.ones((200, 200))))"
    for warm in (("numpy",), ()):
        with LocalSandbox(1, warm=warm) as box:
            answer = box.run(program, "f", ["f()"], Limits()).answers[0]
            assert answer.kind is AnswerKind.VALUE, answer
            assert answer.value is not None
            assert answer.value.data == pytest.approx(40000.0)
