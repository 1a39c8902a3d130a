"""A full disk under an open session: what goes on, and what is refused until there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from debug_server.errors import DiskFullError
from debug_server.runner.settings import RunnerPaths
from debug_server.service.free_space import require_free_space
from debug_server.store.disk_reserve import Reserve
from tests.running import eventually
from tests.small_disk import disk_of_few_files, fill_up, free_bytes, free_files, small_disk, use_up_files
from tests.surfaces.http.serving import SECONDS, Process, Served, answered, refused
from tests.worktrees.places import small_remote

FILL = "cat /dev/zero > ballast 2> /dev/null; exit 7"
FILL_AND_WAIT = "cat /dev/zero > ballast 2> /dev/null; while :; do sleep 0.1; done"
ON_GRPC_TOO = '{"grpc_port": 0}'


@pytest.fixture
def disk(tmp_path: Path, nothing_left: None) -> Iterator[Path]:
    """A file system of 48 MiB."""
    with small_disk(tmp_path / "disk", mebibytes=48) as place:
        yield place


@pytest.mark.parametrize("reserve", [True, False])
def test_an_open_session_whose_command_filled_the_disk(disk: Path, *, reserve: bool) -> None:
    """Its owner reads and closes it, which frees the space; new work gets 507 and leaves no row behind, however often
    it is asked for. Also without a reserve, which a disk that was nearly full before does not have."""
    served = Served(disk)
    try:
        session = served.session()
        command = served.run(session, "sh", "-c", FILL)
        if not reserve:
            (disk / "data/metadata.db-reserve").unlink(missing_ok=True)
        rest = fill_up(disk)
        body = {"repository": "repo", "commit_sha": served.remote.commits[-1]}
        for _ in range(3):
            submitted = served.admin.post(f"/sessions/{session}/commands", json={"argv": ["true"]})
            error = refused(submitted, 507, "disk_full")
            assert error["retryable"] and "free" in error["message"]
            refused(served.admin.post("/sessions", json=body), 507, "disk_full")
            refused(served.admin.post("/runs", json={**body, "argv": ["true"]}), 507, "disk_full")
            refused(served.admin.post(f"/sessions/{session}/fork", json={"count": 1}), 507, "disk_full")
        assert len(answered(served.admin.get("/sessions"), 200)["items"]) == 1
        assert len(answered(served.admin.get(f"/sessions/{session}/commands"), 200)["items"]) == 1
        answered(served.admin.get("/whoami"), 200)
        assert served.admin.get(f"/commands/{command}/log").status_code == 200
        answered(served.admin.delete(f"/sessions/{session}"), 200)
        rest.unlink()
        eventually(lambda: free_bytes(disk) > 16 << 20, what="the session's files to be removed")
        again = served.session()
        done = answered(served.admin.get(f"/commands/{served.run(again, 'true')}"), 200)
        assert done["exit_code"] == 0
    finally:
        served.close()


@pytest.mark.parametrize("reserve", [True, False])
def test_a_server_killed_on_a_full_disk_starts_again(disk: Path, tmp_path: Path, *, reserve: bool) -> None:
    """With no byte free and the command that took them still running, the first start serves; once there is room the
    command's end is recorded, its session can be closed, which frees the rest, and new work is taken."""
    remote = small_remote(tmp_path / "remote")
    server = Process(disk, options=ON_GRPC_TOO).started()
    try:
        token = server.said[0].split()[-1]
        with _client(server, token) as admin:
            admin.post("/repository/init", json={"name": "repo", "remote_url": str(remote.path)}).raise_for_status()
            body = {"repository": "repo", "commit_sha": remote.commits[-1]}
            session = answered(admin.post("/sessions", json=body), 201)["id"]
            go = tmp_path / "go"
            wait = f"while [ ! -e {go} ]; do sleep 0.02; done"
            argv = ["sh", "-c", f"trap 'exit 5' TERM; {wait}; {FILL_AND_WAIT}"]
            command = answered(admin.post(f"/sessions/{session}/commands", json={"argv": argv}), 201)["id"]
            eventually(lambda: admin.get(f"/commands/{command}").json()["status"] == "running", what="a recorded start")
            go.touch()  # not earlier: on a full disk the record of the start would take the reserve
            eventually(lambda: free_bytes(disk) < 1 << 20, what="a full disk")
        reserved = disk / "data/metadata.db-reserve"
        if not reserve:
            reserved.unlink(missing_ok=True)
        rest = fill_up(disk)
        server.kill()
        fill_up(disk)
        assert free_bytes(disk) == 0
        has_reserve = reserved.exists()  # a stalled server may have needed it just before its end
        server = Process(disk, options=ON_GRPC_TOO).started()
        with _client(server, token) as admin:
            answered(admin.get("/whoami"), 200)
            if not has_reserve:
                rest.unlink()
            eventually(
                lambda: admin.delete(f"/sessions/{session}").status_code == 200,
                what="the session to be closed, for which the cancelled command must have ended",
            )
            rest.unlink(missing_ok=True)
            eventually(lambda: free_bytes(disk) > 16 << 20, what="the session's files to be removed")
            assert answered(admin.get(f"/commands/{command}"), 200)["status"] == "cancelled"
            again = answered(admin.post("/sessions", json=body), 201)["id"]
            answered(admin.delete(f"/sessions/{again}"), 200)
        assert (disk / "data/metadata.db-reserve").exists()
        server.terminate()
        assert server.output()[0] == 0
    finally:
        server.close()


