"""WorkerSupervisor shared by many threads, and keepers that serve many commands."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from debug_server.errors import DebugServerError, InvalidInputError, KeeperError, NotFoundError
from debug_server.model import ExitReason, Limits
from debug_server.runner.keeper.rundir import PREFIX
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.spec import CommandSpec
from tests.running import Bench, Workspace, eventually, processes

MOUNTS = 5  # open files of a keeper: its own mounts, a template without workspaces, a copy of it, and two lists of them


def test_many_threads_at_once(held: Bench) -> None:
    """Twenty commands from twelve threads on a cold supervisor: each ends, one owner holds them all."""
    with ThreadPoolExecutor(12) as pool:
        results = list(pool.map(lambda n: held.run(["sh", "-c", f"exit {n}"]), range(20)))
    assert [result.exit_code for result in results] == list(range(20))
    rows = held.store.commands.in_session(held.session.id)
    assert len({row.owner for row in rows}) == 1


def test_killing_a_keeper_harms_no_neighbour(make_bench: Callable[..., Bench], mechanism: str) -> None:
    """Keepers die beside a command that forks all the time; none of its processes is taken for a dead one's."""
    bench = make_bench(mechanism)
    busy = bench.start(["sh", "-c", "while [ ! -e go ]; do /bin/true || exit 9; (exit 0) || exit 9; done"])
    for _ in range(8):
        victim = bench.start(["sleep", "1000"])
        os.kill(victim.handle()["keeper"]["pid"], signal.SIGKILL)
        assert victim.result().exit_reason is ExitReason.LOST
    (bench.workspace / "go").touch()
    assert busy.result().exit_reason is ExitReason.EXITED


def test_a_cancel_reaches_its_own_command_only(bench: Bench) -> None:
    """Cancels hammer on commands that are just ending; the next command of the same keeper never hears them."""
    wrong: list[int] = []
    stop = threading.Event()

    def hammer() -> None:
        while not stop.is_set():
            for command_id in bench.supervisor.pipeline.running:
                if command_id % 2:
                    bench.supervisor.pipeline.cancel(command_id)

    def run(_: int) -> None:
        result = bench.run(["true"])
        if not result.command_id % 2 and result.exit_reason is not ExitReason.EXITED:
            wrong.append(result.command_id)

    thread = threading.Thread(target=hammer)
    thread.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(run, range(80)))
    finally:
        stop.set()
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    "spec",
    [{}, {"stdin": True}, {"tty": True}, {"limits": Limits(open_files=99)}],
    ids=["pipes", "stdin", "tty", "rlimit"],
)
def test_a_keeper_serves_many_commands_and_loses_no_descriptor(
    make_bench: Callable[..., Bench], mechanism: str, spec: dict[str, Any]
) -> None:
    """One keeper after another command: as many open files and children as after the first."""
    bench = make_bench(mechanism, spare_keepers=1)

    bench.run(["true"], **spec)
    keeper = _keeper_of_next(bench)
    before, _ = _idle_descriptors(bench, keeper)
    for _ in range(12):
        bench.run(["true"], **spec)
        with pytest.raises(DebugServerError):
            bench.run(["no-such-program"], **spec)
    assert _keeper_of_next(bench) == keeper

    def lost_none() -> bool:
        """A client that is just being turned away is open for a moment: more than before, once, is no leak."""
        others, of_mounts = _idle_descriptors(bench, keeper)
        return others <= before and of_mounts <= MOUNTS

    eventually(lost_none, what="as few open files as after the first command")


def _keeper_of_next(bench: Bench) -> int:
    """The pid of the keeper that serves the next command."""
    result = bench.run(["sh", "-c", "echo ${DEBUG_SERVER_RUN%%-*}"])
    return int(bench.log(result)["stdout"])


