"""Landlock: rules on files, signals and sockets that bind a process and its children, without any privilege."""

from __future__ import annotations

import ctypes
import os
import stat

_libc = ctypes.CDLL(None, use_errno=True)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_FIRST_VERSION = (1 << 13) - 1  # all rights of version 1
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2

SCOPES_SINCE = 6  # the version that keeps signals, and sockets without a file, to the processes inside


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """The version that the kernel has; 0 if it has none, or it is switched off."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def restrict(supported: int, view: list[list[str]] | None) -> None:
    """Bind this process: no signals, sockets or traces to processes outside.

    With a ``view`` (see ``root.py``) only the places of its kinds ``read`` and ``write`` can be used, where they are
    outside. Needs ``forbid_new_privileges`` or root.
    """
    rights = 0 if view is None else _rights(supported)
    scoped = _ABSTRACT_SOCKETS | _SIGNALS if supported >= SCOPES_SINCE else 0
    if not rights and not scoped:
        return
    attributes = _Ruleset(files=rights, scoped=scoped)
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), 24 if supported >= SCOPES_SINCE else 8, 0)
    try:
        for kind, _, path in view or ():
            if kind in ("read", "write"):
                _allow(ruleset, path, rights if kind == "write" else rights & _READ)
        _call(_RESTRICT_SELF, ruleset, 0, 0)
    finally:
        os.close(ruleset)


def _rights(supported: int) -> int:
    rights = _FIRST_VERSION
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)):
        rights |= right if supported >= since else 0
    return rights


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return  # what is not there, or not ours to see, need not be allowed
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _ON_FILES
        rule = _PathRule(allowed=rights, parent=place)
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"landlock: {os.strerror(ctypes.get_errno())}")
    return result
