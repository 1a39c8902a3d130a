"""Routes of the HTTP API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from debug_server.errors import InvalidInputError

VERSIONED = "/api/v1"  # the prefix of the routes that clients can rely on
_NAME = re.compile(r"{(\w+)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path; fields of the request that the path does not name go into the query or the body."""

    method: str
    path: str
    status: int = 200  # on success

    @classmethod
    def of(cls, line: str) -> Route:
        """From ``POST /sessions 201``; the status may be left out."""
        method, path, *status = line.split()
        return cls(method=method, path=path, status=int(status[0]) if status else 200)

    @property
    def names(self) -> list[str]:
        """The fields that the path names."""
        return _NAME.findall(self.path)

    def split(self, fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The path with its fields filled in, and the remaining fields."""
        named = set(self.names)
        if missing := [name for name in self.names if name not in fields]:
            raise InvalidInputError(f"{missing[0]}: field required, for example 1", field=missing[0])
        path = _NAME.sub(lambda match: quote(str(fields[match[1]]), safe=""), self.path)
        return path, {name: value for name, value in fields.items() if name not in named}
