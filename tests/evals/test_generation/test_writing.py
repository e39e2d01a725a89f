"""Which calls become tests, and the file that holds them. The numbers of mutants are worked out in `hand_made`."""

from dataclasses import replace

import pytest

from codea1_cli.errors import UserError
from codea1_cli.evals.test_generation import Mutant, functions_of, untestable
from codea1_cli.evals.test_generation.entries import gone_from, module_of, reserved
from codea1_cli.evals.test_generation.one_shot import CallRunner
from codea1_cli.evals.test_generation.pytest_files import passes, path_of_tests, write_tests
from codea1_cli.evals.test_generation.writing import Case, Student, fewest
from codea1_cli.extract.pytests import convert_tests
from codea1_cli.judging.judge import Judge
from codea1_cli.sandbox.base import Limits
from tests.evals.test_generation.hand_made import SIGN

SUITE = "```python\nassert sign(5) == 1\nassert sign(7) == 1\nassert sign(-3) == 1\nassert sign(print) == 0\n```"
LOOPS = "def down(x):\n    while x > 0:\n        x -= 2\n    return x\n"


@pytest.fixture
def student(suite_judge, runner):
    return Student(suite_judge, runner)


def only(source):
    [function] = functions_of(source)
    return function


def test_a_few_calls_kill_what_all_of_them_kill(student):
    found = student.study(only(SIGN), [SUITE, "assert sign(-3) == -1"])
    assert [(case.call, case.text, case.votes, case.asked) for case in found.kept] == [
        ("sign(-3)", "-1", 1, 2), ("sign(5)", "1", 1, 1),
    ]  # fmt: skip
    assert found.kept[0].others == (("1", 1),)
    assert (len(found.mutants), found.killed_before, found.killed_after) == (16, 0, 13)
    assert len(found.survivors) == 3


def test_what_exists_is_built_upon(student):
    existing = convert_tests("def test_sign():\n    assert sign(-3) == -1\n    assert sign(0) == 0\n", "sign").tests
    found = student.study(only(SIGN), [SUITE], existing)
    assert [case.call for case in found.existing] == ["sign(-3)"]
    assert found.failing == ["assert sign(0) == 0"]
    assert (found.killed_before, found.killed_after) == (10, 13)
    assert [case.call for case in found.kept] == ["sign(5)"]
    assert found.arcs_before < found.arcs_after


def test_an_existing_test_that_fails_is_told_though_another_states_the_same_call_rightly(student):
    """Whichever comes first, and whatever the docstring says; each is an alarm."""
    function = replace(only(SIGN), calls=("assert sign(-3) == -1", "assert sign(-3) == 5"))
    for existing in (
        ["assert sign(-3) == -1", "assert sign(-3) == 1"],
        ["assert sign(-3) == 1", "assert sign(-3) == -1"],
    ):
        found = student.study(function, [SUITE], existing)
        assert ([case.call for case in found.existing], found.failing) == (["sign(-3)"], ["assert sign(-3) == 1"])
        alarms, _ = student.alarms(function, [SUITE], existing)
        assert [(one.call, one.stated, one.by) for one in alarms] == [
            ("sign(-3)", "1", "an existing test"), ("sign(-3)", "5", "the docstring"),
        ]  # fmt: skip


def test_a_case_that_later_ones_make_needless_goes():
    wide = Case("f(1)", "1", kills=frozenset({1, 2, 3, 4}))
    left, right = Case("f(2)", "1", kills=frozenset({1, 2, 5})), Case("f(3)", "1", kills=frozenset({3, 4, 6}))
    assert fewest([wide, left, right], []) == [left, right]
    twin = replace(wide, call="f(11)", votes=1)
    assert fewest([wide, twin], []) == [twin]  # of equals the one that a sample states
    assert fewest([wide], [twin]) == []


