"""Workspaces of a generated repository: acquire, first status, patch, release, against plain git."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import dirty_pages
from benchmarks.figures import (
    Bar,
    Fact,
    Figure,
    Result,
    Samples,
    Size,
    Skipped,
    at_least,
    at_most,
    interleaved,
    milliseconds,
    timed,
)
from benchmarks.repository import Amounts, generate, git
from debug_server.store import open_store
from debug_server.worktrees import SessionPatch, WorktreeLease, WorktreePool, WorktreePoolSettings, apply_patch
from debug_server.worktrees.overlay import why_overlay_fails

_PATCHED_FILES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    repository: Amounts
    rounds: int  # of what is compared with a slow peer
    calls: int  # of ours in each of those rounds
    dirty_bytes: int


_PLANS = {
    Size.FULL: _Plan(repository=Amounts(files=7000, commits=300), rounds=15, calls=10, dirty_bytes=600_000_000),
    Size.QUICK: _Plan(repository=Amounts(files=7000, commits=300), rounds=3, calls=5, dirty_bytes=600_000_000),
    Size.SMALLEST: _Plan(repository=Amounts(files=40, commits=8), rounds=1, calls=1, dirty_bytes=1_000_000),
}


def measure(size: Size) -> list[Result]:
    """Both backends; the bars are for the one that is chosen here by itself, the pool has one of its own."""
    plan = _PLANS[size]
    with tempfile.TemporaryDirectory(prefix="debug-server-bench-") as name:
        folder = Path(name)
        commits = generate(folder / "remote", plan.repository)
        reason = why_overlay_fails(folder)
        results: list[Result] = []
        if reason is None:
            results += _Backend(folder, "overlay", commits, plan).figures(judged=True)
        else:
            results.append(Skipped(name="overlay", reason=reason))
        return results + _Backend(folder, "pool", commits, plan).figures(judged=reason is not None)


class _Backend:
    """One backend's pool over the generated repository, beside plain worktrees of it."""

    def __init__(self, folder: Path, backend: str, commits: list[str], plan: _Plan) -> None:
        self._folder, self._backend, self._commits, self._plan = folder, backend, commits, plan
        self._remote = folder / "remote"
        self._known = commits[len(commits) // 2]
        self._numbers = itertools.count()

    def figures(self, *, judged: bool) -> list[Result]:
        """Everything about this backend; without ``judged`` most of it for information."""
        with ExitStack() as stack:
            store = stack.enter_context(open_store(f"sqlite:///{self._folder}/{self._backend}.db"))
            repository = store.repositories.create(name=self._backend, remote_url=str(self._remote))
            settings = WorktreePoolSettings(
                repository_id=repository.id,
                remote_url=str(self._remote),
                bare_path=self._folder / f"{self._backend}.git",
                worktree_root=self._folder / self._backend,
                backend=self._backend,
            )
            self._pool = WorktreePool(store, settings)
            with self._lease(self._known):
                pass  # the mirror and the first tree
            results = [*self._acquire(), self._unseen(), self._status(), self._patch(), *self._release()]
        return [result if judged or _own_bar(result) else _unjudged(result) for result in results]

    def _lease(self, commit: str) -> WorktreeLease:
        return self._pool.acquire_worktree(commit_sha=commit, owner="bench", environment_hash=None)

    def _timed_lease(self, commit: str) -> float:
        self._rest()
        began = time.perf_counter()
        lease = self._lease(commit)
        seconds = time.perf_counter() - began
        lease.release()
        return seconds

    def _figure(self, name: str, value: float, unit: str, bar: Bar | None, facts: dict[str, Fact]) -> Figure:
        return Figure(name=f"{self._backend}.{name}", value=round(value, 4), unit=unit, bar=bar, facts=facts)

    def _acquire(self) -> list[Result]:
        ours: list[float] = []

        def acquire() -> float:
            for _ in range(self._plan.calls):
                ours.append(self._timed_lease(self._known))
            return ours[-1]

        def add() -> float:
            with self._plain_worktree() as seconds:
                return seconds

        _, plain = interleaved(acquire, add, rounds=self._plan.rounds)
        taken = Samples.of(ours[self._plan.calls :])  # without the warm-up
        facts = taken.facts("ours") | plain.facts("git_worktree_add")
        times = at_least(80 if self._backend == "overlay" else 5)
        return [
            self._figure("acquire_known", milliseconds(taken.p50), "ms", at_most(5), facts),
            self._figure("acquire_known_times_faster", plain.p50 / taken.p50, "times", times, {}),
        ]

    @contextmanager
    def _plain_worktree(self) -> Iterator[float]:
        """What ``git worktree add`` took; the worktree is there meanwhile."""
        path = self._folder / f"plain-{self._backend}-{next(self._numbers)}"
        yield timed(lambda: git("worktree", "add", "--detach", str(path), self._known, cwd=self._remote))
        git("worktree", "remove", "--force", str(path), cwd=self._remote)

    def _unseen(self) -> Result:
        """Each commit once, walking away from the known one."""
        begin = len(self._commits) // 2 + 1
        unseen = self._commits[begin : begin + self._plan.rounds * self._plan.calls]
        samples = Samples.of([self._timed_lease(commit) for commit in unseen])
        return self._figure("acquire_unseen", milliseconds(samples.p50), "ms", at_most(60), samples.facts("ours"))

    def _status(self) -> Result:
        path = self._folder / f"plain-{self._backend}"
        git("worktree", "add", "--detach", str(path), self._known, cwd=self._remote)

        def fresh() -> float:
            with self._lease(self._known) as lease:
                return timed(lambda: git("status", "--porcelain", cwd=lease.path))

        ours, warm = interleaved(
            fresh,
            lambda: timed(lambda: git("status", "--porcelain", cwd=path)),
            rounds=self._plan.rounds * self._plan.calls,
            warm_up=2,
        )
        facts = ours.facts("ours") | warm.facts("warm_worktree")
        return self._figure("first_status", ours.p50 / warm.p50, "times", at_most(2), facts)

    def _patch(self) -> Result:
        with self._lease(self._known) as lease:
            _change(lease.path)
            patch = SessionPatch(lease.diff())
        rounds = self._plan.rounds * self._plan.calls
        (samples,) = interleaved(lambda: self._patch_once(patch), rounds=rounds)
        return self._figure("patch_of_10_files", milliseconds(samples.p50), "ms", at_most(15), samples.facts("ours"))

    def _patch_once(self, patch: SessionPatch) -> float:
        with self._lease(self._known) as lease:
            return timed(lambda: apply_patch(lease.path, patch, patches_dir=self._folder / "patches"))

    def _release(self) -> list[Result]:
        rounds = self._plan.rounds * self._plan.calls
        figures = self._release_figures("", [self._release_once() for _ in range(rounds)], {})
        name = f"_with_{self._plan.dirty_bytes // 1_000_000}_mb_dirty"
        if reason := dirty_pages.why_not(self._folder, self._plan.dirty_bytes):
            return [*figures, Skipped(name=f"{self._backend}.release{name}", reason=reason)]
        taken, dirty = [], []
        for _ in range(self._plan.rounds):
            with dirty_pages.dirtied(self._folder / "elsewhere", self._plan.dirty_bytes) as amount:
                taken.append(self._release_once())
            dirty.append(amount)
        return [*figures, *self._release_figures(name, taken, {"dirty_mb_at_least": min(dirty) // 1_000_000})]

    def _release_figures(self, name: str, taken: list[tuple[float, float]], more: dict[str, Fact]) -> list[Result]:
        """The call, and the time until what was released is clean and can be leased again."""
        call, ready = (Samples.of(list(values)) for values in zip(*taken, strict=True))
        return [
            self._figure(f"release{name}", milliseconds(call.p50), "ms", None, call.facts("ours") | more),
            self._figure(f"ready_again{name}", milliseconds(ready.p50), "ms", at_most(5), ready.facts("ours") | more),
        ]

    def _release_once(self) -> tuple[float, float]:
        """Of a workspace that was worked in."""
        self._rest()
        lease = self._lease(self._known)
        _change(lease.path)
        began = time.perf_counter()
        lease.release()
        called = time.perf_counter()
        self._rest()
        return called - began, time.perf_counter() - began

    def _rest(self) -> None:
        """Until nothing is being cleaned in the background."""
        spares = self._pool.settings.state_dir / "spares"
        while any(not (spare / "git" / "clean").exists() for spare in spares.glob("*")):
            time.sleep(0.0005)


def _change(workspace: Path) -> None:
    for path in sorted(workspace.glob("pkg0*/sub*/*.py"))[:_PATCHED_FILES]:
        path.write_text("# changed\n" + path.read_text())


def _own_bar(result: Result) -> bool:
    return result.name == "pool.acquire_known_times_faster"


def _unjudged(result: Result) -> Result:
    return replace(result, bar=None) if isinstance(result, Figure) else result
