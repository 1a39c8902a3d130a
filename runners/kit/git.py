"""Runs git in the repository that the program was started in, never in another."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runners.kit.errors import JobError
from runners.kit.text import single_line

SECONDS = 120
# Hooks, monitors, editors and prompts would run other programs or wait for input.
SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "credential.helper": "",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GitResult:
    """The result of one git command."""

    status: int
    output: str
    error: str  # the last line of stderr

    @property
    def ok(self) -> bool:
        """Whether git succeeded."""
        return self.status == 0


class Git:
    """git in the repository at ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Without a ceiling git would search for a repository in the folders above.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        own = {"GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"}
        self._environ = {**inherited, **own, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}

    def __call__(self, *arguments: str) -> GitResult:
        """Run git; a nonzero status is returned, not raised."""
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        try:
            done = subprocess.run(
                ["git", *settings, *arguments],
                cwd=self.root,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=SECONDS,
            )
        except FileNotFoundError as error:
            raise JobError("git is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise JobError(f"git {arguments[0]} did not end within {SECONDS} s") from error
        lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        return GitResult(
            status=done.returncode,
            output=done.stdout.decode("utf-8", "surrogateescape"),
            error=single_line(lines[-1]) if lines else f"git ended with status {done.returncode}",
        )

    def must(self, *arguments: str) -> str:
        """Run git and return its output; JobError with its message if it fails."""
        answer = self(*arguments)
        if not answer.ok:
            raise JobError(f"git {arguments[0]}: {answer.error}")
        return answer.output

    @property
    def is_repository(self) -> bool:
        """Whether ``root`` is the top folder of a git repository."""
        answer = self("rev-parse", "--show-toplevel")
        return answer.ok and Path(answer.output.rstrip("\n")) == self.root

    def require_repository(self) -> None:
        """JobError unless ``root`` is the top folder of a git repository."""
        if not self.is_repository:
            raise JobError(f"{self.root} is not the top folder of a git repository")
