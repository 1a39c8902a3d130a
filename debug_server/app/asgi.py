"""The application for other ASGI servers; ``debug-server serve`` is the built-in one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache

from debug_server.app.local import Local
from debug_server.app.parts import NAMES, build_parts
from debug_server.app.server import http_app, running
from debug_server.surfaces.http import HttpApp


def create_app(context: Local | None = None) -> HttpApp:
    """Create the application of ``context``, or of this directory's settings; its engine runs during its lifespan."""
    local = context if context is not None else Local.open()

    @asynccontextmanager
    async def lifespan(served: HttpApp) -> AsyncGenerator[None, None]:
        await asyncio.to_thread(local.engine.start)
        try:
            async with running(served):
                yield
        finally:
            local.service.drain()
            for part in served.parts:
                part.drain()
            served.streams.end_all()
            await asyncio.to_thread(local.engine.stop)
            if context is None:
                local.close()

    return http_app(local, lifespan=lifespan, parts=build_parts(local, NAMES))


@cache
def default_app() -> HttpApp:
    """The application of this directory, created on first use: an import must not open a database."""
    return create_app()