def test_calls_of_a_mutant_are_run_one_by_one_where_it_loops_or_ends(suite_judge):
    calls = ["down(0)", "down(4)", "down(-1)"]
    sources = {
        "x -= 2": set(),
        "x += 2": {"down(4)"},
        "__import__('os')._exit(0)": {"down(4)"},
        "return (i for i in [x])": {"down(4)"},
        "x -= 3": {"down(4)"},
        "raise ValueError": {"down(4)"},
    }
    mutants = [Mutant("", 0, 3, LOOPS.replace("x -= 2", text)) for text in sources]
    broken = [Mutant("", 0, 3, None), Mutant("", 0, 3, "def down(:\n"), Mutant("", 0, 3, "def up(x):\n    return x\n")]
    runner = CallRunner(suite_judge, LOOPS, suite_judge.expected(LOOPS, "down", calls))
    assert runner.kills([*mutants, *broken], calls) == [*sources.values(), *[set(calls)] * 3]


def test_calls_traced_together_take_what_each_takes_alone(runner):
    calls = ["sign(1)", "sign(-1)", "sign('')", "__import__('os')._exit(0)"]
    alone = [runner.trace_calls(SIGN, "sign", [call]) for call in calls]
    assert runner.trace_each(SIGN, "sign", calls[:3])[1:] == alone[:3]
    assert alone[0] != alone[1]
    assert runner.trace_each(SIGN, "sign", calls)[1:-1] == alone[:3]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def f(x):\n    print(x)\n", "returns no value"),
        ("def f(x):\n    yield x\n", "generator"),
        ("def _f(x):\n    return x\n", "private"),
        ("def f(x):\n    def g():\n        return 1\n    x.append(g)\n", "returns no value"),
        ("def f(x):\n    raise ValueError(x)\n", "it raises, or never ends"),
        ("def f(x):\n    while True:\n        x += 1\n", "it raises, or never ends"),
        ("def f(x):\n    while True:\n        if x:\n            break\n", "returns no value"),
        ("def f(x):\n    if x:\n        return\n    raise ValueError\n", "returns no value"),
        ("async def f(x):\n    return x\n", "coroutine"),
        ("class F:\n    pass\n", "class"),
        ("X = 1\n\n\ndef f(x):\n    return x\n", ""),
    ],
)
def test_functions_that_values_cannot_test_are_told_by_their_source(source, why):
    found = untestable(source)
    assert [why in fault for fault in found.values()] == ([True] if why else [])


@pytest.mark.parametrize(
    ("source", "suite", "why"),
    [
        ("def f(x):\n    return object()\n", "assert f(1) == 1", "unencodable"),
        ("def f(x):\n    return x.upper()\n", "assert f(1) == 1", "raised: AttributeError"),
        ("def f(x):\n    return hash(str(x))\n", "assert f(1) == 1", "differs between runs"),
        ("def f(x):\n    return float('nan')\n", "assert f(1) == 1", "its value has no literal"),
        ("def f(x):\n    return 'x' * 100_000\n", "assert f(1) == 1", "its value is too long to be written out"),
        ("def f(x):\n    return 10**5000 + x\n", "assert f(1) == 1", "its value is too long to be written out"),
        ("def f(x):\n    return x\n", "assert f(1 < 2) == 1", "an argument is a comparison"),
        ("def f(x):\n    return x\n", "I cannot.", "wrote no test of it: 1 reply, 0 asserts"),
    ],
)
def test_a_function_without_a_usable_call_is_told_why(student, source, suite, why):
    found = student.study(only(source), [suite])
    assert (found.kept, why in found.fault) == ([], True), found.fault


FILE = '''\
def scale(value, by=2):
    """Multiply."""
    if by == 0:
        raise ValueError("zero")
    return value * by


def half(x: float) -> float:
    return x / 2
'''
SUITES = {
    "scale": "assert scale(3) == 6\nassert scale(3, 3) == 9\nassert scale(2, by=5) == 10\nassert scale([1], -1) == []",
    "half": "assert half(1) == 0.5\nassert half(3) == 2.5",
}


