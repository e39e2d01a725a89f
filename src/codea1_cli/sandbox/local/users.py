"""User namespaces and the change to an unprivileged user. Standard library only."""

from __future__ import annotations

import os

import kernel


def enter(outer_uid: int, outer_gid: int, uid: int, gid: int) -> None:
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


class Scribe:
    """A fork that stays behind as root, to say who is who in the namespace that its parent enters."""

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
