"""A bounded digest of a command's log for readers that cannot read it all; every item has its offset in the log.

``LogDigest`` is fed with pieces of any size, and its memory is bounded. The digest has:

    text         the whole log, if it is short
    first_error  the first line that is certainly an error, or else the first that mentions one
    failing      ids of failing tests
    tracebacks   each exception, and where it was raised
    head, tail   the first and the last lines, runs of lines that differ only in digits folded into one
    repeats      the longest of the other runs
    omitted      how much of each is left out
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from debug_server.messages import Digest, Excerpt, FailingTest, FoldedLine, Omitted, TracebackHead
from debug_server.service import log_patterns
from debug_server.service.digest_budget import fitted

_BLOCK = 1 << 18  # bytes processed at once
_HELD_BACK = 1 << 16  # an incomplete line or traceback is held back up to this many bytes
_WHOLE_TEXT = 6000  # a log of at most so many bytes is included whole
_MIN_REPEATS = 3  # lines in the shortest run that ``repeats`` lists
_HEAD, _TAIL, _REPEATS, _TRACEBACKS = 15, 40, 5, 8
_SHOWN_TESTS, _COUNTED_TESTS = 40, 1000
_TRACEBACK_ATTEMPTS, _ERROR_ATTEMPTS = 1000, 20_000  # a log that says "error" in each line must not cost minutes
_DIGITS = b"0123456789"


@dataclass(slots=True, kw_only=True)
class _Run:
    """A run of lines that may still grow."""

    skeleton: bytes
    offset: int
    end: int
    count: int
    first: bytes
    last: bytes

    def grow(self, *, end: int, count: int, last: bytes) -> None:
        self.end, self.last = end, last
        self.count += count

    def folded(self) -> FoldedLine:
        text, last = log_patterns.excerpt(self.first), log_patterns.excerpt(self.last)
        return FoldedLine(
            offset=self.offset, end=self.end, text=text, count=self.count, last=last if last != text else None
        )


class LogDigest:
    """Builds the digest of a log from ``start`` on."""

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._skipped = 0
        self._pending = bytearray()
        self._offset = start  # of the first pending byte
        self._opening = bytearray()
        self._lines = 0
        self._folds = _Folds()
        self._finds = _Findings()

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        if len(self._opening) <= _WHOLE_TEXT:
            self._opening += data[: _WHOLE_TEXT + 1]
        for position in range(0, len(data), _BLOCK):
            self._pending += data[position : position + _BLOCK]
            if len(self._pending) >= _BLOCK:
                self._process(_complete_bytes(self._pending))

    def skip(self, size: int) -> None:
        """Leave out the next ``size`` bytes: the last lines are those of the bytes that follow."""
        self._process_rest()
        self._skipped += size
        self._offset += size
        self._folds.forget_tail()

    def finish(self, max_tokens: int) -> Digest:
        """Return the digest, cut to ``max_tokens``; ``feed`` must not be called afterwards."""
        self._process_rest()
        size = self._offset - self._start
        found = Digest(
            start=self._start,
            end=self._offset,
            lines=self._lines,
            text=_as_text(self._opening) if size <= _WHOLE_TEXT else None,
            first_error=self._finds.strong or self._finds.weak,
            failing=list(self._finds.tests.values()),
            failing_count=len(self._finds.test_ids),
            tracebacks=self._finds.tracebacks,
            repeats=self._folds.longest(),
            head=self._folds.head(),
            tail=self._folds.tail(),
            omitted=Omitted(lines=0, failing=0, tracebacks=0, repeats=0, skipped_bytes=self._skipped),
        )
        return fitted(found, max_tokens)

    def _process_rest(self) -> None:
        if self._pending:
            self._process(len(self._pending))

    def _process(self, size: int) -> None:
        block = bytes(self._pending[:size])
        del self._pending[:size]
        lines = block.removesuffix(b"\n").split(b"\n")
        self._lines += len(lines)
        self._folds.add(self._offset, lines, block.translate(None, _DIGITS).removesuffix(b"\n").split(b"\n"))
        self._finds.search(self._offset, block)
        self._offset += size


def _as_text(data: bytearray) -> str:
    lines = bytes(data).split(b"\n")
    return "\n".join(log_patterns.plain(line).decode("utf-8", "replace") for line in lines)


def _complete_bytes(pending: bytearray) -> int:
    """How many bytes can be processed: whole lines, without an incomplete traceback at the end."""
    floor = len(pending) - _HELD_BACK
    size = pending.rfind(b"\n", floor) + 1
    if size == 0:
        return len(pending)
    begun = pending.rfind(log_patterns.PYTHON_TRACEBACK, floor, size)
    if begun >= 0 and not log_patterns.is_whole_traceback(bytes(pending[begun:size]), 0):
        return pending.rfind(b"\n", floor, begun) + 1 or size
    return size


class _Folds:
    """The first, the last and the longest runs of similar lines."""

    def __init__(self) -> None:
        self._head: list[_Run] = []
        self._tail: deque[_Run] = deque(maxlen=_TAIL)
        self._longest: list[_Run] = []

    def add(self, base: int, lines: Sequence[bytes], skeletons: Sequence[bytes]) -> None:
        """Add the next lines; ``skeletons`` are the same lines without digits."""
        ends = list(accumulate(map(len, lines)))
        counts = [len(list(group)) for _, group in groupby(skeletons)]
        for index, count in self._wanted(counts):
            last = index + count - 1
            run = _Run(
                skeleton=skeletons[index],
                offset=base + (ends[index - 1] + index if index else 0),
                end=base + ends[last] + last,
                count=count,
                first=lines[index],
                last=lines[last],
            )
            self._append(run, may_continue=index == 0)

    def _wanted(self, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(first line, length) of the runs that may be shown; short ones in the middle are skipped."""
        first_tail_run = len(counts) - _TAIL
        index = 0
        for number, count in enumerate(counts):
            # The first one may continue the last run of the block before.
            if count >= _MIN_REPEATS or number >= first_tail_run or len(self._head) < _HEAD or number == 0:
                yield index, count
            index += count

    def _append(self, run: _Run, *, may_continue: bool) -> None:
        newest = self._tail[-1] if self._tail else None
        if may_continue and newest is not None and newest.skeleton == run.skeleton:
            newest.grow(end=run.end, count=run.count, last=run.last)
            self._rank(newest)
            return
        if not run.first.strip() and not run.last.strip():
            return
        if len(self._head) < _HEAD:
            self._head.append(run)
        self._tail.append(run)
        self._rank(run)

    def _rank(self, run: _Run) -> None:
        if run.count < _MIN_REPEATS:
            return
        others = [item for item in self._longest if item is not run]
        self._longest = sorted([*others, run], key=lambda item: -item.count)[:_REPEATS]

    def forget_tail(self) -> None:
        self._tail.clear()

    def head(self) -> list[FoldedLine]:
        return [run.folded() for run in self._head]

    def tail(self) -> list[FoldedLine]:
        """The last runs, without those of the head."""
        shown = {id(run) for run in self._head}
        return [run.folded() for run in self._tail if id(run) not in shown]

    def longest(self) -> list[FoldedLine]:
        return [run.folded() for run in self._longest]


