"""What must be as it was for a passed test to mean anything: unittest, the functions tests compare with, the builtins.

A snapshot is taken in the zygote, before any program. TestCase itself is made unchangeable where the interpreter lets
us; the rest is compared after the program was loaded and after each test. Standard library only.
"""

from __future__ import annotations

import builtins
import ctypes
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
