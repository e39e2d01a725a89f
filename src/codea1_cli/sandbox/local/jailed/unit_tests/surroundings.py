"""What surrounds a unittest module: BigCodeBench's world, made anew, and a check that nobody tampered with unittest.

`settle` imitates what a test can notice of that benchmark's checker: standard streams in memory that cannot be read,
subprocess output captured unless asked otherwise, signals only to own children, no `exit`, `exec` and `os.system` that
do nothing useful. `Snapshot` holds what must be as it was for a passed test to mean anything: unittest, the functions
tests compare with, the builtins. It is taken in the zygote, before any program; TestCase itself is made unchangeable
where the interpreter lets us, the rest is compared after the program was loaded and after each test. Standard library
only.
"""

from __future__ import annotations

import builtins
import ctypes
import io
import os
import signal
import subprocess
import sys
import types
import unittest
import unittest.mock

_FLAGS_AT, _IMMUTABLE = 168, 1 << 8  # PyTypeObject.tp_flags on 64-bit CPython 3.10 to 3.13, Py_TPFLAGS_IMMUTABLETYPE
_MAY_CHANGE = {"open", "print", "input", "exit", "quit", "_", "help", "copyright", "credits", "license"}
_MODULES = ("unittest", "unittest.case", "unittest.result", "unittest.suite", "unittest.loader", "unittest.util",
            "numpy.testing", "numpy.testing._private.utils", "pandas.testing", "pandas._testing",
            "pandas._testing.asserters")  # fmt: skip
_FIRST = ("numpy", "numpy.core.numeric", "math", "json", "posixpath", "re", "copy", "collections")
_SHADOWS = ("isinstance", "issubclass", "len", "type", "hasattr", "callable", "AssertionError", "Exception")
_OWN = {"_testMethodName", "_testMethodDoc", "_outcome", "_cleanups", "_type_equality_funcs", "_subtest"}
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod)


class _Sink(io.StringIO):
    """Takes what is written; reading fails."""

    def read(self, *_args):
        raise OSError

    readline = readlines = read

    def readable(self) -> bool:
        return False


def settle(folder: str) -> None:
    """Moves into an empty folder below `folder`, if there is one, and puts all of it in place."""
    if folder:
        os.mkdir(folder + "/task")
        os.chdir(folder + "/task")
    sys.stdin = sys.stdout = sys.stderr = _Sink()
    vars(builtins).update(exit=None, quit=None)
    signal.signal(signal.SIGALRM, _late)
    _keep_to_own(set())


def _late(_number, _frame):
    raise TimeoutError("Timed out!")


def _keep_to_own(own: set) -> None:
    """Signals and waits reach `own` alone, the processes that the program started."""
    kill, killpg, popen, run = os.kill, os.killpg, subprocess.Popen, subprocess.run
    call, check_output, me = subprocess.call, subprocess.check_output, os.getpid()

    def safe_kill(pid, number):
        if pid == me or pid in own:
            kill(pid, number)

    def safe_killpg(group, number):
        if group == os.getpgid(me) or group in own:
            killpg(group, number)

    class Popen(popen):  # type: ignore[misc,valid-type]
        def __init__(self, *args, **kwargs):
            kwargs["preexec_fn"] = os.setsid
            super().__init__(*args, **kwargs)
            own.add(self.pid)

        def communicate(self, *args, **kwargs):
            try:
                return super().communicate(*args, **kwargs)
            except subprocess.TimeoutExpired:
                return None, None

        def kill(self):
            safe_kill(self.pid, signal.SIGTERM)

        terminate = kill

    def captured(kwargs: dict) -> dict:
        if kwargs.get("capture_output"):
            kwargs.pop("stdout", None)
            kwargs.pop("stderr", None)
        else:
            kwargs.setdefault("stdout", subprocess.PIPE)
            kwargs.setdefault("stderr", subprocess.PIPE)
        return kwargs

    def safe_popen(*args, **kwargs):
        return Popen(*args, **captured(kwargs))

    def safe_run(*args, **kwargs):
        kwargs = captured(kwargs)
        if "kill" in args[0] or "killall" in args[0]:
            return subprocess.CompletedProcess(args, 0, b"", b"")
        return run(*args, **kwargs)

    def safe_call(command, *args, **kwargs):
        return 0 if "kill" in command or "killall" in command else call(command, *args, **kwargs)

    def safe_check_output(command, *args, **kwargs):
        return b"" if "ps" in command else check_output(command, *args, **kwargs)

    def no_system(command):
        if "kill" in command:
            return 0
        raise NameError("os.system is not available: use subprocess")

    def no_exec(*_args, **_kwargs):
        return None

    vars(os).update(kill=safe_kill, killpg=safe_killpg, system=no_system)
    vars(os).update(execv=no_exec, execvp=no_exec, execvpe=no_exec)
    vars(subprocess).update(Popen=safe_popen, run=safe_run, call=safe_call, check_output=safe_check_output)