def _idle_descriptors(bench: Bench, keeper: int) -> tuple[int, int]:
    """How many it has open when it waits for orders: its directory has no command's name any more.

    Those of mounts are counted apart: they come and go with any mount on this machine.
    """
    keepers = bench.settings.paths.keepers_dir
    eventually(lambda: list(keepers.glob(f"{PREFIX}{keeper}-*")), what="an idle keeper")
    links = []
    for entry in Path(f"/proc/{keeper}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            links.append(os.readlink(entry))
    of_mounts = sum(link.startswith("mnt:") or link.endswith("/mountinfo") for link in links)
    return len(links) - of_mounts, of_mounts


def test_the_configured_limits_hold_where_a_command_sets_none(make_bench: Callable[..., Bench]) -> None:
    """Defaults of the settings apply to inline commands too, and a command's own limit goes first."""
    bench = make_bench(limits=Limits(wall_seconds=0.3, output_bytes=1000))
    assert bench.run(["sleep", "10"]).exit_reason is ExitReason.TIMED_OUT
    own = bench.run(["sleep", "0.5"], timeout=60)
    assert own.exit_reason is ExitReason.EXITED
    assert {name: item["asked"] for name, item in own.exit.limits.items()} == {"wall_seconds": 60, "output_bytes": 1000}


def test_a_slow_client_does_not_spoil_the_next_command(make_bench: Callable[..., Bench]) -> None:
    """A client leaves answers unread when the command ends; whoever comes next is served as ever."""
    bench = make_bench(spare_keepers=1)
    for _ in range(3):
        started = bench.start(["sh", "-c", "while [ ! -e go ]; do sleep 0.01; done"])
        deaf = started.connect()
        for _ in range(3000):
            deaf.send({"op": "status"})
        (bench.workspace / "go").touch()
        assert started.result().exit_reason is ExitReason.EXITED
        assert bench.run(["true"]).exit_reason is ExitReason.EXITED
        (bench.workspace / "go").unlink()
        deaf.close()


def test_keepers_may_be_started_ahead(nothing_left: None) -> None:
    """The first command gets one of them; what is wrong is said when something is asked for."""
    with KeeperPool() as pool:
        pool.start()
        pool.start()
        pool.take().close()
        assert pool.capabilities.mechanism
    with KeeperPool(containment="none") as pool:
        pool.start()
        with pytest.raises(KeeperError):
            pool.take()


def test_a_containment_that_cannot_be_had_is_named(make_bench: Callable[..., Bench]) -> None:
    """Before there is a row, and nothing of the attempt stays."""
    if os.geteuid() != 0:
        pytest.skip("a plain user may lack it for other reasons")
    bench = make_bench("cgroup")
    bench.supervisor.pool._containment = "wings"
    with pytest.raises(KeeperError):
        bench.run(["true"])
    assert bench.store.commands.in_session(bench.session.id) == []


def test_wrong_requests_leave_no_row(bench: Bench) -> None:
    """Unknown session, wrong session name, empty argv or a text, NUL, a log name with a slash: named, none recorded."""
    lease = Workspace(bench.workspace)
    with pytest.raises(NotFoundError, match="999"):
        bench.supervisor.run_command(999, CommandSpec(["true"]), lease)
    with pytest.raises(InvalidInputError, match="'seven'"):
        bench.supervisor.run_command("seven", CommandSpec(["true"]), lease)
    for argv in ([], [""], ["a\0b"], "true"):
        with pytest.raises(InvalidInputError):
            bench.run(argv)
    with pytest.raises(InvalidInputError, match=r"\[\"sh\", \"-c\", line\]"):
        CommandSpec("ls -l")
    with pytest.raises(InvalidInputError, match="wrapper 'nice' is a string"):
        CommandSpec(["true"], wrapper="nice")
    for log_name in ("..", "a/b", ""):
        with pytest.raises(InvalidInputError, match="log name"):
            bench.run(["true"], log_name=log_name)
    assert bench.store.commands.in_session(bench.session.id) == []


def test_closing_lets_the_fork_server_go(bench: Bench) -> None:
    """After close no keeper and no fork server of ours is left, and the supervisor can be used again."""
    others = _ours()  # of a pool that another test has left to itself
    bench.run(["true"])
    assert len(_ours() - others) == 1
    bench.supervisor.close()
    eventually(lambda: not _ours() - others, what="the end of the fork server")
    assert bench.run(["true"]).exit_reason is ExitReason.EXITED


def _ours() -> set[int]:
    """Fork servers below this process."""
    found = set()
    for pid in processes():
        try:
            with open(f"/proc/{pid}/stat") as file:
                name, rest = file.read().split(" ", 1)[1].rsplit(") ", 1)
        except OSError:
            continue
        if name == "(ds-forkserver" and int(rest.split()[1]) == os.getpid():
            found.add(pid)
    return found
