"""A way to run a coroutine against a served project."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from debug_server.app import Local
from debug_server.surfaces.grpc import ConnectionLimits
from tests.repositories import make_repository
from tests.surfaces.grpc.serving import Served, serving

Scene = Callable[[Served], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path, nothing_left: None) -> Iterator[Play]:
    """Runs a coroutine function with a server of its own."""
    repository = make_repository(tmp_path / "project", {"file.txt": "one\n"})
    config = tmp_path / "runner.toml"
    config.write_text(f'[paths]\nartifacts = "{tmp_path}/artifacts"\n[runner]\nkill_grace = 0.2\n')
    with Local.open(config=config, environ={}, database_url=f"sqlite:///{tmp_path}/metadata.db") as local:

        async def served(scene: Scene, limits: ConnectionLimits | None) -> None:
            async with serving(local, repository, limits) as stage:
                await scene(stage)

        yield lambda scene, limits=None: asyncio.run(served(scene, limits))