def test_the_file_passes_is_added_to_and_never_holds_a_test_twice(student, box, tmp_path):
    package = tmp_path / "src" / "pack"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "sums.py").write_text(FILE)
    file, out = package / "sums.py", tmp_path / "tests"
    assert module_of(file) == ("pack.sums", tmp_path / "src")
    functions = {one.name: one for one in functions_of(FILE)}

    def again(names):
        path = path_of_tests(file, out)
        text = path.read_text() if path.exists() else ""
        existing = {name: convert_tests(text, name).tests for name in names}
        studied = [student.study(functions[name], [SUITES[name]], existing[name]) for name in names]
        found = write_tests(studied, file, out, box)
        return path, found["written"], found["passing_by"]

    path, new, by = again(["half"])
    assert (path.name, new, by) == ("test_pack_sums_generated.py", 1, "pytest")
    first = path.read_text()
    assert again(["half"]) == (path, 0, "")
    assert path.read_text() == first
    path, new, by = again(["half", "scale"])
    text = path.read_text()
    assert new > 1
    assert text.startswith(first.partition("\nfrom")[0])
    assert "from pack.sums import half, scale\n" in text
    assert text.count("def test_half(") == text.count("import pytest") == 1
    assert "pytest.approx(" in text
    assert again(["half", "scale"])[1] == 0
    path.write_text("# mine\n")
    with pytest.raises(UserError, match="not written by this command"):
        again(["half"])


def test_a_mutant_that_does_not_load_counts_and_is_no_remark(student, box, tmp_path):
    """An operator in an annotation raises where the function is defined: any test kills it, and none says why."""
    source = "def f(x: int | None) -> int | None:\n    return x\n"
    found = student.study(only(source), ["assert f(1) == 1"])
    assert (found.killed_after > 10, len(found.kept)) == (True, 1)
    assert found.alone(found.kept[0]) == []
    found = student.study(only(source.replace("return x", "return x + 1")), ["assert f(1) == 2"])
    assert {mutant.line for mutant in found.alone(found.kept[0])} == {2}
    (tmp_path / "m.py").write_text(found.function.program)
    write_tests([found], tmp_path / "m.py", tmp_path, box)
    text = path_of_tests(tmp_path / "m.py", tmp_path).read_text()
    assert "alone kills line 2: return x" in text
    assert f"Kills {found.killed_after} of {len(found.mutants)} mutants" in text


def test_the_sign_of_a_zero_is_not_written_where_it_is_not_compared(student, box, tmp_path):
    source = "def f(x):\n    return -0.0 if x else 0.0\n"
    (tmp_path / "m.py").write_text(source)
    found = student.study(only(source), ["assert f(1) == 0.0\nassert f(0) == 0.0"])
    assert {case.text for case in found.cases} == {"-0.0", "0.0"}
    found.kept = [replace(case, kills=frozenset({at})) for at, case in enumerate(found.cases)]
    assert write_tests([found], tmp_path / "m.py", tmp_path, box)["written"] == 2
    text = path_of_tests(tmp_path / "m.py", tmp_path).read_text()
    assert (text.count("pytest.approx(0.0)"), "-0.0" in text) == (2, False)


def test_a_row_that_pytest_does_not_see_pass_is_left_out(student, box, tmp_path):
    """What a function gives under the name that a test imports it by is not what it gives anywhere else."""
    source = "def where(x):\n    return x * (__name__ == 'm')\n"
    (tmp_path / "m.py").write_text(source)
    found = student.study(only(source), ["assert where(1) == 1\nassert where(0) == 0\nassert where(-2) == -2"])
    found.kept = [replace(found.cases[0], kills=frozenset({1})), replace(found.cases[1], kills=frozenset({2}))]
    written = write_tests([found], tmp_path / "m.py", tmp_path, box)
    assert (written["written"], written["passing_by"], len(found.kept)) == (1, "pytest", 1)
    text = path_of_tests(tmp_path / "m.py", tmp_path).read_text()
    assert [ok for _, ok, _ in passes(box, tmp_path / "m.py", text)] == [True]


