"""The killing: one seeded random stream decides what is submitted and who dies when."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.events import EventFeed
from debug_server.model import CommandStatus, SessionPlan
from debug_server.runner.run_dirs import run_dir_for
from debug_server.store import MetadataStore, open_store
from tests.soak import keepers, spawner
from tests.soak.keepers import Identity
from tests.soak.planned_commands import CommandPlanner, PlannedCommand, TraceFiles
from tests.soak.spawner import Spawner
from tests.store.away import away

_OUTLIVED, _KILLED_DURING, _KILLED_AFTER = range(3)  # what becomes of a server whose store goes away
_IN_FLIGHT = 32  # enough that every kill meets some, few enough that two processors follow
_LONG_LIFE_EVERY = 10  # servers that live longer, so that what waits gets its turn
_TRIES_PER_KILL = 20
_DRAIN_SECONDS = 120.0
_START_SECONDS = 100.0


@dataclass(slots=True, kw_only=True)
class Record:
    """What the campaign did and saw; the checker's other witness besides the store and the disk."""

    submitted: dict[int, PlannedCommand] = field(default_factory=dict)  # by command id
    server_kills: int = 0
    outages: int = 0
    killed_keepers: set[Identity] = field(default_factory=set)
    orphaned: set[int] = field(default_factory=set)  # commands that ran on while no server lived
    crashes: list[str] = field(default_factory=list)  # tracebacks of keepers
    server_status: int = 0  # of the last servers, which were asked to end


