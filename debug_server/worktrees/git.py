"""Runs git: hardened, in its own session, under a deadline; nothing else in the product starts git."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from debug_server.errors import RemoteUnreachableError, ResourcesExhaustedError, UnknownCommitError, WorktreePoolError
from debug_server.model import without_credentials

ALLOWED_PROTOCOLS = ("file", "https", "http", "ssh", "git")
DEFAULT_TIMEOUT = 120.0
# Returns a context manager: a cancellation during its block calls the given function.
OnCancel = Callable[[Callable[[], object]], AbstractContextManager[None]]
_HELD = ("/bin/sh", "-c", 'read -r begin && exec "$0" "$@"')
_MAX_LINES, _MAX_LINE_CHARACTERS = 8, 400
_PIECE = 1 << 16  # bytes that are read at once

_PASSED_VARIABLES = (
    *("PATH", "HOME", "TMPDIR", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
)
_FORCED_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.askPass": "false",
    "core.safecrlf": "false",
    "core.autocrlf": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
    "protocol.version": "2",
}
_REMOTE_UNREADABLE = "fatal: Could not read from remote repository."
_ADVICE = ("Please make sure you have the correct access rights", "and the repository exists.")
_UNREACHABLE = (
    "unable to access",
    "could not read from remote",
    "does not appear to be a git repository",
    "could not resolve host",
    "connection refused",
    "connection timed out",
    "unable to connect",
    "authentication failed",
    "could not read username",
    "could not read password",
    "not a git repository",
    "the remote end hung up",
    "early eof",
)
_UNKNOWN_COMMIT = ("couldn't find remote ref", "not our ref", "unknown revision", "not a valid object name")
_NO_SPACE = ("no space left", "disk quota exceeded", "unable to write file")
_CAUSES = (
    ("signal 25", "the repository is larger than the fetch limit"),  # SIGXFSZ
    ("file too large", "the repository is larger than the fetch limit"),
    ("' not allowed", f"only the protocols {', '.join(ALLOWED_PROTOCOLS)} are allowed"),
)
_CORRUPT = (
    "unable to read",
    "cannot read object",
    "missing blob",
    "missing tree",
    "is corrupt",
    "bad object",
    "bad tree object",
    "failed to read object",
    "inflate:",
    "does not match index",
    "file not in",
    "not a git repository",
    "bad signature",
    "unable to unpack",
    "object file",
    "too short to be a packfile",
    "failed to unpack tree",
    "unable to find",
)
# Printed by git, or by the shell that it starts helpers with, when no more processes or threads can be created.
_EXHAUSTED = re.compile(r"^(?!remote: ).*(?:: Resource temporarily unavailable|: \d+: Cannot fork)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitResult:
    """Status and output of one git process."""

    returncode: int
    stdout: bytes
    stderr: str  # without the credentials in addresses

    @property
    def ok(self) -> bool:
        """Whether git ended with status 0."""
        return self.returncode == 0

    @property
    def error_text(self) -> str:
        """git's error output in one line: each line once, the first ones if there are many.

        When the remote cannot be reached, the reason is in the last lines, from ssh; a banner may come before it.
        """
        lines = dict.fromkeys(line.rstrip() for line in self.stderr.splitlines() if line.strip())
        if _REMOTE_UNREADABLE in lines:
            why = [line[:_MAX_LINE_CHARACTERS] for line in lines if line not in _ADVICE]
            return "; ".join(why[-_MAX_LINES:])
        errors = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))] or list(lines)
        if not errors:
            return f"git ended with status {self.returncode}"
        more = [f"… and {len(errors) - _MAX_LINES} more lines"] if len(errors) > _MAX_LINES else []
        return "; ".join([*(line[:_MAX_LINE_CHARACTERS] for line in errors[:_MAX_LINES]), *more])

    @property
    def exhausted(self) -> bool:
        """Whether git or a helper could create no process or thread: that says nothing about the request."""
        return not self.ok and _EXHAUSTED.search(self.stderr) is not None

    @property
    def corrupt(self) -> bool:
        """Whether the error is about the object store rather than about the request."""
        text = self.stderr.lower()
        return not self.ok and "no space left" not in text and any(sign in text for sign in _CORRUPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitPlace:
    """Where git works: the gitdir and, if any, the working tree and the index."""

    git_dir: Path
    work_tree: Path | None = None
    index_file: Path | None = None
    common_dir: Path | None = None  # overrides the one that the gitdir names

    def variables(self) -> dict[str, str]:
        """Environment variables that pin git to this place, so that it does not search for a gitdir."""
        named = {
            "GIT_DIR": self.git_dir,
            "GIT_COMMON_DIR": self.common_dir,
            "GIT_WORK_TREE": self.work_tree,
            "GIT_INDEX_FILE": self.index_file,
        }
        return {name: str(path) for name, path in named.items() if path is not None}


def run_git(
    *arguments: str,
    place: GitPlace | None = None,
    instead_of: tuple[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = DEFAULT_TIMEOUT,
    max_file_bytes: int | None = None,
    max_memory_bytes: int | None = None,
    lock: int | None = None,
    on_cancel: OnCancel | None = None,
) -> GitResult:
    """Run git and wait for it. A non-zero status is returned, not raised.

    ResourcesExhaustedError if git could create no process or thread; WorktreePoolError after ``timeout``, when its
    process group is killed. ``instead_of`` is (the address to use, the address that it replaces).

    A cancellation through ``on_cancel`` kills git: its status is then -SIGKILL.

    git inherits the descriptor ``lock``: if we are killed, the lock is held until git has ended too.
    """
    held = max_file_bytes is not None  # git fetches at once: a helper that it starts first would have no limit
    process = _start(arguments, place, instead_of=instead_of, lock=lock, held=held)
    limits = {resource.RLIMIT_FSIZE: max_file_bytes, resource.RLIMIT_AS: max_memory_bytes}
    with process, _killed_by(on_cancel, process):
        return _finish(process, arguments, stdin=b"\n" + stdin if held else stdin, timeout=timeout, limits=limits)


def scan_git(
    *arguments: str,
    place: GitPlace,
    more: Callable[[bytes], bool],
    separator: bytes = b"\n",
    timeout: float = DEFAULT_TIMEOUT,
) -> GitResult:
    """Run git and give each line that it prints to ``more``, for output that may be larger than memory.

    Once ``more`` returns False git is killed: its status is then -SIGKILL. Errors as of ``run_git``; the result has no
    stdout.
    """
    with _start(arguments, place) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in _lines(process.stdout.fileno(), separator, time.monotonic() + timeout):
                if not more(line):
                    process.kill()
                    break
            error = process.stderr.read()
            process.wait()
        except TimeoutError as late:
            raise _not_in_time(arguments, timeout) from late
        finally:
            if process.returncode is None:
                process.kill()
    return _result(process.returncode, b"", error)


def _lines(descriptor: int, separator: bytes, deadline: float) -> Iterator[bytes]:
    """The lines of a pipe; TimeoutError when there is nothing to read at the deadline."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    begun = b""
    while True:
        if not poller.poll(max(deadline - time.monotonic(), 0) * 1000):
            raise TimeoutError
        data = os.read(descriptor, _PIECE)
        *lines, begun = (begun + data).split(separator)
        yield from lines
        if not data:
            break
        if time.monotonic() > deadline:
            raise TimeoutError
    if begun:
        yield begun


