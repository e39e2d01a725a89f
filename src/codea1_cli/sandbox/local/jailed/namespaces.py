"""A worker's namespaces: its user, its loopback interface, its own view of the files; trials in a fork.

The file tree is small and read-only, and holds the interpreter and the system's libraries; what is not in it does not
exist for a program. On top is one folder in memory that every program finds empty (`/box/scratch`; `/tmp` leads there).
Where the interpreter itself lies below /tmp, that is a second such folder (`/box/tmp`), empty but for the interpreter.
Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys

import kernel

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1

SCRATCH = "/box/scratch"
_TMP = "/box/tmp"
_ASIDE = "/box/aside"  # what lies below /tmp, to be bound into each new /box/tmp
DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
FACTS = ["/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/loadavg", "/proc/version"]
HOSTS = ["/etc/hosts", "/etc/passwd"]
_SYSTEM = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives",
]  # fmt: skip
_RDONLY, _NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 1, 2, 4, 4096, 16384, 1 << 18
_DETACH = 2


def in_fork(action, flags: int = 0) -> None:
    """Tries an action in a child that ends at once. Raises OSError with what the action raised."""
    pid = kernel.fork_into(flags)
    if pid == 0:
        code = 250
        try:
            action()
            code = 0
        except OSError as fault:
            code = fault.errno or 250
        finally:
            os._exit(min(code, 250))
    status = os.waitpid(pid, 0)[1]
    if status:
        code = os.waitstatus_to_exitcode(status)
        raise OSError(code, os.strerror(code) if 0 < code < 134 else f"trial ended with status {code}")


def enter_user(outer_uid: int, outer_gid: int, uid: int, gid: int) -> None:
    """A new user namespace for this process, in which one user of the old one goes by the given numbers."""
    kernel.unshare(kernel.CLONE_NEWUSER)
    for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {outer_uid} 1"), ("gid_map", f"{gid} {outer_gid} 1")):
        with open("/proc/self/" + name, "w", encoding="ascii") as file:
            file.write(line)


def become(user: int) -> None:
    """This process runs as `user` from here on, in no other group."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


class IdMapWriter:
    """A fork that stays behind as root, to write the id maps of the user namespace that its parent enters."""

    def __init__(self) -> None:
        wait, self.go = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid:
            os.close(wait)
            return
        code = 1
        try:
            os.close(self.go)
            uid, gid = os.read(wait, 64).decode().split()
            for name, who in (("gid_map", gid), ("uid_map", uid)):
                with open(f"/proc/{parent}/{name}", "w", encoding="ascii") as file:
                    file.write(f"{who} {who} 1")
            code = 0
        finally:
            os._exit(code)

    def map(self, uid: int, gid: int) -> None:
        """Gives the parent's new namespace its one user. Raises OSError when that is refused."""
        os.write(self.go, b"%d %d" % (uid, gid))
        os.close(self.go)
        if os.waitpid(self.pid, 0)[1]:
            raise OSError(1, "the user map was refused")