UNSURE = """\
import datetime
import json
import os
import random
import time
from datetime import date

count = 0


def next_id(step):
    global count
    count += step
    return count


def seen(x, before=[]):
    before.append(x)
    return len(before)


def roll(sides):
    return random.randint(1, sides)


def flip(x):
    return os.urandom(1)[0] < 128


def age(year):
    return date.today().year - year


def rest_day(x):
    return datetime.datetime.now().weekday() >= 5


def stamped(text):
    return time.strftime("%Y ") + text


def save(text):
    with open("out.txt", "w") as file:
        file.write(text)
    return len(text)


def log(text):
    try:
        os.mkdir("/var/log/mine")
    except OSError:
        pass
    return len(text)


def store(text):
    import sqlite3

    sqlite3.connect("out.sqlite").execute("create table texts (text)")
    return len(text)


def setting(name):
    try:
        return json.load(open("settings.json"))[name]
    except OSError:
        return None


def export(name):
    os.environ["NAME"] = name
    return name


def fetch(name):
    import socket

    try:
        return len(socket.getaddrinfo(name, 80))
    except OSError:
        return 0
"""
SURE = """\
import functools
import random
import time
import datetime


def quick(values):
    if len(values) < 2:
        return values
    pivot = random.choice(values)
    rest = [v for v in values if v != pivot]
    return quick([v for v in rest if v < pivot]) + [pivot] + quick([v for v in rest if v > pivot])


def patient(x):
    time.sleep(0.05)
    return x + 1


@functools.lru_cache
def double(x):
    return 2 * x


def lazy(x):
    import fractions

    return str(fractions.Fraction(x, 6))


def turned(day):
    return datetime.datetime.strptime(day, "%Y-%m-%d").strftime("%d.%m.%Y")


def seeded(x):
    return random.Random(x).randint(1, 1000)


def dated(x):
    return isinstance(datetime.datetime(2020, 1, x), datetime.date) and str(datetime.date(2020, 1, x))
"""


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("next_id(1)", "its value depends on earlier calls: next_id(1) gives several"),
        ("seen(1)", "its value depends on earlier calls: "),
        ("roll(6)", "its value depends on chance: roll(6) gives several"),
        ("flip(1)", "its value depends on chance: "),
        ("age(1990)", "its value depends on the clock: age(1990) gives several"),
        ("rest_day(1)", "its value depends on the clock: "),
        ("stamped('a')", "its value depends on the clock: "),
        ("save('a')", "none of 2 calls makes a test: it writes files (2)"),
        ("log('a')", "it writes files (2)"),
        ("store('a')", "it writes files (2)"),
        ("setting('a')", "it reads files (2)"),
        ("export('a')", "it changes the environment (2)"),
        ("fetch('a')", "it uses the network (2)"),
    ],
)
def test_what_hangs_on_more_than_arguments_or_does_more_than_give_a_value_gets_no_test(student, call, why):
    name = call.partition("(")[0]
    function = next(one for one in functions_of(UNSURE) if one.name == name)
    other = call.replace("1", "2").replace("a'", "b'").replace("6", "7")
    suites = [f"assert {call} == 0\nassert {other} == 0"] * 2 + [f"assert {call} == 0 # so"]
    found = student.study(function, suites)
    assert (found.cases, found.kept, why in found.fault) == ([], [], True), found.fault
    alarms, fault = student.alarms(function, suites)
    assert (alarms, why in fault) == ([], True), fault


ELSEWHERE = """\
import functools
import getpass
import locale
import os
import platform
import socket
import sys
import tempfile
import time
from os import environ
from pathlib import Path

HERE = Path.cwd()


def f(x):
    return {} or x
"""


@pytest.mark.parametrize(
    "value",
    [
        "os.path.abspath('a')", "str(HERE / 'a')", "len(os.getcwd())", "len(sys.argv)", "sys.argv[1:]", "os.getuid()",
        "int(os.getuid() == 0)", "os.cpu_count()", "os.getpid()", "sys.version", "sys.version_info[:2]", "sys.platform",
        "int(platform.system() == 'Linux')", "platform.node()", "sys.executable", "sys.flags.optimize + 1",
        "os.path.expanduser('~')", "time.strftime('%H', time.localtime(0))", "locale.getlocale()", "getpass.getuser()",
    ],
)  # fmt: skip
def test_what_hangs_on_the_machine_or_the_environment_gets_no_test(student, value):
    found = student.study(only(ELSEWHERE.format(value)), ["assert f(1) == 1\nassert f(0) == 0"])
    assert (found.kept, found.fault[:55]) == ([], "its value depends on the machine or the environment: f("), (
        found.fault
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("2 * x if os.environ.get('HOME') == '/none'", "it reads the environment (2)"),
        ("2 * x if 'DEBUG' in environ", "it reads the environment (2)"),
        ("dict(os.environ)", "it reads the environment (2)"),
        ("os.getenv('USER')", "it reads the environment (2)"),
        ("len(socket.gethostname())", "it asks for the machine's name (2)"),
    ],
)
def test_what_reads_the_environment_gets_no_test_though_it_gives_the_same_everywhere(student, value, why):
    value = f"{value} else x" if " if " in value else value
    found = student.study(only(ELSEWHERE.format(f"({value})")), ["assert f(1) == 1\nassert f(2) == 2"])
    assert (found.cases, why in found.fault) == ([], True), found.fault


