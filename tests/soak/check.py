"""The proof: every command has its one end and all of its bytes, and nothing else is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.errors import NotFoundError
from debug_server.model import Command, ExitReason, ExitRecord
from debug_server.runner.log_format import index_path
from debug_server.runner.log_reader import LogReader
from tests.soak.campaign import Campaign, adopted
from tests.soak.planned_commands import PlannedCommand

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The figures of a run, and everything that must not be."""

    figures: dict[str, Any]
    violations: list[str]


def check(campaign: Campaign) -> Result:
    """Look at everything; call after ``finish`` and before ``close``."""
    left = campaign.spawner.await_empty()
    checker = _Checker(campaign)
    violations = [*_processes(campaign, left), *checker.commands(), *_files(campaign), *_groups(campaign)]
    return Result(figures=checker.figures(), violations=violations)


def _processes(campaign: Campaign, left: list[int]) -> Iterator[str]:
    record = campaign.record
    yield from (f"process {pid} is left: {_command_line(pid)}" for pid in left)
    yield from (f"a keeper crashed: {text}" for text in record.crashes)
    if record.server_status:
        yield f"the last servers ended with status {record.server_status}"
    if text := campaign.spawner.stderr.read_text():
        yield f"servers wrote to stderr: {text}"
    if record.server_kills and not adopted(campaign.root):
        yield "no command of a killed server was adopted"


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return "(gone by now)"


def _groups(campaign: Campaign) -> Iterator[str]:
    yield from (f"control group {path} is left" for path in campaign.spawner.groups.left())


def _files(campaign: Campaign) -> Iterator[str]:
    """Nothing but logs and the folder's name may be left, and of logs only the ones that commands name."""
    paths = campaign.paths
    for directory in (paths.keepers_dir, paths.owners_dir):
        left = set(directory.rglob("*")) - {paths.owners_dir / "identity"}
        yield from (f"{path} is left" for path in sorted(left))
    logs = {command.log_path for command in map(campaign.store.commands.get, campaign.record.submitted)}
    known = {name for path in logs if path for name in (path, index_path(path))}
    found = {str(path.absolute()) for path in paths.logs_dir.rglob("*") if path.is_file()}
    yield from (f"{path} is left and no command's log" for path in sorted(found - known))
    yield from (f"{path} is missing" for path in sorted(known - found))
    kept = {paths.keepers_dir, paths.owners_dir, paths.logs_dir, paths.artifacts_root / ".gitignore"}
    yield from (f"{path} is left" for path in sorted(paths.artifacts_root.iterdir()) if path not in kept)


