"""Resources that an open session holds exclusively."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One resource, named like a path: a claim on ``path:/a`` includes ``path:/a/b``.

    Claims end with their session. Waiting claims are granted in the order of their sessions.
    """

    resource: str
    waits: bool  # its commands wait until the resource is free; otherwise the session is refused while it is taken
