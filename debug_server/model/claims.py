"""What a session has for itself while it is open."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One resource, named like a path: a claim on ``path:/a`` is one on ``path:/a/b``, too.

    Claims end with their session. Those that wait are granted in the order of their sessions.
    """

    resource: str
    waits: bool  # its commands wait until the resource is free; otherwise the session is refused while it is taken
