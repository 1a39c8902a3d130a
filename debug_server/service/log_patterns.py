"""Patterns of failures in logs: failing test ids by framework, error lines, the heads of tracebacks."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LINE = 2048  # bytes of one line that patterns look at
MAX_TEXT = 240  # characters of one line that are shown
MAX_TRACEBACK = 1 << 14  # bytes from a traceback's first line to its last

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = dict.fromkeys((*range(9), *range(10, 32), *range(127, 160)), "\ufffd")

TEST_NEEDLES = (b"FAIL", b"ERROR", b"not ok ", b"(Failed)", b"\xe2\x97\x8f ", b"rspec ./")
ERROR_NEEDLES = (  # of lower-case text
    *(b"error", b"fail", b"fatal", b"panic", b"exception", b"segmentation", b"killed", b"not found"),
    *(b"no such file", b"denied", b"out of memory", b"timed out", b"undefined ", b"cannot find"),
    *(b"\ne  ", b"\ne: ", b"npm err!", b"not ok "),
)
PYTHON_TRACEBACK = b"Traceback (most recent call last):"
TRACE_NEEDLES = (PYTHON_TRACEBACK, b"Error", b"Exception", b"panicked at", b"panic: ", b"\nE  ")

_TAP = rb"\s*not ok \d+\b(?![^#\n]*#\s*(?i:todo)\b)"  # is expected to fail
_FRAMEWORKS = (
    ("pytest", rb"(?:\[gw\d+\] (?:\[ *\d+%\] )?)?(?:FAILED|ERROR) (?P<pytest>[^\s:]+(?:::.+?|\.py))(?: - .*)?$"),
    ("pytest", rb"(?P<verbose>[^\s:]+::.+?) (?:FAILED|ERROR)\b"),
    ("unittest", rb"(?:FAIL|ERROR): (?P<name>\w+) \((?P<unittest>[\w.<>]+)\)"),
    ("go", rb"\s*--- FAIL: (?P<go>\S+)"),
    ("cargo", rb"test (?P<cargo>\S+) \.\.\. FAILED"),
    ("googletest", rb"\[ {2}FAILED {2}\] (?P<googletest>\w+\.\S+?)(?:,| \(|$)"),
    ("ctest", rb"\s*\d+ - (?P<ctest>\S+) \((?:Failed|Timeout|SEGFAULT|Not Run)\)"),
    ("jest", rb"\s*\xe2\x97\x8f (?P<jest>.+ \xe2\x80\xba .+)$"),
    ("vitest", rb"\s*FAIL {1,2}(?P<vitest>\S+ > .+)$"),
    ("rspec", rb"rspec (?P<rspec>\./\S+:\d+)"),
    ("tap", _TAP + rb" -? ?(?P<tap>[^#\n]+)"),
)
_FAILING = re.compile(rb"|".join(rb"(?:" + pattern + rb")" for _, pattern in _FRAMEWORKS))
_FRAMEWORK_OF = {"verbose": "pytest", "name": "unittest"}

_STRONG = re.compile(
    rb"^E(?: {2,}|: )\S|^(?:FAILED|ERROR|FAIL)\b|^\s*--- FAIL|^Killed\b|\bpanicked at\b"
    rb"|^npm (?:ERR!|error) |^" + _TAP + rb"|\bld(?:\.\w+)?: (?:undefined|cannot find) "
    rb"|\b[A-Z]\w*(?:Error|Exception)\b(?! (?:handl|class))"
    rb"|(?i:\b(?:fatal|panic|error)(?:\[\w+\])?:)"
    rb"|(?i:segmentation fault|core dumped|command not found|no such file or directory|permission denied"
    rb"|out of memory|undefined (?:reference|symbol))"
)
_WEAK = re.compile(
    rb"(?i)\b(?:errors?|failed|failures?|fatal|panic|exception|aborted|killed|timed out|not found|denied)\b"
)
_NEGATED = re.compile(
    rb"(?i)\b(?:0|no|without) (?:errors?|failed|failures?|exceptions?)\b|\b(?:errors?|failed|failures?)\s*[:=]\s*0\b"
)

_PYTHON = re.compile(re.escape(PYTHON_TRACEBACK) + rb"\r?\n((?:[ \t].*\n)*)(\S.*)")
_FRAME = re.compile(rb'File "([^"\n]+)", line (\d+)(?:, in (\S+))?')
_LOCATION = re.compile(rb"(\S+\.py:\d+): (\w*(?:Error|Exception|Failed|Exit|Interrupt)\w*)$")
_PANIC = re.compile(rb"(?:thread '.*' (?:\(\d+\) )?panicked at (\S+:\d+)|panic: .+)")
_THROWN = re.compile(rb"(?:Exception in thread .+|(?:Uncaught )?[\w.$]*(?:Error|Exception)\b(?:: .*)?)$")
_AT = re.compile(rb"[ \t]+at (\S.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracebackSummary:
    """The head of a traceback: the error, where it was raised, and the length of the traceback in bytes."""

    error: str
    where: str | None
    length: int


def plain(line: bytes) -> bytes:
    """A line as a terminal shows it: without colours, and with the last state of a progress bar."""
    return _ESCAPES.sub(b"", line.rstrip(b"\r").rpartition(b"\r")[2][:MAX_LINE])


def as_shown(line: bytes) -> str:
    """A line for a reader."""
    return plain(line).decode("utf-8", "replace").translate(_CONTROLS).rstrip()


def excerpt(line: bytes) -> str:
    """A line for a reader, cut to a bounded length."""
    text = as_shown(line)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def failing_test(line: bytes) -> tuple[str, str] | None:
    """(framework, id) of the test that ``line`` says failed."""
    found = _FAILING.match(line)
    if found is None or found.lastgroup is None:
        return None
    group = found.lastgroup
    name = found[group].decode("utf-8", "replace").strip()
    if group == "unittest":
        test = found["name"].decode()
        name = name if name.rpartition(".")[2] == test else f"{name}.{test}"
    return _FRAMEWORK_OF.get(group, group), name[:MAX_TEXT]


def is_error(line: bytes) -> bool:
    """Whether a line is certainly an error message."""
    return _STRONG.search(_NEGATED.sub(b"", line)) is not None


def may_be_error(line: bytes) -> bool:
    """Whether a line mentions an error."""
    return _WEAK.search(_NEGATED.sub(b"", line)) is not None


def is_whole_traceback(text: bytes, position: int) -> bool:
    """Whether the Python traceback that starts at ``position`` has its last line in ``text``."""
    found = _PYTHON.match(text, position, position + MAX_TRACEBACK)
    return found is not None and found.end() < len(text)


def parse_traceback(text: bytes, start: int, end: int, explanation: str | None) -> TracebackSummary | None:
    """The head of the traceback whose first line is ``text[start:end]``; reads the following lines if needed."""
    line = plain(text[start:end])
    if PYTHON_TRACEBACK in line:
        return _python(text, start)
    if found := _LOCATION.match(line):
        return TracebackSummary(error=explanation or excerpt(found[2]), where=excerpt(found[1]), length=end - start)
    if found := _PANIC.match(line):
        return TracebackSummary(error=excerpt(line), where=excerpt(found[1]) if found[1] else None, length=end - start)
    next_frame = _AT.match(text[end + 1 : end + 1 + MAX_LINE]) if _THROWN.match(line) else None
    if next_frame is None:
        return None
    return TracebackSummary(error=excerpt(line), where=excerpt(next_frame[1]), length=end - start)


def _python(text: bytes, start: int) -> TracebackSummary | None:
    position = text.index(PYTHON_TRACEBACK, start)
    found = _PYTHON.match(text, position, position + MAX_TRACEBACK)
    if found is None:
        return None
    frames = _FRAME.findall(found[1])
    where = None
    if frames:
        path, number, function = (part.decode("utf-8", "replace") for part in frames[-1])
        where = f"{path}:{number}" + (f" in {function}" if function else "")
    return TracebackSummary(error=excerpt(found[2]), where=where, length=found.end() - start)