class _Findings:
    """Finds errors, failing tests and tracebacks; patterns are matched only in lines that contain a needle."""

    def __init__(self) -> None:
        self.strong: Excerpt | None = None
        self.weak: Excerpt | None = None
        self.tests: dict[str, FailingTest] = {}
        self.test_ids: set[str] = set()
        self.tracebacks: list[TracebackHead] = []
        self._explanation: str | None = None  # pytest's first `E` line of the current failure
        self._attempts = self._error_candidates = 0
        self._traceback_end = 0  # where the last traceback ended

    def search(self, base: int, block: bytes) -> None:
        """Search the next lines."""
        if self.strong is None and self._error_candidates < _ERROR_ATTEMPTS:
            for start, end in _lines_with(block, block.lower(), log_patterns.ERROR_NEEDLES):
                self._error(base, start, end, log_patterns.plain(block[start:end]))
                if self.strong is not None:
                    break
        if len(self.test_ids) < _COUNTED_TESTS:
            for start, end in _lines_with(block, block, log_patterns.TEST_NEEDLES):
                self._test(base, start, end, log_patterns.plain(block[start:end]))
        if self._looks_for_tracebacks():
            for start, end in _lines_with(block, block, log_patterns.TRACE_NEEDLES):
                self._traceback(base, start, end, block)

    def _looks_for_tracebacks(self) -> bool:
        return len(self.tracebacks) < _TRACEBACKS and self._attempts < _TRACEBACK_ATTEMPTS

    def _error(self, base: int, start: int, end: int, line: bytes) -> None:
        self._error_candidates += 1
        if log_patterns.is_error(line):
            self.strong = Excerpt(offset=base + start, end=base + end, text=log_patterns.excerpt(line))
        elif self.weak is None and log_patterns.may_be_error(line):
            self.weak = Excerpt(offset=base + start, end=base + end, text=log_patterns.excerpt(line))

    def _test(self, base: int, start: int, end: int, line: bytes) -> None:
        found = log_patterns.failing_test(line)
        if found is None or found[1] in self.test_ids or len(self.test_ids) >= _COUNTED_TESTS:
            return
        framework, name = found
        self.test_ids.add(name)
        if len(self.tests) < _SHOWN_TESTS:
            self.tests[name] = FailingTest(id=name, framework=framework, offset=base + start, end=base + end)

    def _traceback(self, base: int, start: int, end: int, block: bytes) -> None:
        if block.startswith(b"E  ", start):
            self._explanation = self._explanation or log_patterns.excerpt(block[start + 1 : end]).strip()
            return
        if base + start < self._traceback_end or not self._looks_for_tracebacks():
            return
        raised = log_patterns.parse_traceback(block, start, end, self._explanation)
        self._attempts += raised is None and log_patterns.PYTHON_TRACEBACK in block[start:end]
        if raised is None:
            return
        self._explanation = None
        self._traceback_end = base + start + raised.length
        self.tracebacks.append(
            TracebackHead(offset=base + start, end=self._traceback_end, text=raised.error, where=raised.where)
        )


def _lines_with(block: bytes, searched: bytes, needles: Iterable[bytes]) -> list[tuple[int, int]]:
    """(start, end) of each line in which a needle occurs, in order."""
    found: dict[int, int] = {}
    for needle in needles:
        if needle.startswith(b"\n") and searched.startswith(needle[1:]):
            found[0] = _line_end(block, 0)
        position = searched.find(needle)
        while position >= 0:
            inside = position + 1 if needle.startswith(b"\n") else position
            start = block.rfind(b"\n", 0, inside) + 1
            found[start] = end = _line_end(block, inside)
            position = searched.find(needle, end)
    return sorted(found.items())


def _line_end(block: bytes, position: int) -> int:
    end = block.find(b"\n", position)
    return len(block) if end < 0 else end
