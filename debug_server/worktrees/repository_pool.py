"""The pool of a registered repository: settings of the machine, overridden by those of the repository."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from debug_server.config import WorkspacesConfig, settings_of
from debug_server.errors import InvalidInputError
from debug_server.model import Repository
from debug_server.worktrees.leases import LeaseHolders, WorktreeStore
from debug_server.worktrees.pool import WorktreePool
from debug_server.worktrees.repository_trust import Trust
from debug_server.worktrees.settings import WorktreePoolSettings

OWN_SETTINGS = (
    *("backend", "submodules", "max_worktrees", "lease_ttl_seconds"),
    *("fetch_timeout", "max_fetch_bytes", "max_tree_bytes"),
)


def build_pool_from_repository(
    store: WorktreeStore,
    repository: Repository,
    *,
    bare_path: Path,
    worktree_root: Path,
    defaults: WorkspacesConfig | None = None,
    holders: LeaseHolders | None = None,
) -> WorktreePool:
    """The pool of a registered repository, whose ``settings`` may override any of ``OWN_SETTINGS``."""
    machine = defaults or WorkspacesConfig()
    own = {name: getattr(machine, name) for name in OWN_SETTINGS} | check_repository_settings(repository.settings)
    settings = WorktreePoolSettings(
        repository_id=repository.id,
        remote_url=repository.remote_url,
        bare_path=bare_path,
        worktree_root=worktree_root,
        lease_ttl=timedelta(seconds=own.pop("lease_ttl_seconds")),
        acquire_timeout=machine.acquire_timeout,
        tree_budget_bytes=machine.budget,
        trust=Trust(listed=machine.trusted_repositories),
        **own,
    )
    return WorktreePool(store, settings, holders=holders)


def check_repository_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a repository that concern its workspaces; InvalidInputError for a wrong value."""
    known = settings_of(WorkspacesConfig)
    found = {}
    for name in OWN_SETTINGS:
        if (value := settings.get(name)) is None:
            continue
        try:
            found[name] = known[name].kind.check(value)
        except ValueError as error:
            raise InvalidInputError(
                f"repository setting {name} = {value!r} must be {known[name].kind.expected}"
            ) from error
    return found
