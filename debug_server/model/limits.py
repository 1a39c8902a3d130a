"""What a command may use: the request, validated once."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any

from debug_server.errors import InvalidInputError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)

# Below this the kernel cannot even map a program: the OOM killer would strike before its first instruction.
MIN_MEMORY_BYTES = 4 << 20
MIN_CPUS = 0.01  # a quota of one millisecond in each period
# What the kernel takes without wrapping around or refusing.
_MOST = {"cpus": 4096.0, "pids": 1 << 22, "open_files": 1 << 20}
_MOST_OTHERS = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one command's whole process tree; None means unbounded."""

    memory_bytes: int | None = None
    cpus: float | None = None  # cpu quota, in cores
    cpu_seconds: float | None = None  # of the whole tree
    pids: int | None = None
    open_files: int | None = None  # per process
    file_size_bytes: int | None = None  # per file
    output_bytes: int | None = None  # stdout and stderr together
    wall_seconds: float | None = None
    idle_seconds: float | None = None  # without output

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item.name, getattr(self, item.name))

    def asked(self) -> dict[str, int | float]:
        """Only what was asked for."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Limits:
        """From a mapping with the field names above; an unknown name is an error."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise InvalidInputError(f"unknown limit {unknown[0]!r}: use one of {', '.join(sorted(known))}")
        return cls(**data)


def _check(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise InvalidInputError(f"limit {name}={value!r} must be a number above zero; leave it out for no limit")
    whole = name.endswith("_bytes") or name in ("pids", "open_files")
    if whole and not isinstance(value, int):
        raise InvalidInputError(f"limit {name}={value!r} must be a whole number")
    if value > _MOST.get(name, _MOST_OTHERS):
        raise InvalidInputError(f"limit {name}={value!r} is more than any machine has: leave it out for no limit")
    if name == "cpus" and value < MIN_CPUS:
        raise InvalidInputError(f"limit cpus={value!r} is less than the kernel can hold: use at least {MIN_CPUS}")
    if name == "memory_bytes" and value < MIN_MEMORY_BYTES:
        raise InvalidInputError(f"limit memory_bytes={value} is too small to start any program: use at least 4M")


def parse_size(text: str) -> int:
    """Bytes from ``64M``, ``1.5G``, ``4096``; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(f"size {text!r} is not a number of bytes such as 4096, 64M or 1.5G")
    return int(float(match[1]) * _UNITS[match[2].upper()])
