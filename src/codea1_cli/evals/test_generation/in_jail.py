"""What runs inside the sandbox for one test: load the function, run the test, say how it ended or what it covered.

Standard library only (and coverage, for `trace`), Python 3.10 or newer; it is sent as the program, so it imports
nothing of this project. A test may be any statement and shares this process, which is its own: a fork per call. The
token is only handed back by the line behind the test's assert, so that an early end of any kind is not a pass.
"""

import builtins
import contextlib
import importlib
import os
import re
import sys
import time
import types

NAMES = {  # what a test may use without importing it, as in the published runs
    "np": "numpy", "numpy": "numpy", "pd": "pandas", "pandas": "pandas", "pytest": "pytest",
    "os": "os", "re": "re", "math": "math", "random": "random", "string": "string", "datetime": "datetime",
    "warnings": "warnings", "traceback": "traceback",
}  # fmt: skip
TYPES = ["Any", "Callable", "Dict", "FrozenSet", "Generator", "Iterable", "List", "Optional", "Sequence", "Set"]
TYPES += ["Tuple", "Union"]
MODULE, TEST = "function_under_test", "codea1_test"
_getpid, _exit = os.getpid, os._exit
_USED = __builtins__ if isinstance(__builtins__, dict) else vars(builtins)  # those that functions here look names up in
_TABLES = [(table, dict(table)) for table in (vars(builtins), _USED)]


def offer(space, text):
    """Puts the usual modules that `text` mentions into a namespace."""
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    for name, module in NAMES.items():
        if name in words:
            with contextlib.suppress(ImportError):
                space.setdefault(name, importlib.import_module(module))
    for name in TYPES:
        if name in words:
            space.setdefault(name, getattr(importlib.import_module("typing"), name))


def load(source, file="<function>"):
    """The module that holds the function under test."""
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    offer(module.__dict__, source)
    exec(compile(source, file, "exec"), module.__dict__)
    return module


def prepare(module, test):
    """The test's function, in a namespace of its own that holds all names of the module."""
    own = ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__")
    space = {name: value for name, value in module.__dict__.items() if name not in own}
    space["__name__"] = "test_" + MODULE
    offer(space, test)
    exec(compile(test, "<test>", "exec"), space)
    return space


def describe(fault):
    """Type and message of an exception, without a call of its own methods."""
    try:
        return (type(fault).__name__ + ": " + BaseException.__str__(fault))[:200]
    except BaseException:
        return type(fault).__name__


def check(source, entry, test, token):
    """["passed", token, seconds], ["failed", why], ["redefined", ""] or ["load_error", why]."""
    try:
        module = load(source)
        function = module.__dict__[entry]
    except BaseException as fault:
        return ["load_error", describe(fault)]
    code = getattr(function, "__code__", None)
    try:
        space = prepare(module, test)
        process, began = _getpid(), time.perf_counter()
        try:
            end = space[TEST]()
        finally:
            if _getpid() != process:  # the test forked: its copy has no say
                _exit(0)
        seconds = time.perf_counter() - began
    except BaseException as fault:
        return ["failed", describe(fault)]
    if module.__dict__.get(entry) is not function or getattr(function, "__code__", None) is not code:
        return ["redefined", ""]
    changed = any(table.get(name) is not value for table, before in _TABLES for name, value in before.items())
    if changed or space.get(entry) is not function:
        return ["redefined", ""]
    return ["passed", token, seconds] if type(end) is str and end == token else ["failed", "ended before its assert"]


def check_all(source, entry, tests, token):
    """["passed", token, seconds] when every test passes, each on the function loaded afresh, else what `check` says of
    the first that does not. For tests that can change nothing but what they call."""
    found = ["failed", "no test"]
    for test in tests:
        found = check(source, entry, test, token)
        if found[0] != "passed":
            break
    return found


def trace(source, entry, test):
    """The arcs (from line, to line) that loading the function and running the test took, whether it passes or not."""
    import coverage

    file = os.path.join(os.getcwd(), MODULE + ".py")
    with open(file, "w", encoding="utf-8") as out:
        out.write(source)
    cover = coverage.Coverage(data_file=None, branch=True, include=[file], config_file=False)
    cover.start()
    try:
        space = prepare(load(source, file), test)
        space[TEST]()
    except BaseException:
        pass
    finally:
        cover.stop()
    arcs = cover.get_data().arcs(file) or []
    return [list(arc) for arc in arcs]


def trace_all(source, entry, tests):
    """What `trace` gives for each test, in one process: for tests that are known to end."""
    return [trace(source, entry, test) for test in tests]


def answer(source, code, call):
    """What a call gives on a module loaded afresh, `code` being its `source` compiled; raises what either raises."""
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    offer(module.__dict__, source)
    exec(code, module.__dict__)
    return eval(compile(call, "<call>", "eval"), module.__dict__)


def answers(source, calls):
    """What each call gives, each on a module loaded afresh; raises what the first failing one raises."""
    code = compile(source, "<function>", "exec")
    return [answer(source, code, call) for call in calls]


def each(source, calls):
    """What each call gives, each on a module loaded afresh: [value], or [] where it raises."""
    code = compile(source, "<function>", "exec")
    found = []
    for call in calls:
        try:
            found.append([answer(source, code, call)])
        except BaseException:
            found.append([])
    return found


def run_pytest(files, test):
    """[name, outcome, why] of each test of the file `test` under pytest, in order; None where there is no pytest."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        import pytest
    except ImportError:
        return None
    found = []

    class Seen:
        def pytest_runtest_logreport(self, report):
            if report.when == "call" or report.failed:
                found.append([report.nodeid.partition("::")[2], report.outcome, str(report.longrepr or "")[-300:]])

        def pytest_collectreport(self, report):
            if report.failed:
                found.append(["", "failed", str(report.longrepr)[-300:]])

    for name, text in files.items():
        os.makedirs(os.path.dirname(os.path.abspath(name)), exist_ok=True)
        with open(name, "w", encoding="utf-8") as out:
            out.write(text)
    sys.path.insert(0, os.getcwd())
    plain = [
        "-q",
        "-s",
        "--tb=line",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faulthandler",
        "-c",
        os.devnull,
    ]
    pytest.main([*plain, "--rootdir", os.getcwd(), test], plugins=[Seen()])
    return found
