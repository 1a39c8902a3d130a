"""What a request costs when a million commands have ended, against a store in which two thousand have.

Each question to the store is counted in instructions of SQLite, which are the same in every run, and in CPU time; the
start of a server, its periodic work and its verbs in CPU time. Both stores are asked in turns. Then the same questions
on PostgreSQL, a log of 10 GB, and 2,000 followers.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import crowds, long_logs, postgres_size
from benchmarks.figures import Fact, Figure, Result, Samples, Size, at_most, interleaved
from benchmarks.growth import compared, verbs_compared
from benchmarks.processes import cpu_seconds
from benchmarks.service.serving import serving
from debug_server.app import Local
from debug_server.config import HistoryConfig
from debug_server.engine.housekeeping import Housekeeper
from debug_server.engine.maintenance import Maintenance
from debug_server.engine.retention import Retention
from debug_server.runner.recovery import recover
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.store import open_store
from tests.store.costs import OPERATIONS, Operation
from tests.store.filled_store import Filling, counting_store, fill

_LARGE = {Size.FULL: (100_000, 1_000_000), Size.QUICK: (10_000, 100_000), Size.SMALLEST: (200, 2_000)}
_SMALL = (200, 2_000)  # sessions and commands: with every filter there is a whole page
_CALLS = {Size.FULL: 200, Size.QUICK: 50, Size.SMALLEST: 2}  # of each question and of each periodic task
_REQUESTS = {Size.FULL: 100, Size.QUICK: 40, Size.SMALLEST: 2}  # of each verb, in a round
_ROUNDS = {Size.FULL: 5, Size.QUICK: 3, Size.SMALLEST: 1}
_ONCE = "a session is removed"  # cannot be repeated
_DATA = ".artifacts"
_DATABASE = f"{_DATA}/data/metadata.db"
_VERBS: Mapping[str, tuple[str, str, object]] = {
    "exec": ("POST", "/exec", {"argv": ["true"]}),
    "ps": ("GET", "/commands?status=pending&status=running", None),
    "commands, newest first": ("GET", "/commands?order=newest&limit=30", None),
    "commands, failed": ("GET", "/commands?order=newest&limit=30&status=failed", None),
    "commands, of a repository": ("GET", "/commands?order=newest&limit=30&repository=r1", None),
    "commands, of a session": ("GET", "/commands?order=newest&limit=30&session_id=1", None),
    "commands, one": ("GET", "/commands/100", None),
    "sessions, newest first": ("GET", "/sessions?order=newest&limit=30", None),
    "sessions, open": ("GET", "/sessions?order=newest&limit=30&status=open", None),
    "sessions, failed of a repository": ("GET", "/sessions?limit=30&status=failed&repository=r1", None),
    "artifacts of a session": ("GET", "/sessions/1/artifacts?limit=30", None),
    "events": ("GET", "/events?limit=30", None),
    "readiness": ("GET", "/readyz", None),
    "metrics": ("GET", "/metrics", None),
}


def measure(size: Size) -> list[Result]:
    """The store's questions, the periodic work of a server, then its start and its verbs."""
    with tempfile.TemporaryDirectory(prefix="debug-server-bench-") as name:
        folders = [Path(name, "small"), Path(name, "large")]
        fillings = [_filled(folder, amounts) for folder, amounts in zip(folders, (_SMALL, _LARGE[size]), strict=True)]
        results = _questions(folders, fillings, _CALLS[size])
        results += _periodic_work(folders, _CALLS[size])
        results += _verbs(folders, _REQUESTS[size], _ROUNDS[size])
    results += postgres_size.measure((_SMALL, _LARGE[size]), _CALLS[size], _ONCE)
    return [*results, *long_logs.measure(size), *crowds.measure(size)]


def _filled(folder: Path, amounts: tuple[int, int]) -> Filling:
    sessions, commands = amounts
    return fill(f"sqlite:///{folder / _DATABASE}", sessions=sessions, commands=commands)