def bring_up_loopback() -> str:
    """Switches `lo` on in this process's network namespace; empty, or why it stays off."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("16sh14x", b"lo", 0)
            flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _GET_FLAGS, request))[1]
            fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))
    except OSError as fault:
        return f"loopback stays off: {fault.strerror}"
    return ""


def readable_paths() -> list[str]:
    """What a program may read: the system's libraries, and this interpreter with its libraries."""
    own = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    own += [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    own += [os.path.dirname(os.path.realpath(sys.executable)), os.path.dirname(os.__file__)]
    found: list[str] = []
    for path in [*_SYSTEM, *own, *(os.path.realpath(p) for p in own)]:
        path = os.path.abspath(path)
        inside = any(path == f or path.startswith(f + "/") for f in found if not os.path.islink(f))
        if path != "/" and os.path.exists(path) and not inside:
            found.append(path)
    return found


def build_tree(stage: str, paths: list[str], hidden: list[str], *, proc: bool = False, hosts: bool = False) -> None:
    """Makes `paths` (without what is `hidden`) the whole file tree of this process; `stage` is an empty folder.

    With `proc` there is a stand-in for /proc: facts about the machine, and no process. With `hosts` the name localhost
    is known, and nobody.

    Needs a mount namespace of its own and the right to mount in it. Raises OSError; half a tree may be left then,
    so the caller must not go on in this process as if nothing had happened.
    """
    kernel.mount(None, "/", None, _REC | _PRIVATE)
    kernel.mount("codea1", stage, "tmpfs", _NOSUID, "size=1m,mode=755")
    for path in [*paths, *DEVICES]:
        _bind(path, stage + _place(path))
    for path in filter(_below_tmp, paths):
        _bind(path, stage + _ASIDE + path)
    if proc:
        for path in FACTS:
            _bind(path, stage + path)
        os.makedirs(stage + "/proc/self")
        _write(stage + "/proc/self/maps", "")  # threadpoolctl insists on it
        os.symlink(os.path.realpath(sys.executable), stage + "/proc/self/exe")  # TensorFlow aborts without these
        _write(stage + "/proc/self/cmdline", "python\0program.py\0")
    if hosts:
        os.makedirs(stage + "/etc", exist_ok=True)
        _write(stage + HOSTS[0], "127.0.0.1 localhost\n::1 localhost\n")
        _write(stage + HOSTS[1], "nobody:x:65534:65534:nobody:/tmp:/bin/sh\n")
    for folder in [place for path in hidden for place in (_place(path), _ASIDE + path)]:
        if os.path.isdir(stage + folder):
            kernel.mount("codea1", stage + folder, "tmpfs", _NOSUID | _NODEV, "size=4k,mode=755")
    os.makedirs(stage + SCRATCH)
    os.symlink(_TMP if os.path.isdir(stage + _TMP) else SCRATCH, stage + "/tmp")
    os.symlink(SCRATCH, stage + "/dev/shm")
    os.makedirs(stage + "/old")
    os.chdir(stage)
    here, old = kernel.text("."), kernel.text("old")
    kernel.call("pivot_root", kernel.address(here), kernel.address(old))
    os.chdir("/")
    kernel.umount("/old", _DETACH)
    _read_only()


def _below_tmp(path: str) -> bool:
    return path.startswith("/tmp/")


def _place(path: str) -> str:
    """Where a path lies in the tree: as outside, but what is below /tmp."""
    return f"/box{path}" if _below_tmp(path) else path


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, 0o644)


def _bind(source: str, target: str) -> None:
    if os.path.islink(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):
            os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif os.path.exists(source):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    else:
        return
    kernel.mount(source, target, None, _BIND | _REC)


def _read_only() -> None:
    root, attributes = kernel.text("/"), kernel.words(_RDONLY | _NOSUID, 0, 0, 0)
    everywhere = 0x8000  # AT_RECURSIVE
    kernel.call("mount_setattr", -100, kernel.address(root), everywhere, kernel.address(attributes), 32)


class Scratch:
    """Empty folders in memory, for one program at a time; what of `paths` lies below /tmp is in its place there.

    owner: the user whom they belong to, where that is not the worker's own.
    """

    def __init__(self, megabytes: int, paths: list[str], owner: int | None) -> None:
        self.options = f"size={megabytes}m,nr_inodes={64 * megabytes},mode=700"
        if owner is not None:
            self.options += f",uid={owner},gid={owner}"
        self.paths = [path for path in paths if _below_tmp(path)]
        self.mount()

    def mount(self) -> None:
        """Mounts new folders."""
        kernel.mount("scratch", SCRATCH, "tmpfs", _NOSUID | _NODEV, self.options)
        if os.path.isdir(_TMP):
            kernel.mount("scratch", _TMP, "tmpfs", _NOSUID | _NODEV, self.options)
            for path in self.paths:
                _bind(_ASIDE + path, _place(path))
        self.untouched = self.look()

    def look(self) -> tuple[int, int, list[str]]:
        """What differs after any change: the folder's mode, the time of its last change, its entries."""
        status = os.stat(SCRATCH)
        return status.st_mode, status.st_ctime_ns, os.listdir(SCRATCH)

    def renew(self) -> None:
        """Takes the folders away, with all that the last program left in them, and mounts new ones."""
        apart = os.path.isdir(_TMP)
        if apart or self.look() != self.untouched:
            if apart:
                kernel.umount(_TMP, _DETACH)
            kernel.umount(SCRATCH, _DETACH)
            self.mount()
