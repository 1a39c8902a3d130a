"""A server of the module's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_server.client import DebugServerClient
from tests.repositories import make_repository
from tests.servers import ServerProcess, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A running server."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def repository(server: ServerProcess) -> Path:
    """A repository that the server knows as ``project``."""
    path = make_repository(server.root / "project")
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        client.register_repository("project", str(path))
    return path


@pytest.fixture
def client(server: ServerProcess, repository: Path) -> Iterator[DebugServerClient]:
    """The admin's client."""
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        yield client
