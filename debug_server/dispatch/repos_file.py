"""``config/repos.yml``: the repositories that runners work in."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from debug_server.dispatch.yaml_file import Section, parse_document

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
STAGES = ("dev", "staging", "prod", "legacy", "offline")
_META = ("total_known", "discovered_local", "pending_discovery", "updated", "governor_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """One entry of the file."""

    name: str
    local_path: str
    remote_url: str = ""
    branch: str = "main"
    env_template: str = ""
    gitignore_profile: str = ""
    status: str = "active"
    role: str = ""
    env_stage: str = "dev"
    write_authority: str = ""
    example: bool = False  # created at the start if its path is missing


FIELDS = tuple(field.name for field in dataclasses.fields(Repo) if field.name not in ("name", "example"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReposFile:
    """The parsed file; relative paths start at ``root``."""

    path: Path
    root: Path
    meta: Mapping[str, str]
    repos: Mapping[str, Repo]

    def path_of(self, repo: Repo) -> Path:
        """The path of a repository on this machine; the ~ of an unknown user is kept as it is."""
        return self.root / os.path.expanduser(repo.local_path)  # noqa: PTH111 - pathlib's raises


def parse_repos(path: Path, text: str, root: Path) -> ReposFile:
    """Parse and check the file; ConfigurationError names file, line and fix."""
    document = parse_document(path, text)
    meta = document.section("meta")
    facts = {name: meta.text(name) or "" for name in _META} if meta is not None else {}
    if meta is not None:
        meta.finish()
    entries = document.section("repos")
    if entries is None:
        document.refuse("repos", "the key 'repos' is missing")
    document.finish()
    found = {}
    for name in entries:
        if not NAME.fullmatch(name):
            entries.refuse(name, f"repository {name!r} may contain only letters, digits, '.', '_' and '-'")
        found[name] = _repo(name, entries.entry(name))
    return ReposFile(path=path, root=root, meta=facts, repos=found)


def _repo(name: str, entry: Section) -> Repo:
    local_path = entry.text("local_path")
    if not local_path:
        entry.refuse("local_path", f"{entry.what} has no 'local_path'")
    if ".." in Path(local_path).parts:
        entry.refuse(
            "local_path", f"local_path {local_path!r} of {entry.what} must not contain '..': write the whole path"
        )
    known = {field: value for field in FIELDS if field != "local_path" and (value := entry.text(field)) is not None}
    if known.get("env_stage") is not None:
        entry.choice("env_stage", STAGES)
    example = entry.boolean("example")
    entry.finish()
    return Repo(name=name, local_path=local_path, example=example, **known)
