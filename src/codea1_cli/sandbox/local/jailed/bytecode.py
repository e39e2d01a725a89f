"""A quick look at compiled code that finds most programs stateless at once. Standard library only.

It accepts what consists of functions, constants and imports alone, and stores nothing outside its own variables; what
it does not accept goes to `statelessness`, which looks closer but has to parse. With that alone, judging takes 2.8
times as long.
"""

from __future__ import annotations

import types
from opcode import opmap

from statelessness import FORBIDDEN, MODULES


def _codes(names: str) -> frozenset[int]:
    return frozenset(opmap[name] for name in names.split() if name in opmap)


# What a module of functions, constants and imports compiles to, annotations included, in Python 3.10 to 3.13.
_MODULE = _codes(
    """CACHE RESUME NOP POP_TOP LOAD_CONST LOAD_NAME STORE_NAME IMPORT_NAME IMPORT_FROM MAKE_FUNCTION BUILD_TUPLE
    SET_FUNCTION_ATTRIBUTE RETURN_VALUE RETURN_CONST BINARY_SUBSCR BINARY_OP BINARY_OR SETUP_ANNOTATIONS LOAD_ATTR"""
)
_STORES = _codes("STORE_GLOBAL DELETE_GLOBAL STORE_ATTR DELETE_ATTR IMPORT_NAME IMPORT_STAR LOAD_BUILD_CLASS")
_IMPORT = opmap["IMPORT_NAME"]
_LONG = opmap["EXTENDED_ARG"]


def is_plainly_stateless(code: types.CodeType) -> bool:
    """Whether the module's functions can have no memory. False only means that this look does not tell."""
    raw = code.co_code
    used = frozenset(raw[::2])
    if not used <= _MODULE or _LONG in used:
        return False
    names = code.co_names
    if _IMPORT in used:
        for at in range(0, len(raw), 2):
            if raw[at] == _IMPORT and names[raw[at + 1]].partition(".")[0] not in MODULES:
                return False
    own = frozenset(names)
    if not FORBIDDEN.isdisjoint(own):
        return False
    return all(_keeps_nothing(part, own) for part in code.co_consts if isinstance(part, types.CodeType))


def _keeps_nothing(code: types.CodeType, own: frozenset[str]) -> bool:
    if not _STORES.isdisjoint(code.co_code[::2]) or not FORBIDDEN.isdisjoint(code.co_names):
        return False
    if any(name[0] == "_" and name not in own for name in code.co_names):
        return False
    return all(_keeps_nothing(part, own) for part in code.co_consts if isinstance(part, types.CodeType))
