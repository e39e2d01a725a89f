"""User namespaces, the change to an unprivileged user, the loopback interface; trials in a fork.

Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

import kernel

_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1


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
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
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
