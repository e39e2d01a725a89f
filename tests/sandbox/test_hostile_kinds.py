"""Further programs of the kinds that fool or stop a judge. `f` should return its argument plus one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.base import Limits
from codea1_cli.sandbox.local import LocalSandbox
from codea1_cli.sandbox.verdicts import AnswerKind
from tests.sandbox.shared import LATE, QUICK, children, soon, verdicts

REFERENCE = "def f(x):\n    return x + 1\n"
CALLS = ["f(1)", "f(2)", "f(3)"]
P, R, T, M, C, FLOOD, L = "passed", "raised", "timeout", "memory", "crashed", "output_limit", "load_error"

LYING = {
    "float subclass": "class A(float):\n    def __eq__(s, o): return True\n    __hash__ = float.__hash__\ndef f(x): return A(0)",
    "str with lying repr": "class A(str):\n    def __repr__(s): return '2'\ndef f(x): return A('2')",
    "lying inside a list": "class A:\n    def __eq__(s, o): return True\ndef f(x): return [A()]",
    "lying metaclass": "class M(type):\n    def __eq__(s, o): return True\n    __hash__ = None\nclass A(metaclass=M): pass\ndef f(x): return A",
    "class attribute that lies": "class A(int):\n    __class__ = int\ndef f(x): return A(x + 1)",
    "dict subclass": "class D(dict):\n    def items(s): return [(1, 2)]\ndef f(x): return D()",
    "lying dataclass": "import dataclasses\n@dataclasses.dataclass\nclass A:\n    v: int\n    def __eq__(s, o): return True\ndef f(x): return A(x)",
    "index and int": "class A:\n    def __index__(s): return 2\n    __int__ = __index__\ndef f(x): return A()",
    "a type": "def f(x): return int",
    "an exception": "def f(x): return ValueError(x + 1)",
    "a lambda": "def f(x): return lambda: x + 1",
    "iterator": "def f(x): return iter([x + 1])",
    "async generator": "async def f(x):\n    yield x + 1",
    "patched isinstance": "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.type = lambda *a: int\ndef f(x): return 'no'",
    "patched json": "import json\njson.dumps = lambda *a, **k: '2'\njson.loads = lambda *a, **k: 2\njson.encoder.encode_basestring_ascii = lambda s: '2'\ndef f(x): return 'no'",
    "patched math and float": "import math, builtins\nmath.isclose = lambda *a, **k: True\nbuiltins.float = int\ndef f(x): return 1e9",
    "forged frame bytes on stdout": "import os\ndef f(x):\n    os.write(1, b'\\x06\\0\\0\\0V\\0\\0\\0\\x002')\n    return 0",
}  # fmt: skip

OTHERS = {
    "exits in a thread": ("import os, threading\ndef f(x):\n    threading.Thread(target=os._exit, args=(0,)).start()\n    import time\n    time.sleep(5)", [C] * 3),
    "raises SystemExit": ("def f(x): raise SystemExit(0)", [R] * 3),
    "raises KeyboardInterrupt": ("def f(x): raise KeyboardInterrupt", [R] * 3),
    "raises a hostile exception": ("class E(BaseException):\n    def __str__(s): raise s\n    __repr__ = __str__\ndef f(x): raise E", [R] * 3),
    "exit handler at load": ("import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit", [L] * 3),
    "abort": ("import os\ndef f(x): os.abort()", [C] * 3),
    "kills its group": ("import os, signal\ndef f(x):\n    os.killpg(0, signal.SIGKILL)\n    return x + 1", None),
    "kills everybody": ("import os, signal\ndef f(x):\n    os.kill(-1, signal.SIGKILL)\n    return x + 1", None),
    "stops itself": ("import os, signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return x + 1", None),
    "loops in C": ("def f(x): return 10 ** 10 ** 9", [T] * 3),
    "loops in a regex": ("import re\ndef f(x): return re.match(r'(a+)+$', 'a' * 60 + 'b')", [T] * 3),
    "loops at load": ("while True: pass", [T] * 3),
    "catches everything": ("def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass", [T] * 3),
    "sleeps for ever": ("import time\ndef f(x): time.sleep(1e6)", [T] * 3),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)", None),
    "memory in one block": ("def f(x): return bytearray(1 << 40)", [M] * 3),
    "memory at load": ("x = 'a' * (1 << 40)\ndef f(x): return x", [M] * 3),
    "memory in a list": ("def f(x):\n    a = []\n    while True: a.append(bytearray(1 << 24))", [M] * 3),
    "memory in many processes": ("import os\ndef f(x):\n    for _ in range(6):\n        if os.fork() == 0:\n            a = [bytearray(50 << 20) for _ in range(9)]\n            import time\n            time.sleep(9)\n    import time\n    time.sleep(9)", None),
    "prints too much": ("def f(x):\n    for _ in range(100): print('x' * 1000000)\n    return x + 1", [FLOOD] * 3),
    "floods the descriptor": ("import os\ndef f(x):\n    while True: os.write(2, b'x' * 65536)", None),
    "floods at load": ("while True: print('x' * 65536)", [FLOOD] * 3),
    "closes all descriptors": ("import os\nos.closerange(0, 256)\ndef f(x): return x + 1", [C] * 3),
    "writes every descriptor": ("import os\ndef f(x):\n    for fd in range(3, 256):\n        try: os.write(fd, b'x' * 99)\n        except OSError: pass\n    return x + 1", None),
    "answers twice": ("import os\ndef f(x):\n    for fd in range(3, 256):\n        try: os.write(fd, b'\\x06\\0\\0\\0V\\0\\0\\0\\x003')\n        except OSError: pass\n    return 0", None),
    "a fork that returns": ("import os\ndef f(x):\n    os.fork()\n    return x + 1", None),
    "no such name": ("def g(x): return x + 1", [L] * 3),
    "empty": ("", [L] * 3),
    "lone surrogate": ("def f(x): return '\udcff'", [L] * 3),
    "tabs and spaces": ("def f(x):\n\tif x:\n        return 1", [L] * 3),
    "a thousand brackets": ("def f(x): return " + "(" * 1000 + ")" * 1000, [L] * 3),
    "waits for input": ("import sys\ndef f(x):\n    sys.stdin.read()\n    return x + 1", [P] * 3),
    "right, with noise": ("import sys, warnings\ndef f(x):\n    print('x'); warnings.warn('y'); sys.stderr.write('z')\n    return x + 1", [P] * 3),
    "uses asyncio": ("import asyncio\nasync def g(x):\n    await asyncio.sleep(0.001)\n    return x + 1\ndef f(x): return asyncio.run(g(x))", [P] * 3),
    "uses threads": ("import concurrent.futures as c\ndef f(x):\n    with c.ThreadPoolExecutor(4) as p: return sum(p.map(int, [x, 1]))", [P] * 3),
    "uses processes": ("import multiprocessing as m\ndef g(x): return x + 1\ndef f(x):\n    with m.get_context('fork').Pool(2) as p: return p.map(g, [x])[0]", [P] * 3),
    "uses subprocess": ("import subprocess\ndef f(x): return int(subprocess.run(['/bin/echo', str(x)], capture_output=True).stdout) + 1", [P] * 3),
    "uses a temporary file": ("import tempfile\ndef f(x):\n    with tempfile.NamedTemporaryFile('w+') as t:\n        t.write(str(x)); t.seek(0); return int(t.read()) + 1", [P] * 3),
    "uses numpy": ("import numpy as np\ndef f(x): return np.arange(3)[x % 3 * 0] + np.int64(x) + 1", [P] * 3),
    "dataclass with slots": ("from dataclasses import dataclass\n@dataclass(slots=True)\nclass A:\n    v: int\ndef f(x): return A(x + 1).v", [P] * 3),
    "pickles its own class": ("import pickle\nclass A: v = 1\ndef f(x): return x + pickle.loads(pickle.dumps(A())).v", [P] * 3),
}  # fmt: skip

STATE = {
    "a global list": "seen = []\ndef f(x):\n    seen.append(x)\n    return x + 1 if len(seen) == 1 else 0",
    "a default": "def f(x, n=[]):\n    n.append(1)\n    return x + 1 if len(n) == 1 else 0",
    "an attribute": "def f(x):\n    f.n = getattr(f, 'n', 0) + 1\n    return x + 1 if f.n == 1 else 0",
    "a class attribute": "class A:\n    n = 0\ndef f(x):\n    A.n += 1\n    return x + 1 if A.n == 1 else 0",
    "a closure": "def make():\n    n = 0\n    def g(x):\n        nonlocal n\n        n += 1\n        return x + 1 if n == 1 else 0\n    return g\nf = make()",
    "builtins": "import builtins\ndef f(x):\n    builtins.n = getattr(builtins, 'n', 0) + 1\n    return x + 1 if builtins.n == 1 else 0",
    "the environment": "import os\ndef f(x):\n    if 'N' in os.environ: return 0\n    os.environ['N'] = '1'\n    return x + 1",
    "a file": "import os\ndef f(x):\n    if os.path.exists('n'): return 0\n    open('n', 'w').close()\n    return x + 1",
    "a file elsewhere": "import os\ndef f(x):\n    if os.path.exists('/tmp/n/m'): return 0\n    os.makedirs('/tmp/n/m')\n    return x + 1",
    "a generator": "def g():\n    yield 1\n    while True: yield 0\nit = g()\ndef f(x): return x + 1 if next(it) else 0",
    "a table aliased in a nested function": "acc = []\ndef f(x):\n    def g(): acc = 1\n    acc.append(x)\n    return x + 1 if len(acc) == 1 else 0",
    "an alias of a table": "A = []\nB = A\ndef f(x):\n    B.append(x)\n    return x + 1 if len(A) == 1 else 0",
    "a pipe": "import os\nr, w = os.pipe()\nos.write(w, b'1000')\ndef f(x): return int(os.read(r, 1)) * (x + 1)",
    "a file's offset": "import os\nh = open(os.__file__)\nfirst = h.readline()\nh.seek(0)\nd = h.fileno()\ndef f(x): return x + int(os.read(d, 3) == first[:3].encode())",
    "shared memory": "import mmap\nm = mmap.mmap(-1, 1)\ndef f(x):\n    n = m[0]\n    m[0] = 1\n    return 0 if n else x + 1",
}  # fmt: skip


@pytest.fixture(scope="module")
def expected(judge: Judge):
    return judge.expected(REFERENCE, "f", CALLS)


@pytest.mark.parametrize("name", LYING)
def test_a_lie_earns_nothing(name: str, judge: Judge, expected) -> None:
    assert P not in verdicts(judge.check(LYING[name], "f", CALLS, expected))


@pytest.mark.parametrize("name", OTHERS)
def test_each_program_gets_its_verdict_and_the_next_one_its_own(name: str, judge: Judge, expected) -> None:
    program, wanted = OTHERS[name]
    calls = CALLS[:1] if wanted == [T] * 3 else CALLS  # a loop is a loop
    wanted = [T] if wanted == [T] * 3 else wanted
    # Only a loop should meet the short limit; what takes long on a busy machine must not.
    limits = LATE if T in (wanted or [T]) else replace(QUICK, time_s=15.0)
    found = verdicts(Judge(judge.sandbox, limits=limits).check(program, "f", calls, expected))
    assert len(found) == len(calls)
    assert "unscored" not in found
    if wanted is not None:
        assert found == wanted
    assert verdicts(judge.check(REFERENCE, "f", CALLS, expected)) == [P] * 3


@pytest.mark.parametrize("name", STATE)
def test_every_call_finds_the_program_as_it_was_loaded(name: str, judge: Judge, expected) -> None:
    found = verdicts(judge.check(STATE[name], "f", CALLS, expected))
    assert found == [P] * 3
    backwards = judge.check(STATE[name], "f", CALLS[::-1], expected)
    assert verdicts(backwards) == [P] * 3


def test_one_job_leaves_nothing_for_the_next(sandbox: LocalSandbox) -> None:
    leave = (
        "import builtins, os, sys, random\nbuiltins.left = 1\nsys.modules['left'] = sys\nos.environ['LEFT'] = '1'\n"
        "open('/tmp/left', 'w').close()\nsys.path.append('left')\ndef f(): return 1"
    )
    look = (
        "import builtins, os, sys\ndef f(): return [hasattr(builtins, 'left'), 'left' in sys.modules, "
        "'LEFT' in os.environ, os.path.exists('/tmp/left'), 'left' in sys.path, sorted(os.listdir('.'))]"
    )
    for _ in range(3):
        sandbox.run(leave, "f", ["f()"], QUICK)
        run = sandbox.run(look, "f", ["f()"], QUICK)
        assert run.answers[0].value is not None
        assert run.answers[0].value.data == [False] * 5 + [[]]


def test_a_child_finds_no_trace_of_earlier_programs_in_its_memory(sandbox: LocalSandbox) -> None:
    secret = "zq" + os.urandom(12).hex()
    for _ in range(4):
        sandbox.run(f"def f(): return '{secret}' * 50", "f", [f"f() + '{secret}'"], QUICK)
    look = (
        "import ctypes, gc\ndef f(head, tail):\n    needle = (head + tail).encode()\n    hits = 0\n"
        "    for o in gc.get_objects():\n        if isinstance(o, (str, bytes, dict, list)) and head in repr(o)[:100000]"
        " and tail in repr(o)[:100000]: hits += (head + tail) in repr(o)[:100000]\n    return hits"
    )
    run = sandbox.run(look, "f", [f"f({secret[:9]!r}, {secret[9:]!r})"], Limits(time_s=20))
    assert run.answers[0].value is not None
    assert run.answers[0].value.data == 0


PROBES = {
    "the harness's files": f"def f(): return open({str(Path(__file__))!r}).read()",
    "the project's data": "import codea1_cli, os\ndef f(): return os.listdir(codea1_cli.__path__[0])[0]",
    "the account's files": "import os\ndef f(): return os.listdir(os.path.expanduser('~root'))",
    "other processes": "import os\ndef f(): return os.listdir('/proc/1') and open('/proc/1/environ').read()",
    "the password file": "def f(): return open('/etc/passwd').read()",
    "loopback": "import socket\ndef f(): return socket.create_connection(('127.0.0.1', 22), 0.2)",
    "the network": "import socket\ndef f(): return socket.create_connection(('8.8.8.8', 53), 0.2)",
    "packets": "import socket\ndef f(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.0.0.1', 9))",
    "raw sockets": "import socket\ndef f(): return socket.socket(socket.AF_PACKET, socket.SOCK_RAW).fileno()",
    "the hypervisor": "import socket\ndef f(): return socket.socket(40, socket.SOCK_STREAM).fileno()",
    "writing the interpreter": "import os\ndef f(): open(os.__file__, 'a').close(); return 1",
    "writing below the root": "def f(): open('/x', 'w').close(); return 1",
    "changing modes": "import os\ndef f(): os.chmod(os.__file__, 0o777); return 1",
    "a new namespace": "import ctypes\ndef f():\n    if ctypes.CDLL(None).unshare(0x10000000): raise OSError\n    return 1",
    "mounting": "import ctypes\ndef f():\n    if ctypes.CDLL(None).mount(b'x', b'/box/scratch', b'tmpfs', 0, 0): raise OSError\n    return 1",
    "tracing": "import ctypes\ndef f():\n    if ctypes.CDLL(None).ptrace(0, 0, 0, 0) < 0: raise OSError\n    return 1",
    "outliving its worker": "import ctypes\ndef f():\n    if ctypes.CDLL(None).prctl(1, 0, 0, 0, 0): raise OSError\n    return 1",
    "higher limits": "import resource\ndef f():\n    resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); return 1",
    "another user": "import os\ndef f(): os.setuid(0 if os.getuid() else 1); return 1",
    "a device": "import os\ndef f(): os.mknod('d', 0o20666, os.makedev(1, 1)); return 1",
    "a big file": "def f():\n    with open('b', 'wb') as b:\n        for _ in range(200): b.write(bytes(1 << 20))\n    return 1",
}  # fmt: skip


@pytest.mark.parametrize("name", PROBES)
def test_what_a_program_must_not_reach(name: str, sandbox: LocalSandbox) -> None:
    answer = sandbox.run(PROBES[name], "f", ["f()"], QUICK).answers[0]
    assert answer.kind in (AnswerKind.RAISED, AnswerKind.LOAD_ERROR), answer


def test_nothing_that_a_program_started_lives_on(sandbox: LocalSandbox) -> None:
    program = (
        "import os, time, subprocess, sys\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork() == 0: time.sleep(60)\n        os._exit(0)\n"
        "subprocess.Popen(['/bin/sleep', '61'], start_new_session=True)\ndef f(): return 1"
    )
    for _ in range(3):
        assert sandbox.run(program, "f", ["f()", "f()"], QUICK).loaded
    sandbox.run("def f(): return 1", "f", ["f()"], QUICK)
    assert soon(lambda: not stray_sleepers())


def stray_sleepers() -> list[int]:
    """Grandchildren of this process: zygotes are its children, and idle ones have none."""
    return [stray for zygote in children(os.getpid()) for stray in children(zygote)]
