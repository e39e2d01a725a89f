"""Loading the child's modules with builtins of their own, which no candidate's patch reaches. Standard library only."""

from __future__ import annotations

import builtins
import os
import sys

MODULES = ("encode", "purity", "bytecode", "child")


def load(folder: str):
    """The `child` module of a folder; it and what it needs are in no table of modules afterwards."""
    modules: dict = {}
    for name in MODULES:
        with open(os.path.join(folder, name + ".py"), encoding="utf-8") as file:
            source = file.read()
        module = type(sys)("codea1_" + name)
        module.__dict__["__builtins__"] = dict(vars(builtins))
        sys.modules.update(modules)
        exec(compile(source, f"<{name}>", "exec", 0, True), module.__dict__)
        modules[name] = module
    for name in modules:
        sys.modules.pop(name, None)
    return modules["child"]
