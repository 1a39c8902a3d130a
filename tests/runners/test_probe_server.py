"""The example probe, started as a process: it copies what changed, writes where it may, and answers in every case."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
from tests.runners.run_program import commit, files_below
from tests.running import eventually

SECONDS = 60.0


class Probe:
    """A running probe and a channel to it."""

    def __init__(self, snapshots: Path, *arguments: str, **environ: str) -> None:
        self.snapshots = snapshots
        command = [sys.executable, "-P", "-m", "runners.probe_server", "--port", "0", *arguments]
        given = {**os.environ, "SNAPSHOT_DIR": str(snapshots), "SYNC_INTERVAL": "0", **environ}
        self.process = subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.address = self.process.stdout.readline().strip().removeprefix("probe listening on ")
        self.channel = grpc.insecure_channel(self.address)
        self.stub: Any = kanban_pb2_grpc.ProbeSyncStub(self.channel)  # type: ignore[no-untyped-call]

    def sync(self, name: str, *, force: bool = False) -> Any:
        """SyncRepo."""
        return self.stub.SyncRepo(kanban_pb2.SyncRepoRequest(repo_name=name, force=force), timeout=SECONDS)

    def write(self, path: str, content: str = "x") -> Any:
        """FsWrite."""
        return self.stub.FsWrite(kanban_pb2.FsWriteRequest(target_path=path, content=content), timeout=SECONDS)

    def stop(self) -> int:
        """End it as a person would."""
        self.channel.close()
        self.process.send_signal(signal.SIGTERM)
        with contextlib.closing(self.process.stdout or sys.stdin), contextlib.closing(self.process.stderr or sys.stdin):
            return self.process.wait(SECONDS)


@pytest.fixture
def probe(repository: Path, tmp_path: Path) -> Iterator[Probe]:
    """A probe that knows one repository."""
    running = Probe(tmp_path / "snapshots", "--repo", f"kanban-pmo={repository}")
    try:
        yield running
    finally:
        assert running.stop() == 0


def test_a_sync_copies_what_changed(probe: Probe, repository: Path) -> None:
    """All files first, then changed and new ones only; deleted ones go; force copies all; git's own are left out."""
    commit(repository, {"a/b/c.txt": "deep\n", "run.sh": "#!/bin/sh\n"})
    (repository / "run.sh").chmod(0o755)
    (repository / "leads-out").symlink_to("/etc")
    eventually(lambda: probe.sync("kanban-pmo").files_synced == 0, what="nothing left to copy")
    copy = probe.snapshots / "kanban-pmo"
    assert files_below(copy) == {"README.md": b"# A repository\n", "a/b/c.txt": b"deep\n", "run.sh": b"#!/bin/sh\n"}
    assert os.access(copy / "run.sh", os.X_OK)
    assert sorted(path.name for path in copy.iterdir()) == ["README.md", "a", "run.sh"]

    (repository / "a/b/c.txt").unlink()
    (repository / "a/b").rmdir()
    (repository / "a").rmdir()
    (repository / "a").write_text("a file where a folder was\n")
    assert probe.sync("kanban-pmo").files_synced == 1
    assert files_below(copy)["a"] == b"a file where a folder was\n"
    assert probe.sync("kanban-pmo", force=True).files_synced == 3


