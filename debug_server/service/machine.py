"""Examines what this machine can do, by trying it; used by ``debug-server doctor``."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from debug_server.engine import SessionWorkspace
from debug_server.errors import DebugServerError, StoreUnavailableError
from debug_server.model import CommandSpec, SessionPlan
from debug_server.model.extras import install_command, is_installed
from debug_server.runner.environments.builders import CONDA_PROGRAMS
from debug_server.runner.environments.uv_builder import find_uv
from debug_server.runner.limits import WHOLE_TREE, Capabilities, controller_of, enforcers
from debug_server.runner.sandbox.landlock import SCOPES_SINCE
from debug_server.runner.settings import RunnerPaths, RunnerSettings, shell_command
from debug_server.runner.worker import WorkerSupervisor
from debug_server.service.foreground import current_folder
from debug_server.service.free_space import require_free_space
from debug_server.store import MetadataStore, open_store
from debug_server.worktrees.git import run_git
from debug_server.worktrees.overlay import why_overlay_fails

_DELEGATION_ADVICE = "run where control groups are delegated to this user (root, or a systemd unit with Delegate=yes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    area: str
    name: str
    state: str  # ok, optional (not installed, and not needed), degraded, missing, failed (commands cannot run)
    detail: str
    remedy: str | None = None


_NAMESPACE_ADVICE = (
    "allow user namespaces: sysctl user.max_user_namespaces=10000, and where they exist "
    "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0"
)


class Machine:
    """Checks everything that commands need."""

    def __init__(
        self,
        *,
        settings: RunnerSettings,
        open_store: Callable[[], MetadataStore],
        capabilities: Callable[[], Capabilities],
    ) -> None:
        self._settings = settings
        self._open_store = open_store
        self._capabilities = capabilities

    def examine(self) -> Iterator[Finding]:
        """Yield each finding as soon as it is known."""
        python = f"{platform.python_version()} at {sys.executable}"
        yield Finding(area="machine", name="python", state="ok", detail=python)
        yield Finding(area="machine", name="kernel", state="ok", detail=f"{platform.system()} {platform.release()}")
        yield from self._store()
        yield from self._processes()
        yield from _workspaces(self._settings)
        yield from _environments()
        yield from _optional()

    def _store(self) -> Iterator[Finding]:
        def opened() -> str:
            store = self._open_store()
            return f"{store.address}, {store.events.last()} events"

        def space() -> str:
            self._settings.paths.prepare()
            root = self._settings.paths.artifacts_root
            require_free_space(self._settings.paths)
            return f"{shutil.disk_usage(root).free >> 20} MiB free in {root.resolve()}"

        yield _check("store", "database", opened, "see the reason, or set DEBUG_SERVER_DB_URL to another database")
        yield _check("store", "disk", space, "see the reason, or set DEBUG_SERVER_PATHS_ARTIFACTS to another folder")
        yield _package_finding("store", "postgresql", is_installed("psycopg"), "psycopg", install_command("postgres"))

    def _processes(self) -> Iterator[Finding]:
        yield _check(
            "commands",
            "run",
            lambda: _trial_run(self._settings),
            "see the reason; commands cannot run until it is fixed",
        )
        try:
            found = self._capabilities()
        except StoreUnavailableError:  # already reported for the database
            return
        except DebugServerError as error:
            yield Finding(area="commands", name="containment", state="failed", detail=str(error))
            return
        has_cgroup = found.mechanism.startswith("cgroup")
        controllers = ", ".join(sorted(found.controllers)) or "no controllers"
        namespaces = ", ".join(sorted(found.namespaces)) or "none"
        yield Finding(
            area="commands",
            name="containment",
            state="ok" if has_cgroup else "degraded",
            detail=f"{found.mechanism} ({controllers}); own namespaces: {namespaces}",
            remedy=None if has_cgroup else _DELEGATION_ADVICE,
        )
        yield from _limits(found)
        yield from _isolation(found)


def _check(area: str, name: str, probe: Callable[[], str], remedy: str) -> Finding:
    try:
        return Finding(area=area, name=name, state="ok", detail=probe())
    except (DebugServerError, OSError) as error:
        return Finding(area=area, name=name, state="failed", detail=str(error), remedy=remedy)


def _trial_run(settings: RunnerSettings) -> str:
    """Run a command in a temporary folder."""
    current_folder()  # where users' commands run
    with tempfile.TemporaryDirectory(prefix="debug-server-doctor-") as folder:
        root = Path(folder)
        trial = RunnerSettings(RunnerPaths.from_root(root), settings.default_shell, containment=settings.containment)
        store = open_store(f"sqlite:///{root}/metadata.db")
        supervisor = WorkerSupervisor(metadata_store=store, paths=trial.paths, environment_manager=None, settings=trial)
        try:
            session = store.sessions.create(plan=SessionPlan(directory=folder))
            spec = CommandSpec(shell_command(settings.default_shell, "exit 0"))
            record = supervisor.run_command(session.id, spec, SessionWorkspace(path=root)).exit
        finally:
            supervisor.close()
            store.close()
    if record.exit_code != 0:
        raise DebugServerError(f"{settings.default_shell} ended with {record.reason.value}: {record.message}")
    return f"{settings.default_shell} ran and left no process, in {record.wall_seconds:.3f} s"


def _limits(found: Capabilities) -> Iterator[Finding]:
    for name, by in enforcers(found).items():
        weak = by is None or (name in WHOLE_TREE and by != "cgroup")
        scope = "nothing" if by is None else f"{by}, for each process separately" if weak else str(by)
        yield Finding(
            area="limits",
            name=name,
            state="degraded" if weak else "ok",
            detail=f"enforced by {scope}",
            remedy=f"delegate the {controller_of(name)} controller" if weak else None,
        )


def _isolation(found: Capabilities) -> Iterator[Finding]:
    """The layers that confine commands; see docs/security.md."""
    kernel = found.isolation
    why = kernel["namespace"]
    yield Finding(
        area="isolation",
        name="namespace",
        state="degraded" if why else "ok",
        detail=f"cannot be had here: {why}" if why else "own files, users, processes and network for each command",
        remedy=_NAMESPACE_ADVICE if why else None,
    )
    version = kernel["landlock"]
    yield Finding(
        area="isolation",
        name="landlock",
        state="ok" if version >= SCOPES_SINCE else "degraded",
        detail=f"version {version}" if version else "the kernel has none, or it is switched off",
        remedy=None if version >= SCOPES_SINCE else f"a kernel with Landlock {SCOPES_SINCE}: Linux 6.12 or later",
    )
    yield Finding(
        area="isolation",
        name="seccomp",
        state="ok" if kernel["seccomp"] else "degraded",
        detail="a filter of system calls" if kernel["seccomp"] else "no filter for this kernel or processor",
    )


def _workspaces(settings: RunnerSettings) -> Iterator[Finding]:
    try:
        version = run_git("--version").stdout.decode().strip()
        yield Finding(area="workspaces", name="git", state="ok", detail=version)
    except DebugServerError as error:
        remedy = "install git: without it, commands run in folders, but not in workspaces of a repository"
        yield Finding(area="workspaces", name="git", state="missing", detail=str(error), remedy=remedy)
    try:
        reason = why_overlay_fails(settings.paths.artifacts_root)
    except OSError as error:
        reason = str(error)
    remedy = "run as root on a filesystem that supports overlay mounts: workspaces are then ready in milliseconds"
    yield Finding(
        area="workspaces",
        name="backend",
        state="degraded" if reason else "ok",
        detail=f"pool of git worktrees ({reason})" if reason else "overlay mounts",
        remedy=remedy if reason else None,
    )


def _environments() -> Iterator[Finding]:
    uv, conda = find_uv(), next(filter(None, map(shutil.which, CONDA_PROGRAMS)), None)
    remedy = "pip install uv; without it, venv and pip are used"
    yield _package_finding("environments", "uv", uv is not None, uv or "", remedy)
    venv = is_installed("ensurepip")
    instead = "not needed: uv is used" if uv else "install python3-venv, or uv"
    yield _package_finding("environments", "venv", venv, "of the standard library", instead)
    rattler = is_installed("rattler")
    yield _package_finding("environments", "conda", rattler, "py-rattler", install_command("conda"))
    instead = "not needed: py-rattler is used" if rattler else "install py-rattler, micromamba, mamba or conda"
    yield _package_finding("environments", "conda program", conda is not None, conda or "", instead)


def _optional() -> Iterator[Finding]:
    for area, name, module, extra in (
        ("telemetry", "opentelemetry", "opentelemetry.sdk", "otel"),
        ("runners", "secret scanning", "detect_secrets", "runners"),
        ("runners", "Markdown checks", "markdown_it", "runners"),
    ):
        yield _package_finding(area, name, is_installed(module), "installed", install_command(extra))


def _package_finding(area: str, name: str, found: bool, detail: str, remedy: str) -> Finding:
    if found:
        return Finding(area=area, name=name, state="ok", detail=detail)
    return Finding(area=area, name=name, state="optional", detail="not installed", remedy=remedy)
