"""Takes away capabilities, and the right to gain privileges by executing a program."""

from __future__ import annotations

import ctypes
import errno

from debug_server.runner.keeper.linux import prctl

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_SET_DUMPABLE = 24, 38, 47, 4
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_VERSION_3 = 0x20080522
_MOST = 64  # capabilities that two words of the kernel's interface can hold

_libc = ctypes.CDLL(None, use_errno=True)
_libc.capset  # noqa: B018 - loaded once, in the fork server


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


def drop_all() -> None:
    """Give up every capability; with ``forbid_new_privileges``, for ever."""
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    if _libc.capset(ctypes.byref(_Header(version=_VERSION_3)), ctypes.byref((_Sets * 2)())) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def drop_what_root_gains() -> None:
    """Take away what a program that root executes would gain."""
    for number in range(_MOST):
        try:
            prctl(_PR_CAPBSET_DROP, number)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EPERM):  # beyond the last one; or none to drop, and no right to
                return
            raise


def forbid_new_privileges() -> None:
    """From now on a setuid program runs without its owner's rights."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def hide_from_others() -> None:
    """Let no process of the same user read this one's memory and open files."""
    prctl(_PR_SET_DUMPABLE, 0)