# -- the store ----------------------------------------------------------------------------------------------------


def _questions(folders: Sequence[Path], fillings: Sequence[Filling], calls: int) -> list[Result]:
    results: list[Result] = []
    worst = 0.0
    with ExitStack() as stack:
        stores = [stack.enter_context(open_store(folder / _DATABASE)) for folder in folders]
        for name, operation in OPERATIONS.items():
            if name == _ONCE:
                continue
            steps = [_steps(folder, operation, filling) for folder, filling in zip(folders, fillings, strict=True)]
            worst = max(worst, steps[1] / steps[0])
            small, large = interleaved(
                *(partial(_cpu, partial(operation, *pair)) for pair in zip(stores, fillings, strict=True)), rounds=calls
            )
            counted: dict[str, Fact] = {"large_steps": steps[1], "small_steps": steps[0]}
            results.append(compared(f"store, {name}", small, large, counted))
    return [Figure(name="most_steps", value=worst, unit="x", bar=at_most(1.5)), *results]


def _steps(folder: Path, operation: Operation, filling: Filling) -> int:
    """The instructions of SQLite for one call."""
    store, database = counting_store(folder / _DATABASE)
    with store:
        before = database.steps
        operation(store, filling)
        return database.steps - before


def _cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


# -- a server -----------------------------------------------------------------------------------------------------


def _periodic_work(folders: Sequence[Path], calls: int) -> list[Result]:
    """One round of each periodic task, when there is nothing to do."""
    with ExitStack() as stack:
        small, large = (_tasks(stack.enter_context(_local(folder))) for folder in folders)
        results: list[Result] = []
        for name in small:
            small[name]()  # what is due is done once: sessions that were not used for a day are closed
            large[name]()
            before, after = interleaved(partial(_cpu, small[name]), partial(_cpu, large[name]), rounds=calls)
            results.append(compared(f"periodic, {name}", before, after))
        return results


def _local(folder: Path) -> Local:
    return Local(RunnerSettings(RunnerPaths.from_root(folder / _DATA)), f"sqlite:///{folder / _DATABASE}")


def _tasks(local: Local) -> Mapping[str, Callable[[], object]]:
    store, sessions, supervisor = local.store, local.sessions, local.supervisor
    engine = local.engine
    housekeeper = Housekeeper(
        store=store, sessions=sessions, supervisor=supervisor, cancel=engine.cancel, wait=engine.wait
    )
    maintenance = Maintenance(store=store, sessions=sessions, supervisor=supervisor)
    retention = Retention(
        store=store,
        paths=local.settings.paths,
        settings=HistoryConfig(keep_commands=10**9),
        stopped=lambda: False,
    )
    return {
        "recovery": lambda: recover(store, local.settings.paths, supervisor.owner),
        "open sessions": housekeeper.check_sessions,
        "leases": maintenance.recover_leases,
        "history, nothing to remove": retention.remove_old,
    }


def _verbs(folders: Sequence[Path], requests: int, rounds: int) -> list[Result]:
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(prepare=partial(_move, folder))) for folder in folders]
        first, second = (Samples.of([cpu_seconds(server.pid)]) for server in servers)
        connections = [server.connect() for server in servers]
        results: list[Result] = [compared("server, start", first, second)]
        sides = [
            (server.pid, {name: partial(connection.answer, *asked) for name, asked in _requests().items()})
            for server, connection in zip(servers, connections, strict=True)
        ]
        results += verbs_compared("server", *sides, requests=requests, rounds=rounds)
        for connection in connections:
            connection.close()
        return results


def _move(filled: Path, folder: Path) -> str:
    with open_store(filled / _DATABASE) as store:
        _, secret = store.tokens.create("bench", ["admin"])
    (filled / _DATA).rename(folder / _DATA)
    return secret


def _requests() -> Mapping[str, tuple[str, str, bytes | None]]:
    return {
        name: (method, path, None if body is None else json.dumps(body).encode())
        for name, (method, path, body) in _VERBS.items()
    }
