"""Resources that an open session holds exclusively."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One resource. Names are hierarchical: a claim on ``path:/a`` includes ``path:/a/b``.

    Claims end with their session. Waiting claims are granted in the order of their sessions.
    """

    resource: str
    waits: bool  # True: commands wait until the resource is free; False: the session is refused if it is not free
