"""Attacks by many clients at once, and by crashes of the server."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.attacks.requests import (
    COMMIT,
    command_number,
    run,
    wait_ended,
)
from tests.attacks.target import Attacker, AttackSetup, Target, target
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


# A crowd that fills itself up again when it is closed; prints how many connections it has opened.
_CROWD = """
import select, socket, sys, time
port, count, seconds, kinds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4].split()
key = b"Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n"
upgrade = b"Connection: Upgrade\\r\\nUpgrade: websocket\\r\\n" + key
starts = {
    "silent": b"",
    "head": b"GET /whoami HTTP/1.1\\r\\nHost: x\\r\\n",
    "body": b"POST /tasks/submit HTTP/1.1\\r\\nContent-Length: 9\\r\\n\\r\\nx",
    "websocket": b"GET /sessions/1/logs HTTP/1.1\\r\\nHost: 127.0.0.1:%d\\r\\n" % port + upgrade,
}
crowd, opened, end = [], 0, time.monotonic() + seconds
while time.monotonic() < end:
    for one in select.select(crowd, [], [], 0.02)[0]:
        try:
            ended = not one.recv(65536)
        except OSError:
            ended = True
        if ended:
            one.close()
            crowd.remove(one)
    for _ in range(min(20, count - len(crowd))):
        try:
            one = socket.create_connection(("127.0.0.1", port), timeout=1)
            one.sendall(starts[kinds[opened % len(kinds)]])
            crowd.append(one)
        except OSError:
            pass
        opened += 1
print(opened)
"""


def many_connections(setup: AttackSetup) -> Iterator[str]:
    """A crowd without a token, which the server cannot hold, costs no request of a known caller and fills no log.

    That is the promise for requests on a connection that has shown its token. While others open hundreds of connections
    a second, a new one may be refused; then the next attempts are served.
    """
    count, seconds = 400, 8 if setup.short else 30
    with target(setup, "many-connections", descriptors=256) as server, ThreadPoolExecutor(1) as threads:
        for kinds in ("silent head body", "websocket", "silent head body websocket"):
            before = server.log.stat().st_size
            with server.client(timeout=10) as kept:
                kept.get("/whoami").raise_for_status()
                crowd = threads.submit(_crowd(setup).python, _CROWD, server.port, count, seconds, kinds)
                asked, lost, late = 0, list[str](), 0
                while not crowd.done():
                    asked += 1
                    lost += _problems(kept)
                    late += bool(attempts := _attempts(server)) and attempts > 5
                    time.sleep(0.02)
            opened = int(crowd.result().stdout or 0)
            setup.say(f"many connections: {kinds}: {opened} opened, {asked} requests, {len(lost)} lost, {late} late")
            if opened < count:
                yield f"{kinds}: the attack was not made: {opened} connections, {crowd.result().stderr[-500:]}"
            if lost or late or asked < seconds:
                yield f"{kinds}: of {asked} requests {len(lost)} were lost, {late} new connections refused: {lost[:3]}"
            with server.client() as client:
                if run(server, client, ["true"], wall_seconds=60)["exit_code"] != 0:
                    yield f"{kinds}: no command runs afterwards"
            if (grown := server.log.stat().st_size - before) > 1 << 20:
                yield f"{kinds}: the log grew by {grown} bytes"


def _problems(client: httpx.Client) -> list[str]:
    try:
        answer = client.get("/whoami")
    except httpx.HTTPError as error:
        return [repr(error)]
    return [] if answer.status_code == 200 else [answer.text[:200]]


def _attempts(server: Target) -> int:
    """After how many attempts, each over a new connection, a request is served; at most six."""
    for number in range(1, 6):
        with server.client(timeout=10) as client:
            if not _problems(client):
                return number
        time.sleep(0.05 * number)
    return 6


def _crowd(setup: AttackSetup) -> Attacker:
    """The other user, or the server's own where this process can be no other."""
    if setup.other is not None:
        return Attacker.of(setup)
    return Attacker(setup=setup, uid=setup.uid, home=setup.root)


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
            answers.append(_ask_to_run(server))
            with contextlib.suppress(AssertionError):
                eventually(lambda: _accepted(server, answers), 30)
            if answers[-1].status_code != 201:
                alive = _tasks_by_name(setup.uid)
                yield f"when the others have ended a run is refused: {answers[-1].text[:300]}, alive: {alive}"
                return
            if wait_ended(client, command_number(answers[-1].json()), 60)["exit_code"] != 0:
                yield "no command runs when there are processes again"


def _accepted(server: Target, answers: list[httpx.Response]) -> bool:
    """Whether the last run was accepted; if not, ask for another one."""
    if answers[-1].status_code != 201:
        answers.append(_ask_to_run(server))
    return answers[-1].status_code == 201


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


def _tasks_by_name(uid: int) -> Counter[str]:
    """The names of a user's processes and threads, with how many there are of each."""
    names = Counter[str]()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == uid:
                names.update((task / "comm").read_text().strip() for task in (process / "task").iterdir())
    return names


def exactly_once(setup: AttackSetup) -> Iterator[str]:
    """Clients that repeat a request under its key until it is answered get one command, which starts once.

    Some start runs; others exec, in a workspace, in a folder and in a session, and get its output each time.
    """
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
        for place in _PLACES:
            if not any(one.numbers for one in repeaters if one.place == place):
                yield f"no client got an answer in a {place}"
        setup.say(f"exactly once: {len(asked)} commands, {clients} clients, {kills} kills")


_PLACES = ("run", "workspace", "folder", "session")


class _Repeater(threading.Thread):
    """A client that runs one command after the other, each under a key, until it is answered."""

    def __init__(self, server: Target, journal: Path, number: int, ended: threading.Event) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._server, self._journal, self._ended = server, journal, ended
        self.place = _PLACES[number % len(_PLACES)]
        self.numbers: dict[str, set[int]] = {}
        self.failure: str | None = None

    def run(self) -> None:
        count = 0
        try:
            path, body = self._request()
            while not count or not self._ended.is_set():  # once at least, however long the first answer took
                key = f"{self.name}-{count}"
                self.numbers[key] = {self._answered(path, body, key), self._answered(path, body, key)}
                count += 1
        except AssertionError as error:
            self.failure = str(error)

    def _request(self) -> tuple[str, dict[str, Any]]:
        """The path of this client's requests, and what their bodies have beside argv."""
        if self.place == "run":
            return "/runs", COMMIT
        if self.place == "session":
            session = self._ask("/sessions", COMMIT, f"{self.name}-session")["id"]
            return f"/sessions/{session}/exec", {"wait": 5}
        return "/exec", {"wait": 5, **(COMMIT if self.place == "workspace" else {})}

    def _answered(self, path: str, body: dict[str, Any], key: str) -> int:
        """The number of the command; of one that exec runs, once its answer has come and is right."""
        argv = ["sh", "-c", f"echo x >> {self._journal}/{key}; sleep 0.2; echo {key}"]
        while True:
            found = self._ask(path, {**body, "argv": argv}, key)
            if self.place == "run":
                return command_number(found)
            if found["ended"]:
                assert (found["exit_code"], found["stdout"]) == (0, f"{key}\n"), f"{key} is answered with {found}"
                return int(found["command_id"])

    def _ask(self, path: str, body: dict[str, Any], key: str) -> dict[str, Any]:
        while True:
            with contextlib.suppress(httpx.HTTPError), self._server.client(timeout=10) as client:
                answer = client.post(path, json=body, headers={"Idempotency-Key": key})
                if answer.is_success:
                    found: dict[str, Any] = answer.json()
                    return found
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
