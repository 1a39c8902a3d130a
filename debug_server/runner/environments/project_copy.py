"""Lets uv work on a project in its own folder, or in a private copy.

If requirements come from a build that reads files of its own, a copy is made: uv caches the answer of a build by its
folder and the times of three files, and a build may write beside the sources.

If other users can write to a folder above the project, a copy is made, too: uv takes the first ``pyproject.toml`` above
a project as its workspace and then uses its settings, sources and lock; no option disables that. Checking before the
build is not enough, because the file can appear later.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from debug_server.disk import is_shared, make_private, remove_tree, why_distrusted
from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.build_plan import BuildPlan

_END = "pyproject.toml"
# uv follows links to these files and then searches above their targets, so they are copied. Others can be links.
_COPIED = (_END, "setup.py", "setup.cfg", "uv.lock", "uv.toml")


@contextmanager
def safe_project_folder(plan: BuildPlan, context: BuildContext) -> Iterator[BuildPlan]:
    """The plan with a project folder above which no other user can create a ``pyproject.toml``."""
    root, exposed = plan.manifests.root, _others_can_write_above(plan.manifests.root)
    if not exposed and (not plan.manifests.runs_build or plan.manifests.absolute_projects):
        yield _moved(plan, root)
        return
    if plan.manifests.absolute_projects:
        raise EnvironmentBuildError(
            f"other users can put files above {root}, and a requirements file names a folder by its absolute path: "
            "write it relative to the project"
        )
    home = context.temporary.with_name(f"{context.temporary.name}.project")
    remove_tree(home)  # a killed builder's
    make_private(home)
    try:
        (home / _END).touch(mode=0o600)
        # The name is new for each build: uv knows nothing about it yet.
        _copy(root, home / context.target.name, context, whole=plan.manifests.runs_build)
        yield _moved(plan, home / context.target.name)
    finally:
        remove_tree(home)


def copy_whole(root: Path, copy: Path, context: BuildContext) -> None:
    """Copy a project with all its files but those that tools made; its history is a link."""
    _copy(root, copy, context, whole=True)


def _others_can_write_above(root: Path) -> bool:
    for folder in root.parents:
        end = folder / _END
        if end.is_file() and why_distrusted(end) is None:
            return False
        if end.is_file() or is_shared(folder):
            return True
    return False


def _moved(plan: BuildPlan, root: Path) -> BuildPlan:
    """The same manifests below another root."""
    manifests = plan.manifests
    files = {
        kind: tuple(root / _inside(path, manifests.root) for path in paths) for kind, paths in manifests.files.items()
    }
    return dataclasses.replace(plan, manifests=dataclasses.replace(manifests, root=root, files=files))


def _inside(path: Path, root: Path) -> Path:
    # A manifest that is a link keeps its own folder: its includes are relative to that folder.
    named = Path(os.path.realpath(path.parent), path.name)
    return (named if named.is_relative_to(root) else Path(os.path.realpath(path))).relative_to(root)


def _copy(root: Path, copy: Path, context: BuildContext, *, whole: bool) -> None:
    """Create the folders, copy the project files, and link the other files, or copy them if ``whole``.

    What other programs remove meanwhile, such as a cache, is left out.
    """
    waiting = [(root, copy)]
    while waiting:
        source, target = waiting.pop()
        context.remaining()
        target.mkdir(mode=0o700)
        with suppress(FileNotFoundError), os.scandir(source) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and _holds_project_files(entry, copy):
                    waiting.append((Path(entry.path), target / entry.name))
                    continue
                with suppress(FileNotFoundError):
                    _copy_entry(entry, target / entry.name, whole=whole)


def _holds_project_files(entry: os.DirEntry[str], copy: Path) -> bool:
    """Whether a folder may contain project files: not ``.git``, an environment or our data."""
    if entry.name in (".git", "node_modules") or copy.is_relative_to(entry.path):
        return False
    return not os.path.lexists(os.path.join(entry.path, "pyvenv.cfg"))  # noqa: PTH118  one of thousands


def _copy_entry(entry: os.DirEntry[str], target: Path, *, whole: bool) -> None:
    if entry.name in _COPIED or (whole and entry.is_file(follow_symlinks=False) and entry.name != ".git"):
        if entry.is_file():
            shutil.copy(entry.path, target)
    elif entry.is_symlink():
        # An absolute link to a folder could lead back into the original project.
        to = os.readlink(entry.path)  # noqa: PTH115  the text as it is
        if not (to.startswith("/") and entry.is_dir()):
            target.symlink_to(to)
    elif entry.name == ".git" or entry.is_file():
        target.symlink_to(entry.path)
