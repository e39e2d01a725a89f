"""What a jailed process may ask of the kernel: a seccomp filter of its calls, a Landlock list of its files.

The filter names what is refused, and with which error; everything else stays allowed, so that ordinary libraries work.
It takes away the kernel's rarely used and often broken corners, new namespaces, and what the missing layers of a poorer
host would have kept away. Landlock names what may be opened; no later call can widen that. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import struct

import kernel

EPERM, EACCES, ENOSYS, EROFS, EAFNOSUPPORT, ENETUNREACH = 1, 13, 38, 30, 97, 101

# name: (x86_64, aarch64); None where the architecture lacks it.
_NUMBERS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "sethostname": (170, 161), "setdomainname": (171, 162),
    "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "syslog": (103, 116),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18), "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None),
    "modify_ldt": (154, None), "uselib": (134, None), "personality": (135, 92), "move_pages": (279, 239),
    "mbind": (237, 235), "migrate_pages": (256, 238), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "landlock_create_ruleset": (444, 444), "memfd_secret": (447, 447), "clone3": (435, 435), "openat2": (437, 437),
    "clone": (56, 220), "prctl": (157, 167), "socket": (41, 198), "socketpair": (53, 199),
    "connect": (42, 203), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269), "bind": (49, 200),
    "listen": (50, 201), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434),
    "open": (2, None), "openat": (257, 56), "creat": (85, None), "truncate": (76, 45), "mkdir": (83, None),
    "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None),
    "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33), "chmod": (90, None), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "lchown": (94, None), "fchown": (93, 55),
    "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88), "setrlimit": (160, 164),
}  # fmt: skip

_ALWAYS = """
    ptrace process_vm_readv process_vm_writev kcmp mount umount2 pivot_root chroot unshare setns move_mount open_tree
    fsopen fsconfig fsmount fspick mount_setattr bpf perf_event_open userfaultfd keyctl add_key request_key
    io_uring_setup io_uring_enter io_uring_register init_module finit_module delete_module kexec_load kexec_file_load
    reboot swapon swapoff sethostname setdomainname acct quotactl quotactl_fd settimeofday clock_settime clock_adjtime
    adjtimex syslog open_by_handle_at name_to_handle_at fanotify_init lookup_dcookie vhangup iopl ioperm modify_ldt
    uselib personality move_pages mbind migrate_pages pidfd_getfd process_madvise memfd_secret
"""
_ATTRIBUTES = """
    chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat setxattr lsetxattr fsetxattr removexattr lremovexattr
    fremovexattr utime utimes futimesat utimensat
"""
_TREE = """
    creat truncate mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat mknod
    mknodat
