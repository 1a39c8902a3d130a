"""Runs git in the repository that the program was started in, without what the repository's configuration names.

Filters, drivers, hooks, monitors, editors: a configuration can name programs in some thirty ways. So git works through
a view, a temporary common directory with our configuration and links to the repository's objects and refs. HEAD, the
index and what an unfinished operation leaves are the repository's own.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runners.kit.errors import JobError
from runners.kit.text import single_line

SECONDS = 120
# Hooks, monitors and prompts would run other programs or wait for input.
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.quotePath": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
}
_SHARED = ("objects", "refs", "packed-refs", "reftable", "logs", "info", "shallow", "worktrees")
# What is kept of the user's and the repository's configuration: none of it names a program.
_FORMAT = ("core.repositoryformatversion", "extensions.objectformat", "extensions.refstorage")
_KEPT = (
    *("core.filemode", "core.ignorecase", "core.symlinks", "core.precomposeunicode", "core.logallrefupdates"),
    *("core.autocrlf", "core.eol", "core.sparsecheckout", "core.sparsecheckoutcone", "core.excludesfile"),
    *("user.name", "user.email"),
)
_WORD = re.compile(r"[A-Za-z0-9]{1,16}")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """git in the repository at ``root``."""

    root: Path
    environ: Mapping[str, str]
    settings: Mapping[str, str]

    def __call__(self, *arguments: str) -> GitResult:
        """Run git; a nonzero status is returned, not raised."""
        settings = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
        try:
            done = subprocess.run(
                ["git", *settings, *arguments],
                cwd=self.root,
                env=self.environ,
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


@contextmanager
def open_repository(root: Path) -> Iterator[Git | None]:
    """git in the repository whose top folder is ``root``; None if there is none, or git refuses its owner."""
    found = Git(root=root, environ=_environ(root), settings=_SETTINGS)  # it only looks: nothing of it runs a program
    top = found("rev-parse", "--show-toplevel")
    if not top.ok or Path(_path(top.output)) != root:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="runner-git-") as folder:
        view = Path(folder)
        kept = _configuration(found)
        _fill(view, Path(_path(found.must("rev-parse", "--path-format=absolute", "--git-common-dir"))), kept)
        pinned = {
            "GIT_DIR": _path(found.must("rev-parse", "--absolute-git-dir")),
            "GIT_COMMON_DIR": folder,
            "GIT_WORK_TREE": str(root),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
        }
        settings = {name: kept[name] for name in _KEPT if name in kept}
        yield Git(root=root, environ={**found.environ, **pinned}, settings={**settings, **_SETTINGS})


def _environ(root: Path) -> dict[str, str]:
    # Without a ceiling git would search for a repository in the folders above.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own = {"GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"}
    return {**inherited, **own, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def _path(output: str) -> str:
    return output.removesuffix("\n")


def _configuration(git: Git) -> dict[str, str]:
    """The last value of each setting; a name without a value is true."""
    items = (item.partition("\n") for item in git.must("config", "--list", "-z").split("\0") if item)
    return {name: value if equals else "true" for name, equals, value in items}


def _fill(view: Path, common: Path, configuration: Mapping[str, str]) -> None:
    for name in _SHARED:
        if (common / name).exists() or name == "packed-refs":  # the first packed ref makes that file
            (view / name).symlink_to(common / name)
    config = ""
    for name in _FORMAT:
        if _WORD.fullmatch(configuration.get(name, "")):
            section, _, key = name.partition(".")
            config += f"[{section}]\n\t{key} = {configuration[name]}\n"
    (view / "config").write_text(config)
