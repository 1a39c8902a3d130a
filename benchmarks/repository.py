"""A generated repository of many files and commits, and plain git to compare with."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "bench"), ("EMAIL", "bench@localhost"))
}
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"} | _IDENTITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How large the repository is."""

    files: int
    commits: int


def git(*arguments: str, cwd: Path, stdin: bytes | None = None) -> bytes:
    """Plain git, as a user without configuration runs it."""
    return subprocess.run(
        ["git", *arguments], cwd=cwd, env=ENVIRONMENT, input=stdin, check=True, capture_output=True
    ).stdout


def generate(folder: Path, amounts: Amounts, extra: Mapping[str, str] | None = None) -> list[str]:
    """Files in packages, each commit changing five; ``extra`` files from the first on. Returns the commits in order."""
    random_ = random.Random(7)
    folder.mkdir()
    git("init", "-q", "-b", "main", cwd=folder)
    names = [f"pkg{number % 97:02d}/sub{number % 7}/module_{number}.py" for number in range(amounts.files)]
    stream = [_commit(0, {name: _module(name, 0, random_) for name in names} | dict(extra or {}))]
    for number in range(1, amounts.commits):
        changed = random_.sample(names, 5)
        stream.append(_commit(number, {name: _module(name, number, random_) for name in changed}))
    git("fast-import", "--quiet", cwd=folder, stdin=b"".join(stream))
    git("reset", "-q", "--hard", cwd=folder)
    return git("rev-list", "--reverse", "main", cwd=folder).decode().split()


def _module(name: str, number: int, random_: random.Random) -> str:
    return f"# {name} at {number}\n" + "value = 1\n" * random_.randrange(20, 200)


def _commit(number: int, files: Mapping[str, str]) -> bytes:
    head = f"commit refs/heads/main\ncommitter b <b@localhost> {1_600_000_000 + number} +0000\ndata 1\nx\n"
    parts = [head.encode()]
    for name, text in files.items():
        body = text.encode()
        parts.append(b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(body), body))
    return b"".join(parts)
