"""A supervisor with a store and a workspace in a temporary folder: what every benchmark of commands starts from."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debug_server.engine import SessionWorkspace
from debug_server.model import Limits, Session
from debug_server.model.isolation import Level
from debug_server.runner.log_listener import ChunkCallback
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.runner.spec import CommandResult, CommandSpec
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore, open_store

_START_SECONDS = 60.0

# Bounds that no benchmark reaches: they are there to be in force.
LIMITS = Limits(memory_bytes=1 << 30, pids=1024, cpus=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSetup:
    """Runs commands as a user of the supervisor does."""

    folder: Path
    store: MetadataStore
    supervisor: WorkerSupervisor
    session_id: int

    def run(self, spec: CommandSpec, observers: Sequence[ChunkCallback] = ()) -> CommandResult:
        """Start to exit; the output goes to the log."""
        lease = SessionWorkspace(path=self.folder / "workspace")
        return self.supervisor.run_command(self.session_id, spec, lease, stream_observers=observers)

    def argv(self, *argv: str, limits: Limits | None = None, isolation: Level = "none") -> Callable[[], CommandResult]:
        """A call that runs ``argv``."""
        spec = CommandSpec(argv, limits=limits or Limits(), isolation=isolation)
        return lambda: self.run(spec)

    @contextmanager
    def running(
        self, spec: CommandSpec, count: int = 1
    ) -> Iterator[tuple[dict[int, Path], list[Future[CommandResult]]]]:
        """Run ``count`` of them in threads; gives the logs by command id, and the results to come.

        What still runs at the end of the block is cancelled.
        """
        pipeline = self.supervisor.pipeline
        with ThreadPoolExecutor(count) as threads:
            results = [threads.submit(self.run, spec) for _ in range(count)]
            try:
                self._await_start(results)
                yield {number: self._log(number) for number in pipeline.running}, results
            finally:
                pipeline.cancel_all()

    def _await_start(self, results: Sequence[Future[CommandResult]]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while len(self.supervisor.pipeline.running) < len(results):
            for ended in filter(Future.done, results):
                ended.result()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(results)} commands did not start together within {_START_SECONDS:g} s")
            time.sleep(0.001)

    def _log(self, command_id: int) -> Path:
        return self.supervisor.pipeline.log_path(self.store.commands.get(command_id))


@contextmanager
def open_command_setup(*, kill_grace: float = 1.0, spare_keepers: int | None = None) -> Iterator[CommandSetup]:
    """A setup with the default settings but for what is named here; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="debug-server-bench-") as name:
        folder = Path(name)
        (folder / "workspace").mkdir()
        paths = RunnerPaths.from_root(folder / "artifacts")
        settings = RunnerSettings(paths, kill_grace=kill_grace)
        if spare_keepers is not None:
            settings = RunnerSettings(paths, kill_grace=kill_grace, spare_keepers=spare_keepers)
        store = open_store(f"sqlite:///{folder}/metadata.db")
        with (
            store,
            WorkerSupervisor(
                metadata_store=store, paths=paths, environment_manager=None, settings=settings
            ) as supervisor,
        ):
            session = unused_session(store)
            yield CommandSetup(folder=folder, store=store, supervisor=supervisor, session_id=session.id)


def unused_session(store: MetadataStore) -> Session:
    """A session with a number that an earlier run has probably not had.

    ext4 places a session's logs by the hash of its number, and passes over the inodes of logs that were removed there
    within the last minutes: without this each run would measure what the one before it left.
    """
    for _ in range(random.randrange(2000)):
        store.sessions.create()
    return store.sessions.create()


class TextObserver:
    """A stream observer that waits for a text in a command's output."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._seen = ""
        self._found = threading.Event()

    def __call__(self, chunk: object) -> None:
        """Look at one more chunk."""
        self._seen += getattr(chunk, "text", "")
        if self._text in self._seen:
            self._found.set()

    def wait(self, seconds: float) -> bool:
        """Whether the text came within ``seconds``."""
        return self._found.wait(seconds)
