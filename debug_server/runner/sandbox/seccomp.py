"""A filter of system calls: refuses those that change the machine, or that have opened the kernel to attackers.

Nothing that a compiler, an interpreter, a test or a debugger calls is on the list. A refused call fails with an error,
it does not end the program.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct

from debug_server.runner.keeper.linux import prctl

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENT_0, _ARGUMENT_1 = 0, 4, 16, 24  # offsets in what the filter reads
_NAMESPACES = 0x7E020080  # the CLONE_NEW… flags of clone and unshare
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # put characters into a terminal's input
_UNIX, _IPV4, _IPV6, _NETLINK = 1, 2, 10, 16
_X32 = 0x40000000  # system calls of 32-bit pointers on x86-64 have this bit

# Two machines; on another one there is no filter, and the report says so.
_CALLS: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            "clone": 56,
            "unshare": 272,
            "setns": 308,
            "clone3": 435,
            "ioctl": 16,
            "socket": 41,
            "socketpair": 53,
            "mount": 165,
            "umount2": 166,
            "pivot_root": 155,
            "swapon": 167,
            "swapoff": 168,
            "reboot": 169,
            "iopl": 172,
            "ioperm": 173,
            "init_module": 175,
            "delete_module": 176,
            "quotactl": 179,
            "acct": 163,
            "settimeofday": 164,
            "adjtimex": 159,
            "clock_settime": 227,
            "kexec_load": 246,
            "syslog": 103,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "perf_event_open": 298,
            "fanotify_init": 300,
            "name_to_handle_at": 303,
            "open_by_handle_at": 304,
            "clock_adjtime": 305,
            "finit_module": 313,
            "kexec_file_load": 320,
            "bpf": 321,
            "userfaultfd": 323,
            "vhangup": 153,
            "lookup_dcookie": 212,
            "uselib": 134,
            "modify_ldt": 154,
            "nfsservctl": 180,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "clone": 220,
            "unshare": 97,
            "setns": 268,
            "clone3": 435,
            "ioctl": 29,
            "socket": 198,
            "socketpair": 199,
            "mount": 40,
            "umount2": 39,
            "pivot_root": 41,
            "swapon": 224,
            "swapoff": 225,
            "reboot": 142,
            "init_module": 105,
            "delete_module": 106,
            "quotactl": 60,
            "acct": 89,
            "nfsservctl": 42,
            "settimeofday": 170,
            "adjtimex": 171,
            "clock_settime": 112,
            "kexec_load": 104,
            "syslog": 116,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "perf_event_open": 241,
            "fanotify_init": 262,
            "name_to_handle_at": 264,
            "open_by_handle_at": 265,
            "clock_adjtime": 266,
            "finit_module": 273,
            "kexec_file_load": 294,
            "bpf": 280,
            "userfaultfd": 282,
            "vhangup": 58,
            "lookup_dcookie": 18,
        },
    ),
}
_SAME_EVERYWHERE = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
_WITH_ARGUMENTS = frozenset({"clone", "unshare", "clone3", "ioctl", "socket", "socketpair"})
# A call that may or may not be there: a library falls back to an older one when it is told that there is none.
_ABSENT = frozenset({"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd"})


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def supported() -> bool:
    """Whether there is a filter for this machine's processor, and a kernel that takes it."""
    return os.uname().machine in _CALLS and os.path.exists("/proc/sys/kernel/seccomp/actions_avail")


def load(program: bytes) -> None:
    """Filter every later call of this process and its children. Needs ``forbid_new_privileges`` or root."""
    wanted = _Program(length=len(program) // 8, filter=program)
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(wanted))


@functools.cache
def program(*, internet: bool) -> bytes:
    """The filter; without ``internet`` no IPv4 or IPv6 socket can be made."""
    architecture, own = _CALLS[os.uname().machine]
    calls = own | _SAME_EVERYWHERE
    lines = _Lines()
    lines.load(_ARCHITECTURE)
    lines.unless_equal(architecture, errno.ENOSYS)
    lines.load(_NUMBER)
    if os.uname().machine == "x86_64":
        lines.refuse(_AT_LEAST, _X32, errno.ENOSYS)
    for name, number in calls.items():
        if name not in _WITH_ARGUMENTS:
            lines.refuse(_EQUAL, number, errno.ENOSYS if name in _ABSENT else errno.EPERM)
    lines.refuse(_EQUAL, calls["clone3"], errno.ENOSYS)  # its flags are in memory, which a filter cannot read
    for name in ("clone", "unshare"):
        lines.refuse_argument(calls[name], _ARGUMENT_0, [(_ANY_BIT, _NAMESPACES)], errno.EPERM)
    lines.refuse_argument(calls["ioctl"], _ARGUMENT_1, [(_EQUAL, _TIOCSTI), (_EQUAL, _TIOCLINUX)], errno.EPERM)
    families = [_UNIX, _NETLINK, *([_IPV4, _IPV6] if internet else [])]
    lines.allow_only(calls["socket"], _ARGUMENT_0, families, errno.EAFNOSUPPORT)
    lines.allow_only(calls["socketpair"], _ARGUMENT_0, families, errno.EAFNOSUPPORT)
    lines.add(_RETURN, 0, 0, _ALLOW)
    return lines.code


class _Lines:
    """A program under construction; jumps are counted in instructions."""

    def __init__(self) -> None:
        self.code = b""

    def add(self, code: int, if_true: int, if_false: int, value: int) -> None:
        self.code += struct.pack("=HBBI", code, if_true, if_false, value)

    def load(self, offset: int) -> None:
        self.add(_LOAD, 0, 0, offset)

    def fail(self, number: int) -> None:
        self.add(_RETURN, 0, 0, _ERROR | number)

    def refuse(self, test: int, value: int, number: int) -> None:
        self.add(test, 0, 1, value)
        self.fail(number)

    def unless_equal(self, value: int, number: int) -> None:
        self.add(_EQUAL, 1, 0, value)
        self.fail(number)

    def refuse_argument(self, call: int, offset: int, tests: list[tuple[int, int]], number: int) -> None:
        """Refuse a call whose argument passes one of the tests; load the call's number again after it."""
        self.add(_EQUAL, 0, 2 * len(tests) + 2, call)
        self.load(offset)
        for test, value in tests:
            self.refuse(test, value, number)
        self.load(_NUMBER)

    def allow_only(self, call: int, offset: int, values: list[int], number: int) -> None:
        """Refuse a call whose argument is none of the values."""
        self.add(_EQUAL, 0, len(values) + 3, call)
        self.load(offset)
        for index, value in enumerate(values):
            self.add(_EQUAL, len(values) - index, 0, value)
        self.fail(number)
        self.load(_NUMBER)
