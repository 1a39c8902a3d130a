"""A cancel that comes before the command runs."""

from __future__ import annotations

import threading

from debug_server.model import ExitReason
from debug_server.runner import EnvironmentManager
from debug_server.runner.log_chunk import LogChunk
from debug_server.runner.spec import CommandSpec
from debug_server.runner.worker import WorkerSupervisor
from tests.runner.environment_support import hook
from tests.running import Bench, Workspace


def test_who_hears_the_first_words_may_end_the_command(bench: Bench) -> None:
    """A watcher asks for the end of everything while the environment is being made: the command ends as it starts."""
    go = bench.workspace / "go"
    heard = threading.Event()

    def end(chunk: LogChunk) -> None:
        if chunk.stream == "system" and not heard.is_set():
            heard.set()
            supervisor.pipeline.cancel_all("heard enough")
            go.touch()

    build = f'until [ -e "{go}" ]; do sleep 0.01; done; mkdir -p "$DEBUG_SERVER_ENV_PATH/bin"'
    with WorkerSupervisor(
        metadata_store=bench.store,
        paths=bench.settings.paths,
        environment_manager=EnvironmentManager(bench.root / "envs"),
        settings=bench.settings,
    ) as supervisor:
        result = supervisor.run_command(
            bench.session.id,
            CommandSpec(["sleep", "1000"]),
            Workspace(bench.workspace),
            env_request=hook(build, name="slow", root=bench.workspace),
            stream_observers=[end],
        )
    assert (result.exit_reason, result.exit.message) == (ExitReason.CANCELLED, "heard enough")
    assert not supervisor.pipeline.cancel(result.command_id), "what has ended is nobody's to end"
