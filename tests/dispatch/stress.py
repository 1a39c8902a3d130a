"""Emits many events for many repositories, kills the server meanwhile, and checks that each ran once and in order."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tests.dispatch.governor_process import TERMINAL, GovernorProcess, make_repository, repos_text
from tests.running import eventually

# One write per line, so that lines of two runners do not mix.
WORK = 'printf "%s\\n" "$DISPATCH_REPO $DISPATCH_TASK_ID $DISPATCH_FIELD" >> "$DISPATCH_ROOT/ran.log"; echo done\n'
PRIORITIES = ("critical", "high", "med", "low")
RUNNERS = "runners:\n" + "".join(
    f"  {name}:\n    executor: bash\n    cmd: work.sh\n    skills: [work.{name}]\n"
    f"    repos: all\n    priority: {name}\n    triggers:\n      - type: push\n"
    for name in PRIORITIES
)
IN_FLIGHT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One event that was emitted."""

    repo: str
    task: str
    number: int
    priority: str


def emit_and_kill(root: Path, *, events: int, repositories: int, kills: int, seed: int, pause: float) -> dict[str, Any]:
    """Emit, kill, restart, wait for the end; returns figures. Violations are assertion errors.

    Each runner takes ``pause`` seconds; a longer pause keeps the maximum of runs active.
    """
    governor = GovernorProcess(root / "governor")
    names = [f"repo-{number:02}" for number in range(repositories)]
    places: dict[str, Path | str] = {
        name: make_repository(root / name, {"work.sh": f"sleep {pause}; {WORK}"}) for name in names
    }
    governor.configure(RUNNERS, repos_text(places))
    began = time.monotonic()
    governor.start()
    try:
        sent = emit_all(governor, plan(events, names, random.Random(seed)))
        pushed: dict[str, bool] = {}
        for kill in range(kills):
            wait_until_ended(governor, len(sent) * (kill + 1) // (kills + 2))
            pushed |= kill_amid_pushes(governor, names[0], kill)
            governor.start()
        seen = list(governor.stream(600.0))
    finally:
        governor.stop()
    whole = check_pushes(pushed, names[0], seen)
    found = check(governor, [*sent, *whole], seen, strict=kills > 0)
    return {**found, "pushes_amid_kills": len(whole) // 4, "seconds": round(time.monotonic() - began, 1)}


def plan(events: int, names: list[str], choice: random.Random) -> dict[tuple[str, str], list[Sent]]:
    """Events by task, in the order in which they must run."""
    tasks: dict[tuple[str, str], list[Sent]] = defaultdict(list)
    for number in range(events):
        key = (choice.choice(names), f"T-{choice.randrange(max(1, events // (3 * len(names))))}")
        tasks[key].append(Sent(repo=key[0], task=key[1], number=number, priority=choice.choice(PRIORITIES)))
    return tasks


def emit_all(governor: GovernorProcess, tasks: dict[tuple[str, str], list[Sent]]) -> list[Sent]:
    """Emit from several threads; the events of one task from one thread."""

    def send(items: list[Sent]) -> list[Sent]:
        for item in items:
            answer = governor.emit(item.task, f"work.{item.priority}", item.repo, field=str(item.number))
            assert answer.ok and answer.message == f"[runner] {item.priority} queued", answer
        return items

    with ThreadPoolExecutor(16) as threads:
        return [item for items in threads.map(send, tasks.values()) for item in items]


def wait_until_ended(governor: GovernorProcess, count: int) -> None:
    """Wait until the stream has shown the end of ``count`` runs."""
    try:
        for index, _ in enumerate(governor.stream(120.0, follow=True, event_type_filter="runner.exited"), 1):
            if index >= count:
                return
    except grpc.RpcError as error:
        raise AssertionError(f"{count} runs did not end in time") from error


def kill_amid_pushes(governor: GovernorProcess, repo: str, kill: int) -> dict[str, bool]:
    """Emit pushes, each for four runners, until the server is killed; returns which tasks were acknowledged."""
    pushed: dict[str, bool] = {}

    def push() -> None:
        for number in itertools.count():
            task = f"P-{kill}-{number}"
            pushed[task] = False
            try:
                pushed[task] = governor.emit(task, "push", repo, field="0").ok
            except (grpc.RpcError, ValueError):  # the latter for a channel that was closed meanwhile
                return

    pushing = threading.Thread(target=push)
    pushing.start()
    eventually(lambda: sum(pushed.values()) >= 5, what="pushes that were acknowledged")
    governor.kill()
    pushing.join(90)
    return pushed


def check_pushes(pushed: Mapping[str, bool], repo: str, seen: list[Any]) -> list[Sent]:
    """Each push is queued for all four runners or none, and for all if acknowledged; returns the expected runs."""
    queued = Counter(event.task_id for event in seen if event.event_type == "runner.queued")
    partial = {task: queued[task] for task in pushed if queued[task] not in (0, len(PRIORITIES))}
    assert not partial, partial
    assert all(queued[task] for task, acknowledged in pushed.items() if acknowledged)
    return [
        Sent(repo=repo, task=task, number=0, priority=priority)
        for task in pushed
        if queued[task]
        for priority in PRIORITIES
    ]


def check(governor: GovernorProcess, sent: list[Sent], seen: list[Any], *, strict: bool) -> dict[str, Any]:
    """None lost, none run twice, in order per task, one end each, at most eight active, highest priority first."""
    ran = [line.split() for line in (governor.root / "ran.log").read_text().splitlines()]
    assert Counter((repo, task, int(number)) for repo, task, number in ran) == Counter(
        (item.repo, item.task, item.number) for item in sent
    )
    order: dict[tuple[str, str], list[int]] = defaultdict(list)
    for repo, task, number in ran:
        order[repo, task].append(int(number))
    assert all(numbers == sorted(numbers) for numbers in order.values())
    ends = Counter(_command(event) for event in seen if event.event_type in TERMINAL)
    assert len(ends) == len(sent) and set(ends.values()) == {1}
    assert {event.event_type for event in seen if event.event_type in TERMINAL} == {"runner.exited"}
    return {"events": len(sent), "most_at_once": _most(seen), "out_of_turn": _out_of_turn(seen) if strict else 0}


def _command(event: Any) -> int:
    return int(json.loads(event.payload)["command_id"])


def _most(seen: list[Any]) -> int:
    now = most = 0
    for event in seen:
        now += (event.event_type == "runner.started") - (event.event_type in TERMINAL)
        most = max(most, now)
    assert most <= IN_FLIGHT
    return most


def _out_of_turn(seen: list[Any]) -> int:
    """How many starts, after all were queued, ignored a command of higher priority whose task was free."""
    last_queued = max(index for index, event in enumerate(seen) if event.event_type == "runner.queued")
    waiting: dict[int, tuple[int, tuple[str, str]]] = {}
    busy: dict[int, tuple[str, str]] = {}
    wrong = 0
    for index, event in enumerate(seen):
        key = (event.repo_name, event.task_id)
        if event.event_type == "runner.queued":
            waiting[_command(event)] = (PRIORITIES.index(event.field), key)
        elif event.event_type == "runner.started":
            mine, _ = waiting.pop(_command(event))
            firsts: dict[tuple[str, str], int] = {}
            for _, (priority, task) in sorted(waiting.items()):
                firsts.setdefault(task, priority)
            held = {key, *busy.values()}
            passed = [task for task, priority in firsts.items() if priority < mine and task not in held]
            # Up to eight are claimed together and start in any order.
            wrong += index > last_queued and len(passed) > IN_FLIGHT
            busy[_command(event)] = key
        elif event.event_type in TERMINAL:
            busy.pop(_command(event), None)
    assert wrong == 0
    return wrong