def _form(thing):
    """A function's changeable parts; they hold its identity too."""
    inner = thing.__func__ if isinstance(thing, (staticmethod, classmethod)) else thing
    if isinstance(inner, types.FunctionType):
        return (thing, inner.__code__, inner.__defaults__, inner.__kwdefaults__)
    return (thing,)


def _same(a: tuple, b: tuple) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))  # `is` cannot be lied to


def freeze(kind: type) -> bool:
    """Makes a class unchangeable from Python; False where its layout is not the known one."""
    try:
        flags = ctypes.c_ulong.from_address(id(kind) + _FLAGS_AT)
        if flags.value != kind.__flags__:
            return False
        flags.value |= _IMMUTABLE
        return kind.__flags__ & _IMMUTABLE != 0
    except Exception:
        return False


class Snapshot:
    """What was there before any program. `broken` names the first thing that is not as it was, or is empty."""

    def __init__(self) -> None:
        self.forms: list = []
        self.first: list = []  # looked at once, since tests may change it for themselves
        self.modules: dict = {}
        for name in (*_MODULES, "unittest.mock"):
            module = sys.modules.get(name)
            if module is None:
                continue
            self.modules[name] = module
            for key, thing in list(vars(module).items()):
                if isinstance(thing, type) and thing.__module__.startswith("unittest"):
                    self._add_class(thing)
                if isinstance(thing, (type, types.FunctionType)):
                    self.forms.append((vars(module), f"{name}.{key}", key, _form(thing)))
        for key, thing in list(vars(unittest.mock.patch).items()):
            self.forms.append((vars(unittest.mock.patch), f"mock.patch.{key}", key, _form(thing)))
        for name in _FIRST:
            space = vars(sys.modules[name]) if name in sys.modules else {}
            self.first += [
                (space, f"{name}.{key}", key, _form(thing)) for key, thing in space.items() if callable(thing)
            ]
        for key, thing in vars(builtins).items():
            if (key not in _MAY_CHANGE and not key.startswith("__")) or key in ("__build_class__", "__import__"):
                self.forms.append((vars(builtins), f"builtins.{key}", key, _form(thing)))
        self.checks = frozenset(
            name for name in dir(unittest.TestCase) if callable(getattr(unittest.TestCase, name)) and name[:2] != "__"
        ) - {"setUp", "tearDown", "setUpClass", "tearDownClass", "runTest"}  # fmt: skip
        freeze(unittest.TestCase)

    def _add_class(self, kind: type) -> None:
        for key, thing in list(vars(kind).items()):
            if isinstance(thing, _FUNCTIONS) and (key[:2] != "__" or key in ("__init__", "__call__", "__exit__")):
                self.forms.append((vars(kind), f"{kind.__name__}.{key}", key, _form(thing)))

    def broken(self, *, loading: bool = False) -> str:
        """The first thing that is not as it was; with `loading` also what tests may change for themselves."""
        for name, module in self.modules.items():
            if sys.modules.get(name) is not module:
                return f"replaced the module {name}"
        for space, name, key, form in [*self.forms, *self.first] if loading else self.forms:
            if key not in space or not _same(_form(space[key]), form):
                return f"changed {name}"
        return ""

    def shadowed(self, space: dict) -> str:
        """What a program's own globals hide from its tests."""
        for name in _SHADOWS:
            if name in space:
                return f"redefined {name}"
        return ""

    def take_class(self, kind: type) -> list:
        """The forms of a test class; what tests put into it later is their own."""
        return [(k, _form(vars(k)[key]), key) for k in kind.__mro__ if k.__module__ == "__test__"
                for key in list(vars(k)) if isinstance(vars(k)[key], _FUNCTIONS)]  # fmt: skip

    def broken_class(self, kind: type, forms: list, case: object) -> str:
        """What was changed in the test class since `take_class`, or put into it or into the running `case`."""
        for owner, form, key in forms:
            if key not in vars(owner) or not _same(_form(vars(owner)[key]), form):
                return f"changed {key} of the tests"
        known = {key for _owner, _form, key in forms}
        for name in self.checks:
            if name not in known and any(name in vars(k) for k in kind.__mro__ if k.__module__ == "__test__"):
                return f"put {name} into the tests"
            if case is not None and name in vars(case) and name not in _OWN:
                return f"put {name} into a test"
        return ""
