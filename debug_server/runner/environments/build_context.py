"""Runs a build tool: in its own session, with selected variables and a deadline, its output in the log."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.disk import make_private, remove_tree
from debug_server.errors import EnvironmentBuildError
from debug_server.ports import LogSink
from debug_server.runner.cancellation import Cancellation
from debug_server.runner.environments.build_processes import BUILD_VARIABLE, kill_build

_LAST_LINES = 20
_DRAIN_SECONDS = 2.0  # wait for output after the tool has ended: a grandchild may still hold the pipe open
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")

_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|TEMP|TMP|XDG_.*"
    r"|ALL_PROXY|HTTP_PROXY|HTTPS_PROXY|NO_PROXY|NETRC|SSH_AUTH_SOCK|GIT_SSH_COMMAND"
    r"|GIT_SSL_CAINFO|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|UV_.*|PIP_.*|MAMBA_.*|RATTLER_.*|CONDA_OVERRIDE_.*|CONDA_PKGS_.*|CONDARC"
    r"|CC|CXX|CFLAGS|CXXFLAGS|CPPFLAGS|LDFLAGS|LD_LIBRARY_PATH|LIBRARY_PATH|PKG_CONFIG_PATH"
    r"|RUSTFLAGS|CARGO_HOME|RUSTUP_HOME|SOURCE_DATE_EPOCH",
    re.IGNORECASE,  # proxies are spelled both ways
)
# These would install into another place than the environment, or change what is installed.
_REDIRECTING = re.compile(
    r"UV_(PROJECT.*|WORKING_DIRECTORY|PYTHON|SYSTEM_PYTHON|BREAK_SYSTEM_PACKAGES|FROZEN|LOCKED|NO_SYNC|ENV_FILE)"
    r"|PIP_(TARGET|PREFIX|ROOT|USER|PYTHON|REQUIREMENT|CONSTRAINT|DRY_RUN)"
)


def tool_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a build tool gets: search path, proxies, package indexes; no secrets and no Python paths."""
    source = os.environ if base is None else base
    kept = {
        name: value for name, value in source.items() if _PASSED.fullmatch(name) and not _REDIRECTING.fullmatch(name)
    }
    return {**kept, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """The target folder, deadline, log and cancellation of one build."""

    target: Path
    temporary: Path  # the tools' TMPDIR, for the holder of the build lock alone
    deadline: float  # of time.monotonic()
    log: LogSink
    bypass_cache: bool = False  # take nothing from the tool's own cache
    cancellation: Cancellation = field(default_factory=Cancellation)  # of the command that it is built for

    def write_line(self, text: str) -> None:
        """Write one line of debug-server to the log."""
        self.log.write(f"{text}\n", stream="system")

    def remaining(self) -> float:
        """Seconds until the deadline; EnvironmentBuildError when it has passed, StartCancelledError when cancelled."""
        self.cancellation.check()
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise EnvironmentBuildError("the environment was not ready before its deadline: allow more build time")
        return left

    def run(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, hint: str = "") -> None:
        """Run one tool to its end; a failure is an EnvironmentBuildError with ``hint`` and its last lines."""
        self.remaining()
        # A private TMPDIR: uv locks files with fixed names there, and in a shared folder another user could hold the
        # locks.
        remove_tree(self.temporary)  # left by a killed builder
        make_private(self.temporary)
        try:
            self._run(argv, cwd, {**tool_environment(), **(env or {}), "TMPDIR": str(self.temporary)}, hint)
        finally:
            remove_tree(self.temporary)

    def _run(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], hint: str) -> None:
        listener = _OutputLog(self.log)
        process = _spawn(argv, cwd, {**env, BUILD_VARIABLE: self.target.name})
        in_time = False
        try:
            in_time = _read_output(process, listener, self.deadline, self.cancellation)
        finally:
            _kill_group(process)
            if not in_time:
                kill_build(self.target.name)
        listener.close()
        if not in_time:
            self.cancellation.check()
            raise _failure(argv, "did not end before the deadline and was killed", listener)
        if process.returncode:
            what = f"ended with status {process.returncode}"
            raise _failure(argv, f"{what} ({hint})" if hint else what, listener)


class _OutputLog:
    """Turns a tool's bytes into whole lines for the log and keeps the last ones."""

    def __init__(self, log: LogSink) -> None:
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        self.last: deque[str] = deque(maxlen=_LAST_LINES)

    def feed(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + self._decoder.decode(data)).split("\n")
        for line in lines:
            self._line(line)

    def close(self) -> None:
        self.feed(b"\n" if self._partial else b"")

    def _line(self, line: str) -> None:
        # Index URLs may contain a password. Whole lines, so that a password is never split.
        text = _CREDENTIALS.sub("****@", line.rstrip("\r"))
        self._log.write(f"{text}\n", stream="system")
        if text.strip():
            self.last.append(text)


def _spawn(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentBuildError(f"build tool {argv[0]!r} cannot be started: {error.strerror}") from error


def _read_output(
    process: subprocess.Popen[bytes], listener: _OutputLog, deadline: float, cancellation: Cancellation
) -> bool:
    """Read until the tool has ended and all output was read; False if the deadline or a cancellation came first."""
    assert process.stdout is not None
    output = process.stdout.fileno()
    ended, cancelled = os.pidfd_open(process.pid), os.eventfd(0, os.EFD_CLOEXEC)
    poller = select.poll()
    for fd in (output, ended, cancelled):
        poller.register(fd, select.POLLIN)
    try:
        with cancellation.on_request(lambda: os.eventfd_write(cancelled, 1)):
            return _read_to_end(process, listener, deadline, poller, (output, ended, cancelled))
    finally:
        os.close(ended)
        os.close(cancelled)


def _read_to_end(
    process: subprocess.Popen[bytes],
    listener: _OutputLog,
    deadline: float,
    poller: select.poll,
    descriptors: tuple[int, int, int],
) -> bool:
    output, ended, cancelled = descriptors
    while True:
        left = deadline - time.monotonic()
        ready = [fd for fd, _ in poller.poll(max(left, 0) * 1000)]
        if cancelled in ready:
            return False
        if not ready:
            return process.poll() is not None
        if ended in ready:
            poller.unregister(ended)
            deadline = min(deadline, time.monotonic() + _DRAIN_SECONDS)
            process.wait()
        if output in ready:
            data = os.read(output, 65536)
            if not data:
                return _wait(process, deadline)
            listener.feed(data)


def _wait(process: subprocess.Popen[bytes], deadline: float) -> bool:
    try:
        process.wait(max(deadline - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # Kill the whole group: it may outlive its leader, also when the tool ended by itself.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _failure(argv: Sequence[str], what: str, listener: _OutputLog) -> EnvironmentBuildError:
    command = " ".join(Path(word).name if index == 0 else word for index, word in enumerate(argv))
    output = "\n".join(listener.last) or "(no output)"
    return EnvironmentBuildError(_CREDENTIALS.sub("****@", f"`{command[:300]}` {what}"), tool_output=output)
