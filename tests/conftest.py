"""Fixtures for tests that run commands: a bench, and the proof that nothing is left of it."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.home import enter_private_home, left_marks, remove_private_home
from tests.running import (
    MECHANISMS,
    SETTINGS_HERE,
    TAG,
    Bench,
    eventually,
    missing_mechanism,
    orphaned_groups,
    rooted_in,
    run_files,
)

_HOME = enter_private_home()
_probe = cache(missing_mechanism)

# A shell starts its background jobs with SIGINT ignored, and so would every command line that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.update(SETTINGS_HERE)  # no program of a test writes to another test's data folder

# An example that took long says nothing of the code where others use the processor too.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("patient")

# Files (or beginnings of ids) that take seconds of processor time or of waiting: `make test-quick` leaves them out, and
# so stays under three minutes on two cores. A file with more than about 3 s of either belongs here: `--durations=50`.
SLOW = tuple(f"tests/{name}" for name in Path(__file__).with_name("slow.txt").read_text().split())

gc.disable()  # until the tests are collected: it would look at every module and class again and again


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow ones."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Collect garbage from here on, but not among the modules, which stay."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run in which something used the user's settings has failed."""
    if _HOME is not None and left_marks(_HOME) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the settings that were used, and by whom."""
    for name, whom in left_marks(_HOME).items() if _HOME is not None else ():
        terminalreporter.section(f"the trap {name!r} in the user's home folder was entered by", red=True)
        terminalreporter.write_line(whom)


def pytest_unconfigure() -> None:
    """The home folder goes with the run."""
    if _HOME is not None:
        remove_private_home(_HOME)


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After the test: no process of it, no control group of a dead keeper, no run directory, no owner's file."""
    monkeypatch.setenv(TAG, str(tmp_path))
    before = orphaned_groups()  # somebody else's, on a machine that is used for more than this
    yield
    try:
        eventually(lambda: not rooted_in(tmp_path, f"{TAG}={tmp_path}"))
    except AssertionError as error:
        raise AssertionError(f"processes of the test go on: {rooted_in(tmp_path, f'{TAG}={tmp_path}')}") from error
    orphans = orphaned_groups() - before
    eventually(lambda: not orphans & orphaned_groups(), what="the removal of dead keepers' groups")
    eventually(lambda: not run_files(tmp_path), what="empty folders")


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    """Each way of holding a process tree that this machine and user have."""
    name: str = request.param
    if reason := _probe(name):
        pytest.skip(f"{name}: {reason}")
    return name


@pytest.fixture
def make_bench(tmp_path: Path, nothing_left: None) -> Iterator[Callable[..., Bench]]:
    """Benches with settings of the test's choice."""
    made: list[Bench] = []

    def make(containment: str = "auto", *, root: Path | None = None, **settings: Any) -> Bench:
        bench = Bench(root or tmp_path / f"bench{len(made)}", containment, **settings)
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """With the best mechanism that there is."""
    return make_bench()


@pytest.fixture
def held(make_bench: Callable[..., Bench], mechanism: str) -> Bench:
    """With each mechanism in turn."""
    return make_bench(mechanism)


@pytest.fixture
def memory_bench(make_bench: Callable[..., Bench]) -> Bench:
    """Where memory, pids and cpu are held by control groups."""
    if reason := _probe("cgroup"):
        pytest.skip(f"cgroup: {reason}")
    bench = make_bench("cgroup")
    missing = {"memory", "pids", "cpu"} - bench.supervisor.pool.capabilities.controllers
    if missing:
        pytest.skip(f"no {', '.join(sorted(missing))} controller is delegated here")
    return bench
