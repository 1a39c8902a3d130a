"""The table of limits, and ``Limits``: the limits that one command requests."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from debug_server.errors import InvalidInputError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)

MIN_MEMORY_BYTES = 4 << 20
MAX_LIMIT_VALUE = 1 << 50  # default maximum: more than any machine has, and small enough to avoid overflow


class Unit(Enum):
    """What a limit's number counts."""

    BYTES = "bytes"  # whole; people may write 64M
    COUNT = "count"  # whole
    CORES = "cores"
    SECONDS = "seconds"

    @property
    def is_whole(self) -> bool:
        """Whether fractions are refused."""
        return self in (Unit.BYTES, Unit.COUNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One row of the table."""

    name: str  # in requests, in plans and in exit records
    option: str  # on a command line, without its dashes; what --require names
    unit: Unit
    description: str
    example: str
    minimum: float | None  # None: anything above zero
    too_small: str  # what is wrong with a value below ``minimum``
    maximum: float  # the largest value that the kernel accepts without overflow

    @property
    def setting(self) -> str:
        """The key in ``[limits]``."""
        return self.option.replace("-", "_")

    @property
    def phrase(self) -> str:
        """The description as the rest of a line."""
        text = self.description.removesuffix(".")
        return text if text[1].isupper() else text[0].lower() + text[1:]

    def check(self, value: object) -> None:
        """InvalidInputError for an invalid value."""
        if fault := self.why_invalid(value):
            raise InvalidInputError(f"limit {self.name}={value!r} {fault}")

    def why_invalid(self, value: object) -> str | None:
        """Why a value is invalid, as a phrase that follows the value; None if it is valid."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return "must be a number; leave it out for no limit"
        if self.unit.is_whole and not isinstance(value, int):
            return "must be a whole number"
        if value < 0 or (value == 0 and self.minimum != 0):
            return f"must be {'0 or more' if self.minimum == 0 else 'above zero'}; leave it out for no limit"
        if value > self.maximum:
            return (
                f"is more than can be enforced: use at most {self.text_of(self.maximum)}, or leave it out for no limit"
            )
        if self.minimum is not None and value < self.minimum:
            return f"{self.too_small}: use at least {self.text_of(self.minimum)}"
        return None

    def text_of(self, value: float) -> str:
        """A value as people write it."""
        if self.unit is Unit.BYTES:
            return size_text(int(value))
        return str(int(value)) if value == int(value) else str(value)


def _limit(
    option: str,
    unit: Unit,
    description: str,
    *,
    example: str,
    minimum: float | None = None,
    too_small: str = "",
    maximum: float = MAX_LIMIT_VALUE,
) -> Any:
    row = {
        "option": option,
        "unit": unit,
        "description": description,
        "example": example,
        "minimum": minimum,
        "too_small": too_small,
        "maximum": maximum,
    }
    return field(default=None, metadata={"limit": row})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one command's whole process tree; None means unbounded.

    The fields are the table that settings, messages, command lines and ``make protos`` follow. A new one goes last:
    their order numbers the fields of the proto.
    """

    memory_bytes: int | None = _limit(
        "memory",
        Unit.BYTES,
        "Memory of the process tree.",
        example="2G",
        # Below this the kernel cannot even map a program: the OOM killer would strike before its first instruction.
        minimum=MIN_MEMORY_BYTES,
        too_small="is too small to start any program",
    )
    cpus: float | None = _limit(
        "cpus",
        Unit.CORES,
        "CPU quota, in cores.",
        example="2.0",
        minimum=0.01,  # a quota of one millisecond in each period
        too_small="is less than the smallest quota of the kernel",
        maximum=4096,
    )
    cpu_seconds: float | None = _limit("cpu-seconds", Unit.SECONDS, "CPU time of the whole tree.", example="3600.0")
    pids: int | None = _limit("pids", Unit.COUNT, "Processes and threads at one time.", example="512", maximum=1 << 22)
    open_files: int | None = _limit(
        "open-files", Unit.COUNT, "Open files of each process.", example="1024", maximum=1 << 20
    )
    file_size_bytes: int | None = _limit("file-size", Unit.BYTES, "Size of each written file.", example="1G")
    output_bytes: int | None = _limit("output", Unit.BYTES, "Bytes of stdout and stderr together.", example="1G")
    wall_seconds: float | None = _limit("timeout", Unit.SECONDS, "Wall-clock seconds.", example="3600.0")
    idle_seconds: float | None = _limit("idle-timeout", Unit.SECONDS, "Seconds without output.", example="600.0")

    def __post_init__(self) -> None:
        for name, value in self.requested().items():
            LIMITS[name].check(value)

    def requested(self) -> dict[str, int | float]:
        """The limits that are set, by name."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Limits:
        """From a mapping with the field names above; an unknown name is an error."""
        if unknown := sorted(set(data) - set(LIMITS)):
            raise InvalidInputError(f"unknown limit {unknown[0]!r}: use one of {', '.join(sorted(LIMITS))}")
        return cls(**data)


LIMITS = {item.name: Limit(name=item.name, **item.metadata["limit"]) for item in fields(Limits)}


def parse_size(text: str) -> int:
    """Bytes from ``64M``, ``1.5G``, ``4096``; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(f"size {text!r} is not a number of bytes such as 4096, 64M or 1.5G")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def size_text(count: int) -> str:
    """A number of bytes as ``parse_size`` reads it, in the largest unit that is exact."""
    unit = next((name for name, value in reversed(_UNITS.items()) if count and count % value == 0), "")
    return f"{count // _UNITS[unit]}{unit}"
