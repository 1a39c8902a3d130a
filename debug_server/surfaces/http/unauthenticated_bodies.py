"""Limits on bodies that must be read before their sender is authenticated."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from starlette.requests import Request

from debug_server.errors import PayloadTooLargeError, UnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class UnauthenticatedBodies:
    """Limits unauthenticated bodies: ``max_bodies`` at a time, of ``max_bytes`` each, read within ``timeout`` seconds.

    Bodies that arrive within milliseconds never meet the limits. At the limit the oldest body is dropped: its sender is
    the slowest.
    """

    max_bodies: int = 8
    max_bytes: int = 4 << 20  # a push of a thousand commits is smaller
    timeout: float = 10.0  # hosting services wait no longer for the response
    _reading: dict[asyncio.Timeout, None] = field(default_factory=dict)

    async def read(self, request: Request) -> bytes:
        """The whole body; PayloadTooLargeError if it is too long, UnavailableError if it arrives too slowly."""
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared) > self.max_bytes:
            raise self._too_large()
        if len(self._reading) >= self.max_bodies:
            oldest = next(iter(self._reading))
            self._reading.pop(oldest)
            oldest.reschedule(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(self.timeout) as limit:
                self._reading[limit] = None
                try:
                    return await self._collect(request)
                finally:
                    self._reading.pop(limit, None)
        except TimeoutError:
            raise UnavailableError("the body arrived too slowly: send it again", retry_after=1.0) from None

    async def _collect(self, request: Request) -> bytes:
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > self.max_bytes:
                raise self._too_large()
        return bytes(data)

    def _too_large(self) -> PayloadTooLargeError:
        return PayloadTooLargeError(f"the body of a hook has more than {self.max_bytes} bytes")
