"""Checks whether the server works: store, disk, keepers, engine and parts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence

from debug_server import messages as m
from debug_server.errors import DebugServerError
from debug_server.ports import Part
from debug_server.service.caller import ANONYMOUS, Caller
from debug_server.service.verbs import Shared, Verbs

_MIN_FREE_BYTES = 64 << 20
_CHECK_SECONDS = 5.0


class HealthVerbs(Verbs):
    """Health."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self.parts: Sequence[Part] = ()  # set by the server; the service is ready only if they are

    async def check(self, caller: Caller | None, request: m.EmptyRequest) -> m.Health:
        """Check store, disk, keepers and parts; reasons are hidden from ANONYMOUS, but not from None (internal)."""
        checks = await self._run_checks()
        checks |= {part.name: part.readiness()[0] for part in self.parts}
        ok = all(result == "ok" for result in checks.values())
        if caller == ANONYMOUS:
            checks = {name: "ok" if result == "ok" else "failed" for name, result in checks.items()}
        return m.Health(ok=ok, message="ready" if ok else "not ready", checks=checks)

    async def _run_checks(self) -> dict[str, str]:
        """The results by name; all checks run at once, and one that hangs has failed."""
        checks = {
            "store": self._check_store,
            "disk": self._check_disk,
            "keepers": self._check_keepers,
            "engine": self._engine.check,
        }
        found = await asyncio.gather(*map(self._result, checks.values()))
        return dict(zip(checks, found, strict=True))

    async def _result(self, check: Callable[[], str]) -> str:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                return await self._call(check)
        except TimeoutError:
            return f"no answer within {_CHECK_SECONDS:g} s"
        except DebugServerError as error:
            return str(error)

    def _check_store(self) -> str:
        try:
            self._store.events.last()
        except DebugServerError as error:
            return str(error)
        return "ok"

    def _check_disk(self) -> str:
        root = self._shared.paths.artifacts_root
        root.mkdir(parents=True, exist_ok=True)
        space = os.statvfs(root)
        free = space.f_bavail * space.f_frsize
        return "ok" if free >= _MIN_FREE_BYTES else f"only {free} bytes are free in {root}"

    def _check_keepers(self) -> str:
        try:
            return "ok" if self._engine.capabilities.mechanism else "no containment works on this machine"
        except DebugServerError as error:
            return str(error)
