"""The killing: one seeded random stream decides what is submitted and who dies when."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.events import EventFeed
from debug_server.model import CommandStatus
from debug_server.runner.launch import run_dir_for
from debug_server.store import MetadataStore, open_store
from tests.soak import keepers, nursery
from tests.soak.keepers import Identity
from tests.soak.nursery import Nursery
from tests.soak.orders import Order, OrderBook, Place

_IN_FLIGHT = 32  # enough that every kill meets some, few enough that two processors follow
_LONG_LIFE_EVERY = 10  # servers that live longer, so that what waits gets its turn
_TRIES_PER_KILL = 20
_DRAIN_SECONDS = 120.0
_START_SECONDS = 30.0


@dataclass(slots=True, kw_only=True)
class Record:
    """What the campaign did and saw; the checker's other witness besides the store and the disk."""

    submitted: dict[int, Order] = field(default_factory=dict)  # by command id
    server_kills: int = 0
    killed_keepers: set[Identity] = field(default_factory=set)
    orphaned: set[int] = field(default_factory=set)  # commands that ran on while no server lived
    crashes: list[str] = field(default_factory=list)  # tracebacks of keepers
    server_status: int = 0  # of the last servers, which were asked to end


class Campaign:
    """One run, below one root directory."""

    def __init__(self, root: Path, seed: int, say: Callable[[str], None], *, containment: str = "auto") -> None:
        self.root = root
        self.paths = nursery.paths(root)
        self.place = Place.below(root)
        self.record = Record()
        self.store: MetadataStore = open_store(nursery.database(root))
        self.nursery = Nursery(root, containment)
        self._say = say
        self._draw = random.Random(seed)
        self._book = OrderBook(random.Random(seed + 1), self.place)
        self._feed = EventFeed(self.store)
        self._cursor = 0
        self._open: set[int] = set()
        (root / "workspace").mkdir()
        self._session = self.store.create_session(metadata={"workspace": str(root / "workspace")}).id

    # -- phases ---------------------------------------------------------------------------------------------------

    def kill_servers(self, count: int) -> None:
        """Kill ``count`` servers, each a random moment after its birth or after a submission."""
        for number in range(1, count + 1):
            if self.nursery.server is None:
                self.nursery.start_server()
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
            if self.nursery.server is None:
                self.nursery.start_server()
            self._submit(self._draw.randrange(4))
            time.sleep(self._draw.uniform(0, 0.08))
            if unseen:
                self._kill_server()
            victim = keepers.kill_one(self._draw, self.paths.keepers_dir, self.nursery.pid)
            if victim is not None:
                self.record.killed_keepers.add(victim)
                killed += 1
                if killed % 25 == 0 or killed == count:
                    self._progress(f"keeper kills {killed}/{count}")
            self._look_for_crashes()

    def finish(self) -> None:
        """Let everything come to its end under one more server, then end that server."""
        if self.nursery.server is None:
            self.nursery.start_server()
        deadline = time.monotonic() + _DRAIN_SECONDS
        self._collect()
        while self._open and time.monotonic() < deadline:
            self._feed.wait(self._cursor, 1.0)
            self._collect()
        self._look_for_crashes()
        self.record.server_status = self.nursery.stop_server()
        # What a killed keeper should have removed is removed by the next recovery.
        self.nursery.start_server()
        self.record.server_status |= self.nursery.stop_server()
        self._progress("all servers ended")

    def close(self) -> None:
        """End what is left of the campaign itself."""
        self._feed.close()
        self.store.close()
        self.nursery.close()
        self.nursery.groups.remove()

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

    def _await_a_start(self) -> None:
        """However slow everything is, now and then a server dies while a command of it runs."""
        deadline = time.monotonic() + _START_SECONDS
        while self._open and not self._running() and time.monotonic() < deadline:
            time.sleep(0.01)
            self._collect()

    def _running(self) -> set[int]:
        """Commands that have begun, and not ended as far as the disk knows."""
        found = set()
        for command in self.store.list_claimed():
            run_dir = run_dir_for(self.paths.keepers_dir, command.id, command.attempt)
            if command.status is CommandStatus.RUNNING and not (run_dir / "exit.json").exists():
                found.add(command.id)
        return found

    def _submit(self, count: int) -> None:
        self._collect()
        for _ in range(min(count, _IN_FLIGHT - len(self._open))):
            order = self._book.next()
            command = self.store.add_command(
                session_id=self._session,
                argv=order.argv,
                log_name=order.kind,
                limits=order.limits,
                queue_key="soak",
                key_limit=_IN_FLIGHT,
                idempotency_key=str(order.token),
            )
            self.record.submitted[command.id] = order
            self._open.add(command.id)
        if self._draw.random() < 0.2:
            self._cancel_one()

    def _cancel_one(self) -> None:
        wanted = [number for number in sorted(self._open) if self.record.submitted[number].cancelled]
        if wanted:
            self.store.request_cancel(self._draw.choice(wanted))

    def _kill_server(self) -> None:
        self.nursery.kill_server()
        self.record.server_kills += 1
        self.record.orphaned |= self._running()

    def _collect(self) -> None:
        while events := self.store.read_events(self._cursor, kind="command.finished"):
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
    path = nursery.adoptions(root)
    lines = path.read_text().splitlines() if path.exists() else []
    return {number for line in lines for number in json.loads(line)}