def test_what_only_looks_so_and_gives_the_same_elsewhere_is_tested(student):
    value = "('b' if sys.version_info >= (3, 9) else 'b') + time.strftime('%H', time.gmtime(0)) * x"
    found = student.study(only(ELSEWHERE.format(value)), ["assert f(1) == 1"])
    assert ([case.text for case in found.cases], found.fault) == (["'b00'"], "")


@pytest.mark.parametrize("value", ["list({str(x), 'a'})", "','.join({'x' * x, 'y'})", "hash(str(x)) % 2"])
def test_what_hangs_on_the_hash_seed_gets_no_test_though_two_seeds_give_the_same(student, value):
    """Of eight calls some are alike under the two seeds of the judge."""
    found = student.study(only(f"def f(x):\n    return {value}\n"), [f"assert f({x}) == 1" for x in range(1, 9)])
    assert (found.cases, "f(" in found.fault and "differs between runs" in found.fault) == ([], True), found.fault
    source = f"def f(x):\n    return {value}\n"
    judge = student.judge
    alike = {c: one for c, one in judge.expected(source, "f", [f"f({x})" for x in range(1, 9)]).items() if one.valid}
    assert alike  # which is why more seeds are needed
    assert "differs between runs" in CallRunner(judge, source, alike).depends(list(alike))[0]


@pytest.mark.slow
def test_calls_that_only_look_so_are_tested(student):
    """By chance, but of one value; asleep; remembering what does not change; opening what an import does."""
    calls = ["quick([3, 1, 2])", "patient(1)", "double(4)", "lazy(4)", "turned('2020-02-03')", "seeded(3)", "dated(9)"]
    values = ["[1, 2, 3]", "2", "8", "'2/3'", "'03.02.2020'", "244", "'2020-01-09'"]
    for call, value in zip(calls, values, strict=True):
        function = next(one for one in functions_of(SURE) if one.name == call.partition("(")[0])
        found = student.study(function, [f"assert {call} == {value}"])
        assert ([(case.call, case.text) for case in found.cases], found.fault) == ([(call, value)], "")


@pytest.mark.slow
def test_what_cannot_be_looked_at_closer_is_tested_as_it_is(student, box):
    """A module that does not load by another clock; calls that wait longer than they may when they are repeated."""
    picky = "import datetime\n\nassert type(datetime.date) is type\n\n\ndef f(x):\n    return x + 1\n"
    found = student.study(only(picky), ["assert f(1) == 2"])
    assert ([case.call for case in found.cases], found.fault) == (["f(1)"], "")
    waits, calls = "import threading\n\n\ndef f(x):\n    threading.Event().wait(0.2)\n    return x\n", ["f(1)", "f(2)"]
    judge = Judge(box, limits=Limits(time_s=0.5))
    assert CallRunner(judge, waits, judge.expected(waits, "f", calls)).depends(calls) == ("", {})


def test_a_function_that_ends_its_process_when_it_is_called_again(student):
    source = (
        "import os\n\nseen = []\n\n\ndef f(x):\n    seen.append(x)\n    return x if len(seen) < 2 else os._exit(1)\n"
    )
    assert "its value depends on earlier calls" in student.study(only(source), ["assert f(1) == 1"]).fault


def test_one_call_that_is_unsure_costs_a_function_its_others_and_one_that_writes_only_itself(student):
    """Another one came out alike, but that of a function of chance says nothing; what a call does is seen each time."""
    suite = "assert roll(1) == 1\nassert roll(6) == 1"
    functions = {one.name: one for one in functions_of(UNSURE)}
    assert student.study(functions["roll"], [suite]).fault == "its value depends on chance: roll(6) gives several"
    source = "def f(x):\n    if x > 1:\n        open('x', 'w').close()\n    return x\n"
    found = student.study(only(source), ["assert f(1) == 1\nassert f(2) == 2"])
    assert ([case.call for case in found.cases], found.fault) == (["f(1)"], "")


