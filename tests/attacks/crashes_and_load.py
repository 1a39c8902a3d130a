"""Attacks by many clients at once, and by crashes of the server."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.attacks.requests import (
    COMMIT,
    command_number,
    run,
    wait_ended,
)
from tests.attacks.target import AttackSetup, Target, target
from tests.running import eventually


def leaked_leases(setup: AttackSetup) -> Iterator[str]:
    """After many crashes every workspace can be leased again at once."""
    kills = 5 if setup.short else 30
    with target(setup, "leaked-leases") as server:
        dice = random.Random(1)
        for _ in range(kills):
            with server.client(timeout=10) as client:
                threads = [threading.Thread(target=_try_run, args=(client,), daemon=True) for _ in range(4)]
                for thread in threads:
                    thread.start()
                time.sleep(dice.uniform(0.0, 0.3))
                server.kill()
                for thread in threads:
                    thread.join(30)
            server.start()
        with server.client(timeout=60) as client:
            eventually(lambda: not _unfinished(client), what="the ends of all commands")
            opened: list[int] = []
            for _ in range(16):
                answer = client.post("/sessions", json=COMMIT)
                if answer.status_code != 201:
                    yield f"after {kills} kills session {len(opened) + 1} of 16 is refused: {answer.text[:300]}"
                    break
                opened.append(answer.json()["id"])
            for session in opened:
                client.delete(f"/sessions/{session}").raise_for_status()


def _try_run(client: httpx.Client) -> None:
    with contextlib.suppress(httpx.HTTPError):
        client.post("/runs?wait=5", json={**COMMIT, "argv": ["sleep", "0.05"]})


def _unfinished(client: httpx.Client) -> list[int]:
    answer = client.get("/sessions?limit=1000").json()["items"]
    return [session["id"] for session in answer if session["status"] in ("pending", "running")]


def many_connections(setup: AttackSetup) -> Iterator[str]:
    """Silent and half-sent requests without a token do not stop the service or fill its log."""
    count = 400
    with target(setup, "many-connections", descriptors=256) as server:
        before = server.log.stat().st_size
        sockets: list[socket.socket] = []
        halves = [
            b"",
            b"GET /whoami HTTP/1.1\r\nHost: x\r\n",
            b"POST /tasks/submit HTTP/1.1\r\nContent-Length: 9\r\n\r\nx",
        ]
        try:
            for number in range(count):
                with contextlib.suppress(OSError):
                    found = socket.create_connection(("127.0.0.1", server.port), timeout=1)
                    sockets.append(found)
                    found.sendall(halves[number % len(halves)])
            deadline = time.monotonic() + (5 if setup.short else 30)
            answered = refused = 0
            while time.monotonic() < deadline:
                try:
                    with server.client(timeout=10) as client:
                        answered += client.get("/whoami").status_code == 200
                except httpx.HTTPError:
                    refused += 1
                time.sleep(0.1)
            if refused > answered:
                yield f"under {count} silent connections {refused} of {answered + refused} requests were not served"
            with server.client() as client:
                if run(server, client, ["true"], wall_seconds=60)["exit_code"] != 0:
                    yield "no command runs under many connections"
            if (grown := server.log.stat().st_size - before) > 1 << 20:
                yield f"the log grew by {grown} bytes"
        finally:
            for found in sockets:
                found.close()


def no_more_processes(setup: AttackSetup) -> Iterator[str]:
    """Runs for which there is no thread or process are refused as such; those that began, and reading, go on."""
    with target(setup, "no-more-processes", processes=_tasks_of(setup.uid) + 45) as server:
        with ThreadPoolExecutor(30) as threads:
            pending = [threads.submit(_ask_to_run, server) for _ in range(30)]
            while not all(found.done() for found in pending):
                with server.client() as client:
                    if (answer := client.get("/whoami")).status_code != 200:
                        yield f"without processes /whoami answers {answer.status_code}: {answer.text[:300]}"
                time.sleep(0.1)
        answers = [found.result() for found in pending]
        for answer in answers:
            if answer.status_code not in (201, 503):
                yield f"without processes a run is answered with {answer.status_code}: {answer.text[:300]}"
            elif answer.status_code == 503 and not answer.json()["error"]["retryable"]:
                yield f"the refusal of a run says not to retry it: {answer.text[:300]}"
        with server.client() as client:
            for answer in answers:
                if answer.status_code == 201:
                    ended = wait_ended(client, command_number(answer.json()), 90)
                    if ended["exit_reason"] != "exited":
                        yield f"without processes a command ends as {ended}"
            answer = eventually(lambda: _accepted(server), 30, "a run that is taken when the others have ended")
            if wait_ended(client, command_number(answer.json()), 60)["exit_code"] != 0:
                yield "no command runs when there are processes again"


def _accepted(server: Target) -> httpx.Response | None:
    answer = _ask_to_run(server)
    return answer if answer.status_code == 201 else None


def _ask_to_run(server: Target) -> httpx.Response:
    with server.client(timeout=60) as client:
        return client.post("/runs", json={**COMMIT, "argv": ["sleep", "0.5"]})


def _tasks_of(uid: int) -> int:
    """How many processes and threads a user has, which is what counts for the bound."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == uid:
                count += len(list((process / "task").iterdir()))
    return count