USE_UP_FILES = "i=0; while true > file-$i; do i=$((i+1)); done 2> /dev/null; exit 7"


@pytest.fixture
def few_files(tmp_path: Path, nothing_left: None) -> Iterator[Path]:
    """A file system of 3,000 inodes."""
    with disk_of_few_files(tmp_path / "disk", files=3000) as place:
        yield place


@pytest.mark.parametrize("crash", [True, False])
def test_a_session_that_holds_every_inode(few_files: Path, tmp_path: Path, *, crash: bool) -> None:
    """New work gets 507 and leaves no row, readiness says why; the next server starts although no file can be created,
    and closing the session frees them."""
    remote = small_remote(tmp_path / "remote")
    server = Process(few_files, options=ON_GRPC_TOO).started()
    try:
        token = server.said[0].split()[-1]
        with _client(server, token) as admin:
            admin.post("/repository/init", json={"name": "repo", "remote_url": str(remote.path)}).raise_for_status()
            body = {"repository": "repo", "commit_sha": remote.commits[-1]}
            session = answered(admin.post("/sessions", json=body), 201)["id"]
            argv = ["sh", "-c", USE_UP_FILES]
            command = answered(admin.post(f"/sessions/{session}/commands", json={"argv": argv}), 201)["id"]
            ended = answered(admin.get(f"/commands/{command}/wait", params={"timeout": SECONDS}), 200)
            assert (ended["status"], ended["exit_code"]) == ("failed", 7)
            use_up_files(few_files)
            for path, more in (("/sessions", body), (f"/sessions/{session}/commands", {"argv": ["true"]})):
                error = refused(admin.post(path, json=more), 507, "disk_full")
                assert error["retryable"] and "inodes free" in error["message"]
            assert "inodes are free" in admin.get("/readyz").json()["checks"]["disk"]
            assert len(answered(admin.get(f"/sessions/{session}/commands"), 200)["items"]) == 1
        if crash:
            server.kill()
        else:
            server.terminate()
            server.output()
        use_up_files(few_files)
        assert free_files(few_files) == 0
        server = Process(few_files, options=ON_GRPC_TOO).started()
        with _client(server, token) as admin:
            answered(admin.delete(f"/sessions/{session}"), 200)
            for file in few_files.glob("[0-9]*"):
                file.unlink()
            eventually(lambda: free_files(few_files) > 1000, what="the session's files to be removed")
            again = answered(admin.post("/sessions", json=body), 201)["id"]
            answered(admin.delete(f"/sessions/{again}"), 200)
        assert (few_files / "data/metadata.db-reserve-files").exists()
        server.terminate()
        assert server.output()[0] == 0
    finally:
        server.close()


def _client(server: Process, token: str) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS + 30)


def test_room_is_judged_by_the_size_of_the_disk(disk: Path) -> None:
    """A small disk that is half empty has room; a full one has none, also when the store has released its reserve."""
    require_free_space(RunnerPaths.from_root(disk))
    require_free_space(RunnerPaths.from_root(disk / "missing"))
    reserve = Reserve(disk / "metadata.db")
    reserve.create()
    fill_up(disk)
    with pytest.raises(DiskFullError, match=f"0 bytes free.*remove logs of ended commands in {disk}/logs"):
        require_free_space(RunnerPaths.from_root(disk))
    reserve.release()
    assert free_bytes(disk)
    with pytest.raises(DiskFullError):
        require_free_space(RunnerPaths.from_root(disk))
