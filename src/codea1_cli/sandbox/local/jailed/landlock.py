"""Landlock: files a process may open, as an allow-list that no later call can widen. Standard library only."""

from __future__ import annotations

import ctypes
import os

import kernel

_READ_FILE, _READ_DIR, _EXECUTE, _WRITE_FILE, _TRUNCATE = 1 << 2, 1 << 3, 1 << 0, 1 << 1, 1 << 14
_READ = _READ_FILE | _READ_DIR | _EXECUTE
_FILE_RIGHTS = _READ_FILE | _EXECUTE | _WRITE_FILE | _TRUNCATE


class _Attr(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def abi() -> int:
    """Landlock's ABI version. Raises OSError where the kernel has none."""
    return kernel.call("landlock_create_ruleset", 0, 0, 1)


def _handled(version: int) -> int:
    rights = (1 << 13) - 1
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        if version >= since:
            rights |= 1 << bit
    return rights


def build(
    readable: list[str], writable: list[str], hidden: list[str], devices: list[str], *, network: bool = False
) -> int:
    """A ruleset's descriptor: read under `readable` but for `hidden`, all under `writable`, read/write `devices`.

    Without `network` no TCP port can be bound or connected to.

    Landlock has no exceptions, so a folder that holds a hidden one is opened entry by entry.
    """
    version = abi()
    everything = _handled(version)
    attr = _Attr(everything, 3 if version >= 4 and not network else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = kernel.call("landlock_create_ruleset", ctypes.addressof(attr), size, 0)
    for path in readable:
        _allow_but(ruleset, path, hidden, everything)
    for path in writable:
        _allow(ruleset, path, everything)
    for path in devices:
        _allow(ruleset, path, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & everything)
    return ruleset


def _allow_but(ruleset: int, path: str, hidden: list[str], everything: int) -> None:
    if path in hidden:
        return
    inner = [h for h in hidden if h.startswith(path.rstrip("/") + "/")]
    if not inner:
        _allow(ruleset, path, _READ & everything)
        return
    _allow(ruleset, path, _READ_DIR)
    for name in os.listdir(path):
        _allow_but(ruleset, os.path.join(path, name), inner, everything)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = _Beneath(access if os.path.isdir(path) else access & _FILE_RIGHTS, fd)
        kernel.call("landlock_add_rule", ruleset, 1, ctypes.addressof(rule), 0)
    finally:
        os.close(fd)


def restrict(ruleset: int) -> None:
    """Puts this process and all it starts under the ruleset; needs no_new_privs."""
    kernel.call("landlock_restrict_self", ruleset, 0)