"""
_IPC = "shmget msgget semget mq_open"
_NEW_NAMESPACES = 0x7E020080
_WRITING = 0o1103  # O_WRONLY | O_RDWR | O_CREAT | O_TRUNC

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _RETURN, _EQ, _GE, _SET = 0x20, 0x06, 0x15, 0x35, 0x45
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000


class _FilterProgram:
    """Straight-line BPF: each rule is a block that ends in a verdict or falls through to the next."""

    def __init__(self) -> None:
        self.column = 0 if kernel.MACHINE == "x86_64" else 1
        self.code: list[tuple[int, int, int, int]] = [
            (_LOAD, 0, 0, 4),
            (_EQ, 1, 0, _ARCH[kernel.MACHINE]),
            (_RETURN, 0, 0, _KILL),
            (_LOAD, 0, 0, 0),
        ]
        if self.column == 0:
            self.code += [(_GE, 0, 1, 0x40000000), (_RETURN, 0, 0, _ERROR | ENOSYS)]  # the x32 numbers

    def refuse(self, names: str, error: int) -> None:
        """Refuse all of `names`, which spaces separate, whatever their arguments."""
        numbers = [n for n in (_NUMBERS[name][self.column] for name in names.split()) if n is not None]
        self.code += self._any([(_EQ, n) for n in numbers])
        self.code.append((_RETURN, 0, 0, _ERROR | error))

    def refuse_when(self, name: str, word: int, tests: list[tuple[int, int]], error: int) -> None:
        """Refuse when any (operation, constant) test holds for a word of the arguments (0, 2, 4: low halves)."""
        self._on(name, word, [*self._any(tests), (_RETURN, 0, 0, _ERROR | error)])

    def refuse_unless(self, name: str, word: int, values: list[int], error: int) -> None:
        """Refuse when a word of the arguments is none of `values`."""
        tests = [(_EQ, len(values) - at, 0, value) for at, value in enumerate(values)]
        self._on(name, word, [*tests, (_RETURN, 0, 0, _ERROR | error)])

    @staticmethod
    def _any(tests: list[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
        last = len(tests) - 1
        return [(operation, last - at, int(at == last), k) for at, (operation, k) in enumerate(tests)]

    def _on(self, name: str, word: int, block: list[tuple[int, int, int, int]]) -> None:
        number = _NUMBERS[name][self.column]
        if number is not None:
            self.code.append((_EQ, 0, len(block) + 2, number))
            self.code += [(_LOAD, 0, 0, 16 + 4 * word), *block, (_LOAD, 0, 0, 0)]

    def bytes(self) -> bytes:
        return b"".join(struct.pack("<HBBI", *line) for line in [*self.code, (_RETURN, 0, 0, _ALLOW)])


def build_filter(missing: frozenset[str], pid: int) -> bytes:
    """The filter of process `pid`; `missing` names the layers whose work it has to take over."""
    program = _FilterProgram()
    program.refuse(_ALWAYS, EPERM)
    program.refuse("clone3 openat2", ENOSYS)  # C libraries then use the calls whose flags can be seen
    program.refuse_when("clone", 0, [(_SET, _NEW_NAMESPACES)], EPERM)
    program.refuse_when("prctl", 0, [(_EQ, kernel.PR_SET_PDEATHSIG)], EPERM)  # else a program outlives its worker
    program.refuse_unless("socket", 0, [1, 2, 10], EAFNOSUPPORT)
    if "net_namespace" in missing:
        program.refuse("connect sendmsg sendmmsg", ENETUNREACH)
        program.refuse("bind listen", EACCES)
        program.refuse_unless("sendto", 8, [0], ENETUNREACH)
        program.refuse_unless("sendto", 9, [0], ENETUNREACH)
    program.refuse(_IPC, ENOSYS)  # what lies there would outlive a program: its namespace is the worker's
    if "mount_namespace" in missing:
        program.refuse(_ATTRIBUTES, EROFS)
    if "mount_namespace" in missing and "landlock" in missing:
        program.refuse(_TREE, EROFS)
        program.refuse_when("open", 2, [(_SET, _WRITING)], EROFS)
        program.refuse_when("openat", 4, [(_SET, _WRITING)], EROFS)
    if "pid_namespace" in missing:
        program.refuse("tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal pidfd_open", EPERM)
        program.refuse_unless("kill", 0, [pid], EPERM)
        program.refuse_unless("tgkill", 0, [pid], EPERM)
    return program.bytes()


class _Fprog(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


class Filter:
    """A program laid out in memory, ready for the kernel."""

    def __init__(self, program: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(program, len(program))
        self._head = _Fprog(len(program) // 8, ctypes.addressof(self._buffer))
        self._address = ctypes.addressof(self._head)

    def install(self) -> None:
        """Puts this process and all it starts under the filter; needs no_new_privs."""
        kernel.call("seccomp", 1, 0, self._address)


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


def build_ruleset(
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


def enter_ruleset(ruleset: int) -> None:
    """Puts this process and all it starts under the ruleset; needs no_new_privs."""
    kernel.call("landlock_restrict_self", ruleset, 0)