def test_a_function_whose_name_or_file_is_in_the_tests_way(student, box, tmp_path):
    """The last argument of a table has the function's own name; of a module of that name Python has another one."""
    source = "def expected(x):\n    return x if x > 0 else -x\n"
    for name, tests, fault in ("m", 2, ""), ("string", 0, "no test of it passes under pytest: ImportError: cannot "):
        (tmp_path / f"{name}.py").write_text(source)
        found = student.study(only(source), ["assert expected(3) == 3\nassert expected(-3) == 3"])
        written = write_tests([found], tmp_path / f"{name}.py", tmp_path, box)
        assert (written["written"], found.fault[: len(fault)]) == (tests, fault)
        assert written["functions"][0]["not_tested"] == found.fault
    assert [bool(reserved(name)) for name in ("test_bit", "pytest", "setup_module", "attest", "setups")] == [
        1,
        1,
        1,
        0,
        0,
    ]


def test_what_samples_agree_on_against_the_code_is_an_alarm_with_its_evidence(student):
    """Most agreed on first; an answer that as many samples state is none, nor is one against what an example states."""
    source = 'def f(x):\n    """Twice x.\n\n    More."""\n    return x + 2 if x else 1 // x\n'
    function = replace(only(source), calls=("assert f(3) == 6", "assert f(4) == 6"))
    suites = ["assert f(4) == 8\nassert f(3) == 6\nassert f(5) == 10\nassert f(0) == 0\nassert f(2) == 4"] * 3
    suites += ["assert f(3) == 6\nassert f(5) == 7\nassert f(7) == 9\nassert f(9) == 8", "assert f(9) == 11"]
    found, fault = student.alarms(function, suites)
    assert fault == ""
    assert [(one.call, one.got, one.stated, one.votes, one.against, one.asked, one.word) for one in found] == [
        ("f(3)", "5", "6", 4, 0, 4, "assert f(3) == 6"),
        ("f(0)", found[1].got, "0", 3, 0, 3, "Twice x."),
        ("f(5)", "7", "10", 3, 1, 4, "Twice x."),
    ]
    assert found[1].got.startswith("raised: ZeroDivisionError")
    assert (found[0].function, found[0].line) == ("f", 1)
    assert [one.by for one in found] == ["the docstring", "", ""]


def test_what_the_docstring_or_a_test_states_otherwise_than_the_code_comes_first_whatever_samples_say(student):
    source = "def f(x):\n    return x + 2\n"
    existing = ["assert f(5) == 8", "assert f(6) == 8"]
    function = replace(only(source), calls=(*existing, "assert f(3) == 6", "assert f() == 0", "assert f(1) == 3"))
    suites = ["assert f(2) == 4\nassert f(9) == 0", "assert f(9) == 0", "assert f(3) == 5\nassert f(9) == 0"]
    found, fault = student.alarms(function, suites, existing)
    assert fault == ""
    assert [(one.call, one.by, one.stated, one.votes, one.against, one.asked, one.word) for one in found] == [
        ("f(5)", "an existing test", "8", 0, 0, 0, "assert f(5) == 8"),
        ("f()", "the docstring", "0", 0, 0, 0, "assert f() == 0"),
        ("f(3)", "the docstring", "6", 0, 1, 1, "assert f(3) == 6"),
        ("f(9)", "", "0", 3, 0, 3, ""),
    ]
    assert found[1].given.startswith("raises TypeError")
    found, fault = student.alarms(function, ["I cannot."])
    assert ([one.call for one in found], fault) == (["f(5)", "f(3)", "f()"], ""), "with no sample at all"


def test_samples_that_are_all_the_same_are_one_vote(student):
    """Greedy ones, or those of a server that ignores the temperature: they agree with nobody but themselves."""
    function = only("def f(x):\n    return x\n")
    for suites, votes in ((["assert f(1) == 2"] * 8, 1), (["assert f(1) == 2"] * 7 + ["assert f(1) == 2 # so"], 8)):
        (alarm,), _ = student.alarms(function, suites)
        assert (alarm.votes, alarm.asked) == (votes, votes)


