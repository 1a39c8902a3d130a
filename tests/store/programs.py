"""Programs that tests run as processes of their own against a shared database."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from debug_server.model import ExitReason, ExitRecord
from debug_server.store import open_store


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Run one of the programs below, with pipes to its stdin and stdout."""
    line = [sys.executable, "-m", "tests.store.programs", *arguments]
    root = Path(__file__).parents[2]
    return subprocess.Popen(line, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def claim(url: str, name: str, threads: str) -> None:
    """Claim and finish until nothing waits or is held; prints one line per claim: id, key, claims held of the key."""
    store = open_store(url)
    printing = threading.Lock()

    def work(owner: str) -> None:
        while True:
            command = store.queue.claim_next(owner)
            if command is None:
                if store.queue.depth() == 0:
                    return
                continue
            held = sum(1 for other in store.queue.claimed() if other.queue_key == command.queue_key)
            with printing:
                sys.stdout.write(f"{command.id} {command.queue_key} {command.key_limit} {held}\n")
            record = ExitRecord(reason=ExitReason.SPAWN_FAILED)
            store.commands.finish(command.id, attempt=command.attempt, owner=owner, record=record)

    workers = [threading.Thread(target=work, args=(f"{name}-{number}",)) for number in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store.close()


def append(url: str, name: str, count: str) -> None:
    """Append events."""
    with open_store(url) as store:
        for number in range(int(count)):
            store.events.append("test.appended", subject=name, data={"number": number})


def live(url: str, session_id: str) -> None:
    """Run commands through their whole life for ever; prints each id whose end was acknowledged."""
    store = open_store(url)
    while True:
        command = store.commands.add(session_id=int(session_id), argv=["x"], env={"A": "b"}, claim_owner="e")
        store.commands.start(command.id, attempt=1, owner="e", handle={"pid": 1}, log_path="/l/a.log")
        record = ExitRecord(reason=ExitReason.EXITED, exit_code=0)
        store.commands.finish(command.id, attempt=1, owner="e", record=record, log_path="/l/a.log")
        sys.stdout.write(f"{command.id}\n")
        sys.stdout.flush()


def open_only(url: str) -> None:
    """Wait for the starting signal, then open the store and use it."""
    sys.stdin.readline()
    with open_store(url) as store:
        session = store.sessions.create()
        store.commands.add(session_id=session.id, argv=["x"], env={"A": "b"})


PROGRAMS: dict[str, Callable[..., None]] = {"claim": claim, "append": append, "live": live, "open": open_only}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
