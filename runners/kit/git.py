"""Runs git in the repository that a program was started in, and in no other."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from runners.kit.refusal import Refusal
from runners.kit.words import single_line

SECONDS = 120
# Hooks, monitors, editors and prompts would run somebody's program or wait for somebody.
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
class Answer:
    """What one git process said."""

    status: int
    output: str
    complaint: str

    @property
    def ok(self) -> bool:
        """Whether git was content."""
        return self.status == 0


class Git:
    """git in one repository whose top folder is ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Without a ceiling git would look for a repository in the folders above.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        quiet = {"GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"}
        self._environ = {**kept, **quiet, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}

    def __call__(self, *arguments: str) -> Answer:
        """Run git to its end; a status other than 0 is an answer."""
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
            raise Refusal("git is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise Refusal(f"git {arguments[0]} did not end within {SECONDS} s") from error
        said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        return Answer(
            status=done.returncode,
            output=done.stdout.decode("utf-8", "surrogateescape"),
            complaint=single_line(said[-1]) if said else f"git ended with status {done.returncode}",
        )

    def must(self, *arguments: str) -> str:
        """Run git; its complaint is the refusal."""
        answer = self(*arguments)
        if not answer.ok:
            raise Refusal(f"git {arguments[0]}: {answer.complaint}")
        return answer.output

    @property
    def here(self) -> bool:
        """Whether this folder is the top of a git repository."""
        answer = self("rev-parse", "--show-toplevel")
        return answer.ok and Path(answer.output.rstrip("\n")) == self.root

    def require(self) -> None:
        """Refuse to go on in a folder that is not the top of a repository."""
        if not self.here:
            raise Refusal(f"{self.root} is not the top folder of a git repository")