def _start(
    arguments: tuple[str, ...],
    place: GitPlace | None,
    *,
    instead_of: tuple[str, str] | None = None,
    lock: int | None = None,
    held: bool = False,
) -> subprocess.Popen[bytes]:
    """Start git; ``held``: it begins when it gets a line."""
    env = {**_environment(), **(place.variables() if place else {}), **_redirection(instead_of)}
    cwd = (place.work_tree or place.git_dir) if place else Path("/")
    try:
        return subprocess.Popen(
            [*(_HELD if held else ()), "git", *arguments],
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
        )
    except OSError as error:
        raise (ResourcesExhaustedError.of(error) or _not_started(error, cwd)) from error


def _redirection(instead_of: tuple[str, str] | None) -> dict[str, str]:
    """The setting as environment variables: ``-c`` ends the key at the first ``=``, which an address may contain."""
    if instead_of is None:
        return {}
    (address, replaced), number = instead_of, len(_FORCED_SETTINGS)  # numbered after the forced settings
    return {
        "GIT_CONFIG_COUNT": str(number + 1),
        f"GIT_CONFIG_KEY_{number}": f"url.{address}.insteadOf",
        f"GIT_CONFIG_VALUE_{number}": replaced,
    }


def _not_started(error: OSError, cwd: Path) -> WorktreePoolError:
    if isinstance(error, FileNotFoundError) and cwd.is_dir():
        return WorktreePoolError("git is not installed, or not in PATH: install git")
    return WorktreePoolError(f"git cannot be started in {cwd}: {error.strerror}")