def exactly_once(setup: AttackSetup) -> Iterator[str]:
    """Clients that repeat a request under its key until it is answered get one command, which starts once."""
    clients, kills = (5, 3) if setup.short else (20, 30)
    journal = setup.root / "journal"
    journal.mkdir()
    os.chown(journal, setup.uid, setup.uid)
    with target(setup, "exactly-once") as server:
        ended = threading.Event()
        repeaters = [_Repeater(server, journal, name, ended) for name in range(clients)]
        for one in repeaters:
            one.start()
        dice = random.Random(2)
        for _ in range(kills):
            time.sleep(dice.uniform(0.3, 1.5))
            server.kill()
            server.start()
        time.sleep(1.0)
        ended.set()
        for one in repeaters:
            one.join(120)
            if one.is_alive():
                yield f"client {one.name} is not answered"
            if one.failure is not None:
                yield f"client {one.name} is refused: {one.failure}"
        asked = {key: numbers for one in repeaters for key, numbers in one.numbers.items()}
        with server.client() as client:
            for key, numbers in asked.items():
                if len(numbers) != 1:
                    yield f"key {key} was answered with the commands {sorted(numbers)}"
                end = wait_ended(client, min(numbers), 120)
                starts = (journal / key).read_text().count("\n") if (journal / key).exists() else 0
                if (end["exit_reason"], starts) != ("exited", 1):
                    yield f"command {end['id']} of key {key} ended as {end['exit_reason']} and started {starts} times"
            ends = _ends(client)
        if again := {number: count for number, count in ends.items() if count != 1}:
            yield f"commands with more than one end: {again}"
        setup.say(f"exactly once: {len(asked)} commands, {clients} clients, {kills} kills")


class _Repeater(threading.Thread):
    """A client that submits one command after the other, each under a key, until it is answered."""

    def __init__(self, server: Target, journal: Path, number: int, ended: threading.Event) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._server, self._journal, self._ended = server, journal, ended
        self.numbers: dict[str, set[int]] = {}
        self.failure: str | None = None

    def run(self) -> None:
        count = 0
        while not self._ended.is_set() and self.failure is None:
            key = f"{self.name}-{count}"
            try:
                self.numbers[key] = {self._submit(key), self._submit(key)}
            except AssertionError as error:
                self.failure = str(error)
            count += 1

    def _submit(self, key: str) -> int:
        body = {**COMMIT, "argv": ["sh", "-c", f"echo x >> {self._journal}/{key}; sleep 0.2"]}
        while True:
            with contextlib.suppress(httpx.HTTPError), self._server.client(timeout=10) as client:
                answer = client.post("/runs", json=body, headers={"Idempotency-Key": key})
                if answer.is_success:
                    return command_number(answer.json())
                if answer.status_code not in (429, 502, 503):
                    said = self._server.log.read_text()[-3000:]
                    raise AssertionError(f"{key}: {answer.status_code} {answer.text}, and its log ends with {said}")
            time.sleep(0.05)


def _ends(client: httpx.Client) -> Counter[int]:
    ends: Counter[int] = Counter()
    after = 0
    while events := client.get(f"/events?after={after}&limit=1000").json()["items"]:
        after = events[-1]["seq"]
        ends.update(event["command_id"] for event in events if event["kind"] == "command.finished")
    return ends
