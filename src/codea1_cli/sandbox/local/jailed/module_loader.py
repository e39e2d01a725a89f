"""Loading the child's modules with builtins of their own, which no candidate's patch reaches. Standard library only."""

from __future__ import annotations

import builtins
import os
import sys

MODULES = ("encode", "statelessness", "bytecode", "child")
UNIT_MODULES = ("surroundings", "runner", "relay")  # in the folder unit_tests


def load(folder: str):
    """The `child` module of a folder; it and what it needs are in no table of modules afterwards."""
    return load_all(folder, MODULES, {})["child"]


def load_all(folder: str, names: tuple, loaded: dict) -> dict:
    """`loaded` and these modules of a folder, each of which may import those before it."""
    modules = dict(loaded)
    for name in names:
        with open(os.path.join(folder, name + ".py"), encoding="utf-8") as file:
            source = file.read()
        module = type(sys)("codea1_" + name)
        module.__dict__["__builtins__"] = dict(vars(builtins))
        sys.modules.update(modules)
        exec(compile(source, f"<{name}>", "exec", 0, True), module.__dict__)
        modules[name] = module
    for name in modules:
        sys.modules.pop(name, None)
    return modules
