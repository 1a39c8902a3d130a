"""Refuses settings by which a cloned repository could choose a shell or a database.

A file that git tracks came with the repository, although the user who cloned it owns the file. A settings file of this
kind that the search finds may set only a shell that /etc/shells lists, and folders inside its own work tree that have
no tracked files. Environment variables and a file that the user names (``--config``) may set anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from debug_server.config.declare import settings_of
from debug_server.config.git_index import tracking_tree
from debug_server.config.load import Loaded
from debug_server.config.runner import DEFAULT_SHELL, RunnerConfig
from debug_server.errors import ConfigurationError

_SHELLS = Path("/etc/shells")


def check_cloned(loaded: Loaded[RunnerConfig], file: Path | None, environ: Mapping[str, str]) -> None:
    """ConfigurationError if a cloned repository sets a forbidden value, or tracks files in the data folder."""
    tree = tracking_tree(file) if file is not None else None
    if tree is not None and file is not None:
        _check_file(loaded, file, tree, environ)
    for key, path in _found_paths(loaded):
        if tracking_tree(path) is not None:
            raise ConfigurationError(
                f"{path} ({key}) has files that git tracks: data that came with a repository is not used. "
                f"If it is yours: git rm -r --cached {path}; else set DEBUG_SERVER_PATHS_ARTIFACTS to another folder"
            )


def _check_file(loaded: Loaded[RunnerConfig], file: Path, tree: Path, environ: Mapping[str, str]) -> None:
    shell, trusted = loaded.value.runner.default_shell, loaded.value.workspaces.trusted_repositories
    refused = {}
    if shell not in _known_shells(environ):
        refused["runner.default_shell"] = f"{shell!r} is not in {_SHELLS}"
    if trusted:
        refused["workspaces.trusted_repositories"] = "only the user may choose whom to trust"
    for key, path in _found_paths(loaded):
        if not path.resolve().is_relative_to(tree.resolve()):
            refused[key] = f"{path} is outside the repository"
    for key, reason in refused.items():
        if loaded.source(key) == str(file):
            raise ConfigurationError(
                f"{file} came with a git repository and may not set {key}: {reason}. "
                f"If you want that value, set {settings_of(RunnerConfig)[key].variable}"
            )


def _known_shells(environ: Mapping[str, str]) -> set[str]:
    try:
        listed = _SHELLS.read_text(errors="replace").split("\n")
    except OSError:
        listed = []
    shells = {line.strip() for line in listed if line.startswith("/")}
    return shells | {DEFAULT_SHELL, "/bin/sh", environ.get("SHELL", DEFAULT_SHELL)}


def _found_paths(loaded: Loaded[RunnerConfig]) -> list[tuple[str, Path]]:
    """The folders that come from a file or a default, not from a variable (also not through the data folder)."""
    paths = loaded.value.paths
    found = {f"paths.{name}": getattr(paths, name) for name in ("artifacts", "logs", "environments", "patches")}
    named = {key for key in found if loaded.source(key).startswith("variable")}
    if "paths.artifacts" in named:
        named |= {key for key in found if loaded.source(key) == "default"}
    return [(key, path) for key, path in found.items() if key not in named]
