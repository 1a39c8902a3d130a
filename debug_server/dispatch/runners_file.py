"""``config/runners.yml``: which runner has which skills, in which repositories, with which limits."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from debug_server.config.cron import Rule, parse_rule
from debug_server.dispatch.globs import check_glob
from debug_server.dispatch.yaml_file import Section, parse_document
from debug_server.errors import ConfigurationError, InvalidInputError

ALL: Final = "all"
EXECUTORS = ("bash", "python", "grpc")
PRIORITIES = {"critical": 300, "high": 200, "med": 100, "low": 0}
TRIGGERS = ("push", "pr", "dispatch", "schedule")
WORKSPACES = ("root", "leased")
DEFAULT_TIMEOUT = 60.0
_CONCURRENCY, _QUEUE = 8, 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_LONGEST_SKILL = 80  # the task id of a scheduled event has runner, skill and time in 200 characters
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_RPC = re.compile(r"(?:[A-Za-z_][\w.]*\.)?[A-Za-z_]\w*\.[A-Za-z_]\w*")
_TARGET = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """What else starts a runner, besides an event for one of its skills."""

    type: str
    paths: tuple[str, ...] = ()  # of push and pr: globs; empty: any path
    rule: Rule | None = None  # of schedule
    skill: str = ""  # of schedule: the skill that it starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """One entry of the file."""

    name: str
    description: str
    executor: str
    program: str  # cmd or module, or the target of a grpc runner
    rpc: str | None
    skills: tuple[str, ...]
    triggers: tuple[Trigger, ...]
    repos: tuple[str, ...] | None  # None: all
    priority: str
    timeout: float
    concurrency: int
    queue: int
    workspace: str
    scan_patterns: tuple[str, ...]

    def serves(self, repository: str) -> bool:
        """Whether it may work in the repository."""
        return self.repos is None or repository in self.repos


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnersFile:
    """The parsed file."""

    path: Path
    meta: Mapping[str, str]
    runners: Mapping[str, Runner]

    def runner_for(self, skill: str) -> Runner | None:
        """The runner with the skill, or None; a skill belongs to one runner at most."""
        return next((runner for runner in self.runners.values() if skill in runner.skills), None)


def parse_runners(path: Path, text: str, repositories: frozenset[str], repositories_path: Path) -> RunnersFile:
    """Parse and check the file; ConfigurationError names file, line and fix."""
    document = parse_document(path, text)
    meta = document.section("meta")
    facts = {name: meta.text(name) or "" for name in meta} if meta is not None else {}
    entries = document.section("runners")
    if entries is None:
        document.refuse("runners", "the key 'runners' is missing")
    document.finish()
    found: dict[str, Runner] = {}
    owners: dict[str, tuple[str, int]] = {}
    for name in entries:
        if not _NAME.fullmatch(name):
            entries.refuse(name, f"runner {name!r} may contain only letters, digits, '.', '_' and '-'")
        entry = entries.entry(name)
        runner = _runner(name, entry, facts.get("timezone", "UTC"))
        _check_skills(runner, entry, owners)
        _check_repositories(runner, entry, repositories, repositories_path)
        entry.finish()
        found[name] = runner
    return RunnersFile(path=path, meta=facts, runners=found)


def _runner(name: str, entry: Section, zone: str) -> Runner:
    executor = entry.choice("executor", EXECUTORS)
    skills = entry.texts("skills")
    repos = _repos(entry)
    return Runner(
        name=name,
        description=entry.text("description") or "",
        executor=executor,
        program=_program(entry, executor),
        rpc=_rpc(entry, executor),
        skills=skills,
        triggers=tuple(_trigger(item, skills, zone, index) for index, item in _numbered(entry)),
        repos=repos,
        priority=entry.choice("priority", PRIORITIES, "med"),
        timeout=entry.number("timeout", DEFAULT_TIMEOUT, low=0.1, high=86_400),
        concurrency=entry.whole("concurrency", _CONCURRENCY, low=1, high=1000),
        queue=entry.whole("queue", _QUEUE, low=1, high=1_000_000),
        workspace=entry.choice("workspace", WORKSPACES, "root"),
        scan_patterns=entry.texts("scan_patterns"),
    )


def _numbered(entry: Section) -> list[tuple[int, Section]]:
    """Triggers, each with its index among the triggers of its type."""
    seen: dict[str, int] = {}
    found = []
    for item in entry.sections("triggers"):
        kind = item.choice("type", TRIGGERS)
        found.append((seen.get(kind, 0), item))
        seen[kind] = seen.get(kind, 0) + 1
    return found


def _repos(entry: Section) -> tuple[str, ...] | None:
    node = entry.node("repos")
    if node is None:
        entry.refuse("repos", f"{entry.what} has no 'repos': list names of repos.yml, or write all")
    if node.value == ALL:
        return None
    return entry.texts("repos")


def _program(entry: Section, executor: str) -> str:
    key = {"bash": "cmd", "python": "module", "grpc": "target"}[executor]
    for other in {"cmd", "module", "target", "rpc"} - {key, *(["rpc"] if executor == "grpc" else [])}:
        if other in entry:
            entry.refuse(other, f"{entry.what} has executor {executor!r}, which must not have {other!r}")
    value = entry.text(key)
    if not value:
        entry.refuse(key, f"{entry.what} has executor {executor!r} and needs {key!r}")
    if executor == "python" and not _MODULE.fullmatch(value):
        entry.refuse(key, f"module {value!r} of {entry.what} must be a dotted name")
    if executor == "bash" and not _inside(_words(entry, key, value)[0]):
        entry.refuse(key, f"cmd {value!r} of {entry.what} must be a relative path without '..'")
    if executor == "grpc" and not _is_target(value):
        entry.refuse(key, f"target {value!r} of {entry.what} must be host:port, the port from 1 to 65535")
    return value


def _is_target(value: str) -> bool:
    found = _TARGET.fullmatch(value)
    return found is not None and 1 <= int(found[2]) <= 65535


def _words(entry: Section, key: str, value: str) -> list[str]:
    """Split like ``programs`` does, so that a bad command line is refused when the file is read."""
    try:
        words = shlex.split(value)
    except ValueError as error:
        entry.refuse(key, f"{key} {value!r} of {entry.what} cannot be split into words: {error}")
    if not words or not words[0]:
        entry.refuse(key, f"{key} {value!r} of {entry.what} names no program")
    return words


def _rpc(entry: Section, executor: str) -> str | None:
    if executor != "grpc":
        return None
    value = entry.text("rpc")
    if not value or not _RPC.fullmatch(value):
        entry.refuse("rpc", f"rpc {value!r} of {entry.what} must be Service.Method")
    return value


def _inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return not pure.is_absolute() and ".." not in pure.parts


def _trigger(item: Section, skills: tuple[str, ...], zone: str, index: int) -> Trigger:
    kind = item.choice("type", TRIGGERS)
    paths, cron = item.texts("paths"), item.text("cron")
    try:
        for path in paths:
            check_glob(path)
        rule = parse_rule(cron, item.text("timezone") or zone) if cron is not None else None
    except InvalidInputError as error:
        raise ConfigurationError(f"{item.path}:{item.line}: {error}") from error
    if (kind == "schedule") != (rule is not None):
        item.refuse("cron", f"a trigger of type {kind!r} {'needs' if rule is None else 'must not have'} 'cron'")
    if paths and kind not in ("push", "pr"):
        item.refuse("paths", f"a trigger of type {kind!r} must not have 'paths'")
    skill = item.text("skill")
    if skill is not None and skill not in skills:
        item.refuse("skill", f"skill {skill!r} of {item.what} is not one of the runner's")
    if kind == "schedule" and skill is None:
        if not skills:
            item.refuse("skill", f"{item.what} is a schedule of a runner without skills: give the runner a skill")
        skill = skills[min(index, len(skills) - 1)]
    item.finish()
    return Trigger(type=kind, paths=paths, rule=rule, skill=skill or "")


def _check_skills(runner: Runner, entry: Section, owners: dict[str, tuple[str, int]]) -> None:
    for skill in runner.skills:
        if len(skill) > _LONGEST_SKILL:
            entry.refuse("skills", f"skill {skill[:40]!r} of {runner.name} is longer than {_LONGEST_SKILL} characters")
        if skill in owners:
            other, line = owners[skill]
            entry.refuse(
                "skills",
                f"skill {skill!r} of {runner.name} belongs to {other} (line {line}): remove it from one of them",
            )
        owners[skill] = (runner.name, entry.line_of("skills"))


def _check_repositories(runner: Runner, entry: Section, known: frozenset[str], path: Path) -> None:
    for name in runner.repos or ():
        if name not in known:
            entry.refuse("repos", f"repository {name!r} of {runner.name} is not in {path}: add it there")
