"""One suite through every interface, on SQLite and PostgreSQL: the same verbs, bytes and reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_server.client import DebugServerClient
from tests.acceptance.interfaces import INTERFACES, SECONDS, Interface
from tests.repositories import make_repository
from tests.servers import ServerProcess, serving
from tests.store.postgres_cluster import ClusterUnavailableError, running_cluster

PATCH = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-hello\n+patched\n"
SCRIPT = "cat a.txt; for i in 1 2 3; do echo step $i; sleep 0.05; done; echo grüße; echo left > left.txt; exit 3"
SAID = "patched\nstep 1\nstep 2\nstep 3\ngrüße\n"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server over each kind of store, with a repository."""
    root = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        with serving(root, grpc=True) as running:
            yield _prepared(running)
        return
    pytest.importorskip("psycopg")
    try:
        with running_cluster() as cluster, cluster.database() as url:
            key = str(root / "seal.key")
            variables = {"DEBUG_SERVER_DB_URL": url, "DEBUG_SERVER_SEAL_KEY_FILE": key}
            with serving(root, variables=variables, grpc=True) as running:
                yield _prepared(running)
    except ClusterUnavailableError as error:
        pytest.skip(str(error))


def _prepared(server: ServerProcess) -> ServerProcess:
    path = make_repository(server.root / "project")
    with DebugServerClient(base_url=server.base_url, token=server.token) as client:
        client.register_repository("project", str(path))
    return server


@pytest.mark.parametrize("name", INTERFACES)
def test_open_run_follow_cancel_artifacts_diff_close(server: ServerProcess, name: str, tmp_path: Path) -> None:
    """Through each interface: open with a patch, run, follow, cancel, artifacts, diff and close have their effects."""

    async def work() -> None:
        async with asyncio.timeout(SECONDS), INTERFACES[name](server, tmp_path) as verbs:
            await _suite(verbs)

    asyncio.run(work())


async def _suite(interface: Interface) -> None:
    session = await interface.open(PATCH)
    command = await interface.run(session, SCRIPT, "left*")
    assert await interface.follow(command) == SAID
    assert await interface.end(command) == ("failed", "nonzero_exit", 3)
    assert await interface.artifact(session, "left.txt") == b"left\n"
    diff = await interface.diff(session)
    assert "+patched" in diff
    assert "+left" in diff
    endless = await interface.run(session, "echo up; sleep 600", "none*")
    assert await interface.cancel(endless) == "cancelled"
    assert (await interface.end(endless))[:2] == ("cancelled", "cancelled")
    assert await interface.close(session) == "completed"