@pytest.mark.parametrize(
    ("suite", "why"),
    [
        ("I cannot.", "the model wrote no test of it: 1 reply, 0 asserts"),
        ("assert f(1, 2) == 3", "none of 1 call makes a test: raised: TypeError"),
        ("assert f('') == 3", "none of 1 call makes a test: unencodable"),
        ("assert f(1) == 2", ""),
    ],
)
def test_a_function_that_no_sample_can_contradict_is_told_why(student, suite, why):
    source = "def f(x):\n    return x if x else object()\n"
    found, fault = student.alarms(only(source), [suite])
    assert (len(found), why in fault, bool(fault)) == (int(not why), True, bool(why)), fault


OLD = '''\
"""Tests of m.py, written by codea1 write-tests; a later call adds to them."""

import pytest

%s


def test_sign():
    assert sign(5) == 1


@pytest.mark.parametrize(("x", "expected"), [(1, 2)])
def test_twice(x, expected):
    assert twice(x) == expected


def test_mine():
    total = sum(value for value in [WIDE, 1])
    assert total == 3
'''


@pytest.mark.parametrize(
    ("imported", "now"),
    [
        ("from m import WIDE, sign, twice", "from m import WIDE, sign"),
        ("from m import (  # mine\n    sign,\n    twice as double,\n    WIDE,\n)  # noqa", "from m import WIDE, sign  # noqa"),
        ("from m import twice\nfrom m import sign as sign, WIDE", "import m\nfrom m import sign as sign, WIDE"),
        ("import m; from m import sign, twice, WIDE", "import m; from m import WIDE, sign"),
        ("from m import sign, WIDE", "from m import sign, WIDE"),
        ("from m import (\n    sign,\n    WIDE,\n)", "from m import (\n    sign,\n    WIDE,\n)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("new", [False, True])
def test_a_function_that_is_gone_costs_its_own_tests_alone(student, box, tmp_path, imported, now, new):
    """Whatever form the import has; what stands in the file else stays as it is."""
    source = SIGN + "\n\ndef half(x):\n    twice = x / 2\n    return twice\n\n\nWIDE = 2\n"
    (tmp_path / "m.py").write_text(source)
    path = path_of_tests(tmp_path / "m.py", tmp_path)
    path.write_text(OLD % imported)
    studied = [student.study(functions_of(source)[1], ["assert half(3) == 1.5"])] if new else []
    found = write_tests(studied, tmp_path / "m.py", tmp_path, box)
    text = path.read_text()
    lost = "twice" in imported
    assert (found["written"], found["gone"]) == (int(new), ["twice"] if lost else [])
    if new:
        assert "half" in text.partition("def test_sign")[0].partition("from m import")[2]
    else:
        assert text == OLD % now
    first = text[: text.index("@pytest.mark")].count("\n") + 1
    assert found["stale"] == [{"test": "test_twice", "lines": [first, first + 2], "missing": ["twice"]}]
    ran = {name.partition("[")[0]: ok for name, ok, _ in passes(box, tmp_path / "m.py", text)}
    assert ran == {"test_sign": True, "test_twice": False, "test_mine": True} | ({"test_half": True} if new else {})
    assert write_tests(studied[:0], tmp_path / "m.py", tmp_path, box)["stale"] == found["stale"], (
        "told until it is mended"
    )
    assert path.read_text() == text


@pytest.mark.parametrize(
    "source",
    [
        "from elsewhere import *\n",
        "def __getattr__(name):\n    return 1\n",
        "globals()['twice'] = 1\n",
        "try:\n    from fast import twice\nexcept ImportError:\n    def twice(x):\n        return x\n",
        "if True:\n    twice = 1\n",
        "import twice.over\n",
        "with open('x') as twice:\n    pass\n",
        "class twice:\n    pass\n",
    ],
)
def test_a_name_that_the_module_may_have_stays_imported(tmp_path, source):
    (tmp_path / "m.py").write_text(source)
    assert gone_from("from m import twice, __doc__\n", tmp_path / "m.py") == set()
    (tmp_path / "m.py").write_text("def f(twice):\n    twice = 1\n\n\nclass A:\n    def twice(self):\n        pass\n")
    assert gone_from("from m import twice, __doc__\n", tmp_path / "m.py") == {"twice"}
    (tmp_path / "__init__.py").touch()
    name = tmp_path.name
    assert gone_from(f"from {name} import m, twice\n", tmp_path / "__init__.py") == {"twice"}