def test_a_change_that_keeps_size_and_time_is_noticed(probe: Probe, repository: Path) -> None:
    """Setting a file's time back does not hide an edit."""
    path = repository / "README.md"
    eventually(lambda: probe.sync("kanban-pmo").files_synced == 0)
    before = path.stat()
    path.write_text("# a REPOSITORY\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert probe.sync("kanban-pmo").files_synced == 1
    assert (probe.snapshots / "kanban-pmo/README.md").read_text() == "# a REPOSITORY\n"


def test_a_damaged_snapshot_is_mended(probe: Probe, repository: Path) -> None:
    """A copy that is gone or cut short is made again; a manifest that cannot be read counts as none."""
    eventually(lambda: probe.sync("kanban-pmo").files_synced == 0)
    (probe.snapshots / "kanban-pmo/README.md").write_text("")
    assert probe.sync("kanban-pmo").files_synced == 1
    (probe.snapshots / ".manifests/kanban-pmo.json").write_text("[")
    assert probe.sync("kanban-pmo").files_synced == 1
    assert files_below(probe.snapshots / "kanban-pmo") == {"README.md": b"# A repository\n"}


@pytest.mark.parametrize("name", ["unknown", "../etc", "", "a/b", "x" * 500])
def test_a_repository_that_is_not_known_is_an_answer(probe: Probe, name: str) -> None:
    """ok is false, the reason is one line, and the next call is served."""
    answer = probe.sync(name)
    assert (answer.ok, answer.files_synced) == (False, 0)
    assert answer.error
    assert "\n" not in answer.error
    assert probe.sync("kanban-pmo").ok


def test_a_repository_that_is_gone_is_an_answer(probe: Probe, repository: Path) -> None:
    """Its snapshot stays: a folder that is not there is no reason to delete copies."""
    probe.sync("kanban-pmo")
    repository.rename(repository.parent / "moved")
    answer = probe.sync("kanban-pmo")
    assert not answer.ok
    assert "is not a folder" in answer.error
    assert files_below(probe.snapshots / "kanban-pmo") != {}


def test_a_file_is_written_below_the_snapshots_only(probe: Probe, tmp_path: Path) -> None:
    """Relative paths are written whole; those that lead out, through links or into its own files are refused."""
    written = probe.write("notes/today.md", "hello\n")
    assert (written.ok, Path(written.written_path).read_text()) == (True, "hello\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (probe.snapshots / "link").symlink_to(outside)
    for path in ("../x", "/tmp/x", "", "a/../../x", "link/x", ".manifests/kanban-pmo.json", "notes", "a\0b", "n" * 300):
        answer = probe.write(path)
        assert not answer.ok, path
        assert answer.error, path
    assert files_below(outside) == {}


def test_syncs_at_the_same_time_leave_one_right_copy(probe: Probe, repository: Path) -> None:
    """Eight calls at once, while a file changes: in the end the copy is the repository."""
    commit(repository, {f"many/{number}.txt": str(number) * 100 for number in range(100)})
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(probe.sync, "kanban-pmo", force=True) for _ in range(8)]
        (repository / "many/1.txt").write_text("changed in the middle")
        assert all(call.result().ok for call in futures.as_completed(calls))
    probe.sync("kanban-pmo")
    assert files_below(probe.snapshots / "kanban-pmo") == files_below(repository)


def test_snapshots_inside_the_repository_do_not_copy_themselves(repository: Path) -> None:
    """The default folder lies in the current one; it is left out."""
    probe = Probe(repository / ".snapshots", "--repo", f"kanban-pmo={repository}")
    try:
        assert probe.sync("kanban-pmo", force=True).files_synced == 1
        assert probe.sync("kanban-pmo", force=True).files_synced == 1
    finally:
        assert probe.stop() == 0


def test_a_probe_syncs_by_itself(repository: Path, tmp_path: Path) -> None:
    """Every SYNC_INTERVAL seconds, without being asked."""
    probe = Probe(tmp_path / "snapshots", "--repo", f"kanban-pmo={repository}", SYNC_INTERVAL="1")
    try:
        eventually((tmp_path / "snapshots/kanban-pmo/README.md").exists, what="a copy")
    finally:
        assert probe.stop() == 0


def test_a_probe_asks_the_governor(repository: Path, tmp_path: Path) -> None:
    """A repository that --repo does not name is looked up in the registry on GOVERNOR_GRPC_PORT."""
    asked = threading.Event()

    class Registry(kanban_pb2_grpc.RepoRegistryServicer):
        def GetRepo(self, request: Any, context: Any) -> Any:
            asked.set()
            return kanban_pb2.RepoEntry(name=request.name, local_path=str(repository))

    governor = grpc.server(ThreadPoolExecutor(1))
    kanban_pb2_grpc.add_RepoRegistryServicer_to_server(Registry(), governor)  # type: ignore[no-untyped-call]
    port = governor.add_insecure_port("127.0.0.1:0")
    governor.start()
    probe = Probe(tmp_path / "snapshots", GOVERNOR_GRPC_PORT=str(port))
    try:
        assert probe.sync("anything").ok
        assert asked.is_set()
        assert (tmp_path / "snapshots/anything/README.md").exists()
    finally:
        assert probe.stop() == 0
        governor.stop(None).wait()


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"PROBE_HOST": "0.0.0.0"}, "a probe listens on loopback only"),
        ({"PROBE_GRPC_PORT": "many"}, "PROBE_GRPC_PORT 'many' is not a whole number"),
        ({"SYNC_INTERVAL": "-1"}, "SYNC_INTERVAL '-1'"),
        ({"LOG_LEVEL": "loud"}, "LOG_LEVEL 'loud'"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, environ: dict[str, str], reason: str) -> None:
    """One line that names the variable, and status 1."""
    command = [sys.executable, "-P", "-m", "runners.probe_server"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_port_in_use_is_a_reason(probe: Probe, tmp_path: Path) -> None:
    """The second probe on a port says so instead of taking every other call."""
    command = [sys.executable, "-P", "-m", "runners.probe_server", "--port", probe.address.rpartition(":")[2]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "is another probe running?" in done.stderr
