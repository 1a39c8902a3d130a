"""The example probe: serves ``ProbeSync`` and keeps snapshots of repositories.

python -m runners.probe_server --repo persist-memory-probe=PATH
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
from runners.kit.errors import JobError
from runners.kit.text import single_line
from runners.kit.tree import Tree, path_parts
from runners.probe.repositories import Repositories
from runners.probe.settings import ProbeSettings, probe_settings
from runners.probe.snapshot import MANIFESTS, sync

log = logging.getLogger("probe")
GRACE = 5.0
LARGEST_MESSAGE = 32 << 20


class Probe(kanban_pb2_grpc.ProbeSyncServicer):
    """The two calls; errors are in the response, never a failed call."""

    def __init__(self, snapshots: Path, repositories: Repositories) -> None:
        self._snapshots = snapshots
        self._repositories = repositories

    def SyncRepo(
        self, request: kanban_pb2.SyncRepoRequest, context: grpc.ServicerContext
    ) -> kanban_pb2.SyncRepoResponse:
        """Bring a repository's snapshot up to date."""
        try:
            count = self.sync(request.repo_name, force=request.force)
        except (JobError, OSError) as error:
            return kanban_pb2.SyncRepoResponse(ok=False, error=_reason(error))
        return kanban_pb2.SyncRepoResponse(ok=True, files_synced=count)

    def FsWrite(self, request: kanban_pb2.FsWriteRequest, context: grpc.ServicerContext) -> kanban_pb2.WriteResponse:
        """Write one file below the snapshot folder."""
        try:
            self.write(request.target_path, request.content)
        except (JobError, OSError) as error:
            return kanban_pb2.WriteResponse(ok=False, error=_reason(error))
        return kanban_pb2.WriteResponse(ok=True, written_path=str(self._snapshots / request.target_path))

    def write(self, path: str, content: str) -> None:
        """Replace one file; JobError for the probe's own files."""
        if path_parts(path)[0] == MANIFESTS:
            raise JobError(f"{MANIFESTS} is reserved for the probe")
        with Tree(self._snapshots) as tree:
            tree.write(path, content.encode())

    def sync(self, repository: str, *, force: bool = False) -> int:
        """Copy the changed files; returns their number."""
        done = sync(self._snapshots, repository, self._repositories.find(repository), force=force)
        log.info("synced %s: %d files, %d copied, %d removed", repository, done.files, done.copied, done.removed)
        return done.copied

    def sync_all(self) -> None:
        """Sync every known repository; one that fails does not stop the others."""
        for repository in self._repositories.names():
            try:
                self.sync(repository)
            except (JobError, OSError) as error:
                log.warning("%s not synced: %s", repository, _reason(error))


def serve(settings: ProbeSettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    settings.snapshots.mkdir(parents=True, exist_ok=True)
    known = Repositories(settings.repositories, settings.governor_port, settings.token)
    probe = Probe(settings.snapshots.resolve(), known)
    # Without SO_REUSEPORT a second probe on the same port is an error.
    options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", LARGEST_MESSAGE)]
    server = grpc.server(ThreadPoolExecutor(4), options=options)
    kanban_pb2_grpc.add_ProbeSyncServicer_to_server(probe, server)  # type: ignore[no-untyped-call]
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    names = [kanban_pb2.DESCRIPTOR.services_by_name["ProbeSync"].full_name, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
    port = _listen(server, settings)
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server.start()
    sys.stdout.write(f"probe listening on {settings.host}:{port}\n")
    sys.stdout.flush()
    while not stopping.wait(settings.interval or None):
        probe.sync_all()
    server.stop(GRACE).wait(GRACE)


def _listen(server: grpc.Server, settings: ProbeSettings) -> int:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        return int(server.add_insecure_port(f"{host}:{settings.port}"))
    except RuntimeError as error:
        raise JobError(f"cannot listen on {host}:{settings.port}: is another probe running?") from error


def _reason(error: JobError | OSError) -> str:
    if isinstance(error, OSError):
        return single_line(f"{error.filename or 'the snapshot'}: {error.strerror}", 500)
    return single_line(str(error), 500)


def main() -> int:
    """The command line."""
    try:
        settings = probe_settings()
        logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(message)s")
        serve(settings)
    except (JobError, OSError) as error:
        sys.stderr.write(f"probe: {_reason(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
