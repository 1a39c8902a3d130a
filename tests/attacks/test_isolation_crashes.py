"""Nothing of an isolated command is left, and it has one end, whoever of its keepers is killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from debug_server.disk import list_mounts
from debug_server.runner.keeper.linux import stat_fields
from tests.attacks.requests import open_session, wait_ended
from tests.repositories import make_repository
from tests.running import carrying, eventually, new_mark
from tests.servers import ServerProcess, serving

_LINE = 'echo x > "$HOME/file"; mkdir "$TMPDIR/folder"; (setsid sleep 1000 &); echo ready; sleep 1000; :'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With a repository."""
    root = tmp_path_factory.mktemp("crashes") / "server"
    make_repository(root / "project")
    with serving(root) as found:
        with _client(found) as client:
            asked = {"name": "project", "remote_url": str(root / "project")}
            client.post("/repository/init", json=asked).raise_for_status()
        yield found


def _client(server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=server.base_url, headers={"Authorization": f"Bearer {server.token}"}, timeout=100)


def _above(pid: int, name: str) -> int | None:
    """The nearest process above that has this name."""
    while pid > 1:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return pid
        fields = stat_fields(pid)
        pid = int(fields[1]) if fields else 0
    return None


def _workspaces(server: ServerProcess) -> list[object]:
    return list(list_mounts(server.root / ".artifacts/worktrees"))


@pytest.mark.parametrize(
    ("level", "victim"),
    [
        *(("process", victim) for victim in ("server", "ds-forkserver", "ds-keeper")),
        *(("namespace", victim) for victim in ("server", "ds-forkserver", "ds-keeper", "ds-init")),
    ],
)
def test_nothing_is_left_of_an_isolated_command(server: ServerProcess, level: str, victim: str) -> None:
    """After kill -9: one end, no process, no mount, and no folder of the session when it is closed."""
    mark = new_mark("crash")
    with _client(server) as client:
        session = open_session(client)
        asked = {"argv": ["sh", "-c", f"{_LINE} {mark}"], "isolation": level}
        command = client.post(f"/sessions/{session}/commands", json=asked).json()["id"]
        eventually(lambda: "ready" in client.get(f"/commands/{command}/log").text, what="a running command")
        found = server.pid if victim == "server" else _above(min(carrying(mark)), victim)
        assert found is not None
        if victim == "server":
            server.kill()
            server.start()
        else:
            os.kill(found, signal.SIGKILL)
        client.post(f"/commands/{command}/cancel")
        ended = wait_ended(client, command, 100)
        assert ended["status"] in ("cancelled", "failed")
        eventually(lambda: not carrying(mark), what="the end of its processes")
        eventually(lambda: client.delete(f"/sessions/{session}").status_code in (200, 409), what="a closed session")
        folders = server.root / ".artifacts/private" / str(session)
        eventually(lambda: not folders.exists(), what="the removal of its folders")
        eventually(lambda: not _workspaces(server), what="the removal of its mounts")
        again = client.get(f"/commands/{command}").json()
        assert (again["status"], again["finished_at"]) == (ended["status"], ended["finished_at"])