@contextlib.contextmanager
def _killed_by(on_cancel: OnCancel | None, process: subprocess.Popen[bytes]) -> Iterator[None]:
    if on_cancel is None:
        yield
        return
    descriptor = os.pidfd_open(process.pid)  # not by pid: another thread may have reaped it meanwhile

    def kill() -> None:
        with contextlib.suppress(OSError):  # it has ended
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    try:
        with on_cancel(kill):
            yield
    finally:
        os.close(descriptor)


def _finish(
    process: subprocess.Popen[bytes],
    arguments: tuple[str, ...],
    *,
    stdin: bytes,
    timeout: float,
    limits: Mapping[int, int | None],
) -> GitResult:
    try:
        for kind, most in limits.items():
            if most is not None:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(process.pid, kind, (most, most))
        out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise _not_in_time(arguments, timeout) from error
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return _result(process.returncode, out, err)


def _not_in_time(arguments: tuple[str, ...], timeout: float) -> WorktreePoolError:
    return WorktreePoolError(f"git {arguments[0]} did not end within {timeout:g} s and was stopped")


def _result(status: int, out: bytes, err: bytes) -> GitResult:
    result = GitResult(returncode=status, stdout=out, stderr=without_credentials(err.decode(errors="replace")))
    if result.exhausted:  # callers must not take it for a patch that does not apply, or for an unreachable remote
        raise ResourcesExhaustedError(
            "git could not create another process or thread (limit of processes reached): retry later"
        )
    return result


def require(result: GitResult, doing: str) -> bytes:
    """The output of git; if git failed, raises the error of ``error_for``."""
    if result.ok:
        return result.stdout
    raise error_for(result, doing)


def error_for(result: GitResult, doing: str) -> WorktreePoolError:
    """The error class and message for a failed git; ``doing`` says what was attempted."""
    text = result.stderr.lower()
    if any(sign in text for sign in _NO_SPACE):
        full = WorktreePoolError(f"{doing}: no space left on the disk")
        full.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as for files that we write ourselves
        return full
    for sign, meaning in _CAUSES:
        if sign in text:
            return WorktreePoolError(f"{doing}: {meaning}")
    message = f"{doing}: {result.error_text}"
    if any(sign in text for sign in _UNKNOWN_COMMIT):
        return UnknownCommitError(message)
    if any(sign in text for sign in _UNREACHABLE):
        return RemoteUnreachableError(message)
    return WorktreePoolError(message)


def _environment() -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    return {**passed, **_hardening()}


@cache
def _hardening() -> Mapping[str, str]:
    fixed = {
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(Path(__file__).with_name("gitconfig")),
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "SSH_ASKPASS": "false",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "GIT_ALLOW_PROTOCOL": ":".join(ALLOWED_PROTOCOLS),
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "false",
        "GIT_CONFIG_COUNT": str(len(_FORCED_SETTINGS)),
    }
    for number, (key, value) in enumerate(_FORCED_SETTINGS.items()):
        fixed |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return fixed