class _Checker:
    """Compares each command's row, events, log and traces with what was planned."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._record = campaign.record
        self._ends = self._count_ends()
        self._starts = Counter(int(line) for line in campaign.traces.journal.read_text().split())
        self._reasons: Counter[str] = Counter()
        self._carried_on = 0
        self._bytes = 0

    def _count_ends(self) -> Counter[int | None]:
        ends: Counter[int | None] = Counter()
        cursor = 0
        while events := self._campaign.store.events.read(cursor, _AT_ONCE, kind="command.finished"):
            cursor = events[-1].seq
            ends.update(event.command_id for event in events)
        return ends

    def figures(self) -> dict[str, Any]:
        """What happened, in numbers; call after ``commands``."""
        submitted = self._record.submitted
        return {
            "server_kills": self._record.server_kills,
            "keeper_kills": len(self._record.killed_keepers),
            "outages": self._record.outages,
            "commands": len(submitted),
            "kinds": dict(sorted(Counter(planned.kind for planned in submitted.values()).items())),
            "reasons": dict(sorted(self._reasons.items())),
            "adopted": len(adopted(self._campaign.root)),
            "running_without_a_server": len(self._record.orphaned),
            "of_those_exited_0_later": self._carried_on,
            "log_bytes_compared": self._bytes,
        }

    def commands(self) -> Iterator[str]:
        """Everything that is wrong with any command."""
        for number, planned in self._record.submitted.items():
            command = self._campaign.store.commands.get(number)
            for text in self._command(command, planned):
                yield f"command {number} ({planned.kind}, token {planned.token}, seed {planned.seed}): {text}"
        unknown = sorted(set(self._ends) - set(self._record.submitted), key=str)
        yield from (f"command {number} has an end and was never submitted" for number in unknown)

    def _command(self, command: Command, planned: PlannedCommand) -> Iterator[str]:
        if not command.status.terminal or command.exit is None:
            yield f"is {command.status}, attempt {command.attempt}, owner {command.owner}"
            return
        if self._ends[command.id] != 1:
            yield f"has {self._ends[command.id]} ends"
        self._reasons[command.exit.reason.value] += 1
        self._carried_on += command.id in self._record.orphaned and command.exit_code == 0
        yield from self._reason(command.exit, planned)
        yield from self._journal(command.exit, planned)
        yield from self._log(command, command.exit, planned)

    def _reason(self, record: ExitRecord, planned: PlannedCommand) -> Iterator[str]:
        if record.reason is ExitReason.LOST:
            keeper = record.evidence.get("keeper", {})
            if (keeper.get("pid"), keeper.get("start_time")) not in self._record.killed_keepers:
                yield f"is lost although nobody killed its keeper: {record}"
        elif record.reason is ExitReason.CANCELLED:
            if not planned.cancelled:
                yield f"is cancelled although nobody asked: {record}"
        elif (record.reason, record.exit_code) != (planned.reason, planned.code):
            yield f"ended as {record.reason} {record.exit_code} instead of {planned.reason} {planned.code}: {record}"

    def _journal(self, record: ExitRecord, planned: PlannedCommand) -> Iterator[str]:
        starts = self._starts[planned.token]
        ended_itself = record.reason in (ExitReason.EXITED, ExitReason.NONZERO_EXIT, ExitReason.SIGNALED)
        if starts > 1 or starts < ended_itself or (starts and record.reason is ExitReason.SPAWN_FAILED):
            yield f"ended as {record.reason} and was started {starts} times"

    def _log(self, command: Command, record: ExitRecord, planned: PlannedCommand) -> Iterator[str]:
        if command.log_path is None:
            if record.reason is not ExitReason.CANCELLED or self._starts[planned.token]:
                yield f"ended as {record.reason} without a log"
            return
        try:
            with LogReader(command.log_path) as reader:
                if not reader.ended():
                    yield f"log {command.log_path} has no end"
                streams = {name: b"".join(reader.stream_bytes(name)) for name in ("stdout", "stderr")}
        except NotFoundError as error:
            yield str(error)
            return
        self._bytes += sum(map(len, streams.values()))
        if record.reason is not ExitReason.LOST:
            counted = {"stdout": record.stdout_bytes, "stderr": record.stderr_bytes}
            if counted != {name: len(data) for name, data in streams.items()}:
                yield f"its record counts {counted}, its log has {[len(data) for data in streams.values()]}"
        least = self._least(record, planned)
        for name, wanted in planned.written().items():
            yield from _compare(name, streams[name], wanted, least[name])

    def _least(self, record: ExitRecord, planned: PlannedCommand) -> dict[str, int]:
        """How many bytes must be there: all, or what the child says that its pipe took, or any number."""
        if record.reason in (ExitReason.LOST, ExitReason.CANCELLED):
            return {"stdout": 0, "stderr": 0}
        if record.reason is ExitReason.TIMED_OUT:
            path = self._campaign.traces.progress / str(planned.token)
            text = path.read_text() if path.exists() else ""
            return {"stdout": int(text[:10] or 0), "stderr": int(text[10:] or 0)}
        return {name: len(data) for name, data in planned.written().items()}


def _compare(name: str, found: bytes, wanted: bytes, least: int) -> Iterator[str]:
    if not wanted.startswith(found):
        same = next((i for i, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), len(wanted))
        yield f"{name} differs at byte {same}: {len(found)} bytes in the log, {len(wanted)} written"
    elif len(found) < least:
        yield f"{name} has {len(found)} bytes, at least {least} were written"
