"""Plans: the data of a session or a command that controls the engine and has no other column.

A plan is typed and versioned, has its own column, and never changes after it is written. ``metadata`` belongs to the
caller and has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from debug_server.errors import InvalidInputError, StoreUnavailableError
from debug_server.model.isolation import Level, Network

VERSION = 1
SYSTEM = "system"  # in the place of a version of Python: no environment, the programs of the machine
UNCOMMITTED_PATCH = "uncommitted.patch"  # artifact of a closed session: what its branch tree had not committed


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPlan:
    """The environment that a session's commands run in. Without manifests, the project's own files decide."""

    manifests: tuple[str, ...] = ()  # by their names in the workspace; ("none",): nothing but the interpreter
    python: str | None = None
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        *,
        manifests: Sequence[str] = (),
        python: str | None = None,
        extras: Sequence[str] = (),
        groups: Sequence[str] = (),
    ) -> Self | None:
        """None if ``python`` is ``system``: then commands run without an environment."""
        if python == SYSTEM:
            if manifests or extras or groups:
                raise InvalidInputError("python 'system' means no environment: leave manifests, extras and groups out")
            return None
        return cls(manifests=tuple(manifests), python=python, extras=tuple(extras), groups=tuple(groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchWorktreePlan:
    """A worktree of a user's repository, on a branch."""

    repository: str
    path: str
    branch: str
    cleanup: bool  # remove the worktree when the session closes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """The worker, instance and declaration of a command, by which recovery finds it."""

    name: str
    instance: int
    fingerprint: str  # of the declaration


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """Where a session's commands run, in which environment, and what happens at its end.

    At most one of ``directory``, ``commit``, ``scratch`` and ``branch_tree`` is set; a session that was opened with a
    lease has none of them.
    """

    directory: str | None = None  # an existing directory
    commit: str | None = None  # lease a workspace of this commit when the first command starts
    scratch: bool = False  # an empty directory, removed at the end
    branch_tree: BranchWorktreePlan | None = None
    environment: EnvironmentPlan | None = None
    process: str | None = None  # owner name of a process: close the session when it is dead and all commands ended
    after: tuple[str, ...] = ()  # argv of a program to run when the session closes
    forked_from: int | None = None

    def to_json(self) -> dict[str, Any]:
        """For a column."""
        return _to_json(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """From a column."""
        known = _known(cls, data, "session")
        if (tree := known.get("branch_tree")) is not None:
            known["branch_tree"] = BranchWorktreePlan(**tree)
        if (wanted := known.get("environment")) is not None:
            known["environment"] = EnvironmentPlan(**_tuples(wanted))
        return cls(**known)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPlan:
    """How a command is run, and what happens at its end."""

    inline: bool = False  # run in the foreground: its caller waits in the same process
    worker: WorkerIdentity | None = None  # a run of a supervised worker, whose supervisor handles its end
    closes_session: bool = False  # the session is closed after it
    artifacts: tuple[str, ...] = ()  # patterns of files to keep when it has ended
    require: tuple[str, ...] = ()  # limits and layers that must be in force
    isolation: Level | None = None  # a level; None: the default
    network: Network | None = None  # a policy; None: the default
    stdin: bool = False  # a pipe to write to
    wrapper: tuple[str, ...] = ()
    pre_kill: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()  # variables whose values are redacted in the log
    containers: bool = False
    relay: bool = False
    orphan_seconds: float | None = None

    @property
    def may_have_follow_up(self) -> bool:
        """Whether there is something to do after the command's end."""
        return bool(self.artifacts) or self.closes_session or self.inline

    def to_json(self) -> dict[str, Any]:
        """For a column."""
        return _to_json(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """From a column."""
        known = _known(cls, data, "command")
        if (worker := known.get("worker")) is not None:
            known["worker"] = WorkerIdentity(**worker)
        return cls(**known)


def _to_json(value: Any) -> dict[str, Any]:
    """The version, and the fields that differ from their defaults."""
    values = {item.name: getattr(value, item.name) for item in fields(value)}
    return {"version": VERSION} | {
        item.name: _plain(values[item.name]) for item in fields(value) if values[item.name] != item.default
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if hasattr(value, "__dataclass_fields__"):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return value


def _known(cls: type, data: dict[str, Any], what: str) -> dict[str, Any]:
    version = data.get("version", VERSION)
    names = {item.name for item in fields(cls)}
    given = {name: value for name, value in data.items() if name != "version"}
    if version != VERSION or not given.keys() <= names:
        raise StoreUnavailableError(
            f"a {what} in the database was written by a newer debug-server (plan version {version}): upgrade this one"
        )
    return _tuples(given)


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