class Campaign:
    """One run, below one root directory."""

    def __init__(self, root: Path, seed: int, say: Callable[[str], None], *, containment: str = "auto") -> None:
        self.root = root
        self.paths = spawner.paths(root)
        self.traces = TraceFiles.below(root)
        self.record = Record()
        self.store: MetadataStore = open_store(spawner.database(root))
        self.spawner = Spawner(root, containment)
        self._say = say
        self._draw = random.Random(seed)
        self._planner = CommandPlanner(random.Random(seed + 1), self.traces)
        self._feed = EventFeed(self.store.events)
        self._cursor = 0
        self._open: set[int] = set()
        (root / "workspace").mkdir()
        self._session = self.store.sessions.create(plan=SessionPlan(directory=str(root / "workspace"))).id

    # -- phases ---------------------------------------------------------------------------------------------------

    def kill_servers(self, count: int) -> None:
        """Kill ``count`` servers, each a random moment after its start or after a submission."""
        for number in range(1, count + 1):
            if self.spawner.server is None:
                self.spawner.start_server()
            self._live(long=number % _LONG_LIFE_EVERY == 0)
            self._kill_server()
            if number % 50 == 0 or number == count:
                self._progress(f"server kills {number}/{count}")

    def kill_keepers(self, count: int) -> None:
        """Kill ``count`` keepers; now and then while no server lives to see it."""
        killed = tries = 0
        while killed < count and tries < _TRIES_PER_KILL * count:
            tries += 1
            unseen = self._draw.random() < 0.05
            if self.spawner.server is None:
                self.spawner.start_server()
            self._submit(self._draw.randrange(4))
            time.sleep(self._draw.uniform(0, 0.08))
            if unseen:
                self._kill_server()
            victim = keepers.kill_one(self._draw, self.paths.keepers_dir, self.spawner.pid)
            if victim is not None:
                self.record.killed_keepers.add(victim)
                killed += 1
                if killed % 25 == 0 or killed == count:
                    self._progress(f"keeper kills {killed}/{count}")
            self._look_for_crashes()

    def take_store_away(self, count: int, seconds: float) -> None:
        """Lock the database ``count`` times for so long, each time while commands wait, run and end.

        The server lives on, is killed meanwhile, or is killed as soon as the store is back.
        """
        for number in range(count):
            self._have_server_at_work()
            self._submit(12)
            self._await_a_start()
            server = number % 3
            spawner.outages(self.root).touch()
            with away(spawner.database(self.root)):
                self.record.outages += 1
                time.sleep(seconds / 2)
                if server == _KILLED_DURING:
                    self._kill_server()
                time.sleep(seconds / 2)
            if server == _KILLED_AFTER:
                self._kill_server()
            self._progress(f"outages {number + 1}/{count} of {seconds:g} s")

    def finish(self) -> None:
        """Let everything come to its end under one more server, then end that server."""
        if self.spawner.server is None:
            self.spawner.start_server()
        deadline = time.monotonic() + _DRAIN_SECONDS
        self._collect()
        while self._open and time.monotonic() < deadline:
            self._feed.wait(self._cursor, 1.0)
            self._collect()
        self._look_for_crashes()
        self.record.server_status = self.spawner.stop_server()
        # What a killed keeper should have removed is removed by the next recovery.
        self.spawner.start_server()
        self.record.server_status |= self.spawner.stop_server()
        self._progress("all servers ended")

    def close(self) -> None:
        """End what is left of the campaign itself."""
        self._feed.close()
        self.store.close()
        self.spawner.close()
        self.spawner.groups.remove()

    # -- one server's life ----------------------------------------------------------------------------------------

    def _live(self, *, long: bool) -> None:
        """Submit and wait, in one of three manners; the caller kills right after."""
        manner = self._draw.random()
        if long:
            self._submit(12)
            time.sleep(self._draw.uniform(0.4, 1.2))
            self._await_a_start()
        elif manner < 0.2:  # while it starts and recovers
            time.sleep(self._draw.uniform(0, 0.06))
        elif manner < 0.6:  # right after a submission
            time.sleep(self._draw.uniform(0, 0.25))
            self._submit(self._draw.randrange(1, 5))
            time.sleep(self._draw.uniform(0, 0.02))
        else:
            self._submit(self._draw.randrange(5))
            time.sleep(self._draw.uniform(0, 0.3))

    def _have_server_at_work(self) -> None:
        """A server that has opened the store and recovered: one that starts without a store only says so and ends."""
        if self.spawner.server is not None:
            return
        before = len(_adoptions(self.root))
        self.spawner.start_server()
        deadline = time.monotonic() + _START_SECONDS
        while len(_adoptions(self.root)) == before and time.monotonic() < deadline:
            time.sleep(0.01)

    def _await_a_start(self) -> None:
        """However slow everything is, now and then a server dies while a command of it runs."""
        deadline = time.monotonic() + _START_SECONDS
        while self._open and not self._running() and time.monotonic() < deadline:
            time.sleep(0.01)
            self._collect()

    def _running(self) -> set[int]:
        """Commands that have begun, and not ended as far as the disk knows."""
        found = set()
        for command in self.store.queue.claimed():
            run_dir = run_dir_for(self.paths.keepers_dir, command.id, command.attempt)
            if command.status is CommandStatus.RUNNING and not (run_dir / "exit.json").exists():
                found.add(command.id)
        return found

    def _submit(self, count: int) -> None:
        self._collect()
        for _ in range(min(count, _IN_FLIGHT - len(self._open))):
            planned = self._planner.next()
            command = self.store.commands.add(
                session_id=self._session,
                argv=planned.argv,
                log_name=planned.kind,
                limits=planned.limits,
                queue_key="soak",
                key_limit=_IN_FLIGHT,
                idempotency_key=str(planned.token),
            )
            self.record.submitted[command.id] = planned
            self._open.add(command.id)
        if self._draw.random() < 0.2:
            self._cancel_one()

    def _cancel_one(self) -> None:
        wanted = [number for number in sorted(self._open) if self.record.submitted[number].cancelled]
        if wanted:
            self.store.commands.request_cancel(self._draw.choice(wanted))

    def _kill_server(self) -> None:
        self.spawner.kill_server()
        self.record.server_kills += 1
        self.record.orphaned |= self._running()

    def _collect(self) -> None:
        while events := self.store.events.read(self._cursor, kind="command.finished"):
            self._cursor = events[-1].seq
            self._open -= {event.command_id for event in events if event.command_id is not None}

    def _look_for_crashes(self) -> None:
        for path in self.paths.keepers_dir.glob("*/keeper.err"):
            self.record.crashes.append(f"{path}: {path.read_text()}")

    def _progress(self, what: str) -> None:
        self._collect()
        done = len(self.record.submitted) - len(self._open)
        self._say(f"{what}, commands finished {done} of {len(self.record.submitted)}")


def adopted(root: Path) -> set[int]:
    """The commands that some server took over from a dead one."""
    return {number for line in _adoptions(root) for number in json.loads(line)}


def _adoptions(root: Path) -> list[str]:
    """A line for each server that has come to work."""
    path = spawner.adoptions(root)
    return path.read_text().splitlines() if path.exists() else []
