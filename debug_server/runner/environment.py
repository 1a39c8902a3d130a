"""EnvironmentManager: from a request to a complete, immutable environment that many workspaces share.

    ensure -> plan (manifests, interpreter, builder -> fingerprint)
           -> sealed already?  --yes-->  handle (hit)
           -> build lock       --another built it meanwhile-->  handle (hit)
           -> build at the final path -> inventory -> seal by atomic rename -> handle (miss)

A builder that is killed at any step leaves a folder without a seal; the next builder kills its tool, if it still runs,
and removes the folder.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from debug_server.errors import EnvironmentBuildError, InvalidInputError
from debug_server.ports import LogSink
from debug_server.runner.cancellation import Cancellation
from debug_server.runner.environments import leases
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.build_lock import BuildLock, build_lock
from debug_server.runner.environments.build_need import build_digest, build_need
from debug_server.runner.environments.build_plan import (
    Builder,
    BuildPlan,
    check_metadata,
    difference,
    make_plan,
    with_own_groups,
)
from debug_server.runner.environments.builders import choose_builder
from debug_server.runner.environments.checked_build import build_checked
from debug_server.runner.environments.collector import GRACE_SECONDS, GarbageCollection, collect, remove_superseded
from debug_server.runner.environments.detection import detect_project
from debug_server.runner.environments.handle import BuildReport, EnvironmentHandle
from debug_server.runner.environments.interpreters import Interpreter, Interpreters
from debug_server.runner.environments.inventory import Inventory, distributions_of, take_inventory
from debug_server.runner.environments.layout import Layout, key_of, key_of_directory
from debug_server.runner.environments.listing import InstalledEnvironment, list_environments, record_verified
from debug_server.runner.environments.manifests import ManifestSet, read_manifests
from debug_server.runner.environments.preview import EnvironmentPreview
from debug_server.runner.environments.probes import ProbeCache
from debug_server.runner.environments.project_build import (
    ProjectBuild,
    build_key,
    place,
    placed_before,
    record_of,
    run_build,
)
from debug_server.runner.environments.protection import set_folders_writable
from debug_server.runner.environments.python_choice import choose_python, read_statement
from debug_server.runner.environments.request import EnvironmentRequest
from debug_server.runner.environments.seal import (
    Seal,
    find_damage,
    is_usable,
    read_damage,
    read_inventory,
    read_seal,
    withdraw,
    write_seal,
)
from debug_server.runner.environments.searched_roots import SearchedRoots
from debug_server.runner.environments.workspace import import_roots, workspace_environment
from debug_server.worktrees.dependency_state import DependencyStateStore, safe_key

__all__ = [
    "BuildReport",
    "GarbageCollection",
    "EnvironmentHandle",
    "EnvironmentManager",
    "EnvironmentRequest",
    "InstalledEnvironment",
    "Interpreter",
    "workspace_environment",
]

# With the lowest priority: commands run meanwhile.
_COMPILE = "import compileall, os, sys; os.nice(19); compileall.compile_dir(sys.argv[1], quiet=2, workers=0)"


class _NullLog:
    def write(self, text: str, stream: str = "system") -> None:
        """Drop the text."""


class EnvironmentManager:
    """The environments under one root; any number of managers, in any number of processes, may share it."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        state_store: DependencyStateStore | None = None,
        build_timeout: float = 1800.0,
    ) -> None:
        self.root = Path(root).absolute()
        self._layout = Layout(self.root)
        self._layout.prepare()
        self.state_store = state_store or DependencyStateStore(self._layout.state)
        self._build_timeout = build_timeout
        self._probes = ProbeCache(self._layout.probes)
        self._interpreters = Interpreters(self._probes)
        self._searched = SearchedRoots()

    def ensure(
        self,
        request: EnvironmentRequest,
        *,
        force: bool = False,
        verify: bool = False,
        log: LogSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> EnvironmentHandle:
        """Return the environment for ``request``, and build it if there is none; ``root/<name>`` links to it.

        ``force`` builds a new one; processes that use the old one keep it. ``verify`` checks every file first. ``log``
        gets the output of the build tool as it is written. EnvironmentBuildError contains the last lines of the tool.
        A ``cancellation`` ends the build, or the wait for another build of it, with StartCancelledError; a caller that
        waits for the same environment then builds it.
        """
        cancellation = cancellation or Cancellation()
        begun, asked_ns = time.monotonic(), time.time_ns()
        request = self.detected(request, log=log) or replace(request, detect=False)
        plan = self._make_plan(request)
        if plan.python_reason is not None:
            log = log or _NullLog()
            log.write(f"[debug-server] environment: Python {_python_line(plan)}\n", "system")
        if verify and not force and read_seal(self._layout, plan.fingerprint) is not None:
            self.verify(plan.fingerprint)
        seal, reason = None if force else self._reuse(plan.fingerprint), "sealed"
        hit = seal is not None
        if seal is None:
            seal, reason, hit = self._build_once(plan, asked_ns if force else None, log or _NullLog(), cancellation)
        report = BuildReport(
            hit=hit,
            reason=reason,
            seconds=time.monotonic() - begun,
            builder=seal.builder,
            packages=seal.packages,
            chosen=request.chosen,
            python=_python_line(plan),
        )
        self._record_name(plan, seal)
        return self._handle(seal, report)

    def detected(self, request: EnvironmentRequest, *, log: LogSink | None = None) -> EnvironmentRequest | None:
        """``request`` with what the project's files declare, if it leaves that to them; None if they declare nothing.

        The log gets the choice in one line. Extras and groups of the request replace those that would be chosen.
        """
        if not request.detect:
            return request
        root = Path(request.project_root or Path.cwd())
        found = self._searched.detect(root)
        if not (found or request.metadata or request.extras or request.groups):
            if found.notes and log is not None:
                log.write(f"[debug-server] environment: none ({found.describe()})\n", "system")
            return None
        if found and log is not None:
            log.write(f"[debug-server] environment: {found.describe()}\n", "system")
        named = bool(request.extras or request.groups)
        return replace(
            request,
            detect=False,
            manifests=[root / name for name in found.manifests],
            extras=request.extras if named else found.extras,
            groups=request.groups if named else found.groups,
            packages=[*request.packages, *found.packages],
            chosen=found.describe() if found else None,
        )

    def preview(self, request: EnvironmentRequest) -> EnvironmentPreview:
        """What ``ensure(request)`` would return; builds nothing."""
        root = Path(request.project_root or Path.cwd())
        notes = detect_project(root).notes if request.detect else ()
        detected = self.detected(request)
        if detected is None:
            return EnvironmentPreview(notes=notes)
        plan = self._make_plan(detected)
        return EnvironmentPreview(
            chosen=detected.chosen,
            manifests=tuple(os.path.relpath(path, root) for path in plan.manifests.all()),
            extras=tuple(detected.extras),
            groups=tuple(detected.groups),
            packages=tuple(detected.packages),
            python=f"{plan.interpreter.version} ({plan.interpreter.path})",
            python_reason=plan.python_reason,
            builder=plan.builder.tool,
            fingerprint=plan.fingerprint,
            built=self._reuse(plan.fingerprint) is not None,
            notes=notes,
        )

    def workspace_variables(
        self,
        handle: EnvironmentHandle,
        workspace: Path,
        request: EnvironmentRequest,
        *,
        base_env: Mapping[str, str] | None = None,
        log: LogSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, str]:
        """``workspace_environment`` with the projects of the request's manifests, built where they must be."""
        projects = _projects(request, workspace)
        builds = (
            self._build_project(handle, folder, workspace, log or _NullLog(), cancellation) for folder in projects
        )
        sites = [build.site for build in builds if build is not None]
        return workspace_environment(handle, workspace, base_env=base_env, projects=projects, sites=sites)

    def _build_project(
        self,
        handle: EnvironmentHandle,
        project: Path,
        workspace: Path,
        log: LogSink,
        cancellation: Cancellation | None,
    ) -> ProjectBuild | None:
        """What a build makes of a project, placed beside its sources; None if its sources are all there is."""
        record = record_of(self._layout, project)
        placed = placed_before(record)
        reason = build_need(project, placed=placed)
        if reason is None or handle.fingerprint is None:
            return None
        key = build_key(handle.fingerprint, build_digest(project, placed=placed))
        found = ProjectBuild(folder=self._layout.builds / handle.path.name / f"{key}-build")
        if not found.is_complete:
            begun = time.monotonic()
            with self._locked(key, log, cancellation) as lock:
                lock.end_killed_build()
                if not found.is_complete:
                    log.write(f"[debug-server] project: building it, because {reason}\n", "system")
                    lock.begin(found.folder)
                    context = self._context(found.folder, log, cancellation)
                    roots = import_roots(project)
                    run_build(found, project, roots, python=handle.python_path, placed=placed, context=context)
                    seconds = time.monotonic() - begun
                    log.write(f"[debug-server] project: built in {seconds:.3f} s\n", "system")
                lock.finish()
        place(found, project, record, workspace=workspace)
        return found

    def plan_fingerprint(self, request: EnvironmentRequest) -> str:
        """The fingerprint of the environment that ``ensure(request)`` would return; builds nothing."""
        return self._make_plan(self.detected(request) or replace(request, detect=False)).fingerprint

    def verify(self, fingerprint: str, *, log: LogSink | None = None) -> dict[str, str]:
        """Check every file; returns path -> problem.

        A damaged environment is not used again: the next request rebuilds it.
        """
        with self._locked(fingerprint, log or _NullLog()):
            seal = self._require_seal(fingerprint)
            wrong = find_damage(self._layout, seal, contents=True)
            if not wrong:
                record_verified(self._layout, seal)
            else:
                withdraw(self._layout, seal, wrong, self._packages_of(seal, set(wrong)))
            return wrong

    def has_bytecode(self, handle: EnvironmentHandle) -> bool:
        """Whether ``compile_bytecode`` has finished for this environment."""
        return self._layout.compiled(handle.path.name).exists()

    def compile_bytecode(
        self,
        handle: EnvironmentHandle,
        *,
        log: LogSink | None = None,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Compile the packages to bytecode and seal them again.

        Builds skip this, because it takes many times as long as installing, and commands do not write bytecode. Call it
        when no command waits for the environment. After a ``cancellation`` (StartCancelledError) the next call
        continues where this one stopped.
        """
        if handle.fingerprint is None:
            raise InvalidInputError("only an environment that ensure() returned can be compiled")
        with self._locked(handle.fingerprint, log or _NullLog(), cancellation) as lock, handle.hold():
            seal = self._require_seal(handle.fingerprint)
            target = self._layout.environments / seal.directory
            known = read_inventory(self._layout, seal)
            context = self._context(target, log or _NullLog(), cancellation)
            lock.begin(target)
            try:
                set_folders_writable(target, writable=True)
                context.run([seal.python, "-I", "-c", _COMPILE, str(target / "lib")], cwd=self.root)
                # Only new files get a new digest. A file that was changed since keeps its old one, so that it stays
                # damaged.
                listed = take_inventory(target).entries | (known.entries if known else {})
                write_seal(self._layout, seal, Inventory(listed))
                self._layout.compiled(seal.directory).touch()
            finally:
                set_folders_writable(target, writable=False)
                lock.finish()

    def collect_garbage(
        self,
        *,
        max_idle: float | timedelta | None = None,
        max_bytes: int | None = None,
        grace: float = GRACE_SECONDS,
    ) -> GarbageCollection:
        """Remove environments idle for longer than ``max_idle``, then the longest idle ones above ``max_bytes``.

        An environment that is in use, or was requested in the last ``grace`` seconds, is kept. What killed builders and
        forced rebuilds left is always removed.
        """
        seconds = max_idle.total_seconds() if isinstance(max_idle, timedelta) else max_idle
        return collect(self._layout, max_idle=seconds, max_bytes=max_bytes, grace=grace)

    def installed(self) -> list[InstalledEnvironment]:
        """The complete environments, least recently used first."""
        return list_environments(self._layout)

    def interpreters(self) -> list[Interpreter]:
        """The interpreters that ``metadata={"python": …}`` can name."""
        return self._interpreters.installed()

    def _make_plan(self, request: EnvironmentRequest) -> BuildPlan:
        check_metadata(request)
        manifests = read_manifests(request)
        request = with_own_groups(request, manifests)
        builder = choose_builder(request, manifests, self._probes)
        interpreter, reason = self._choose_python(request, manifests, builder)
        return make_plan(request, manifests, interpreter, builder, python_reason=reason)

    def _choose_python(
        self, request: EnvironmentRequest, manifests: ManifestSet, builder: Builder
    ) -> tuple[Interpreter, str | None]:
        """The interpreter that the request names, else the one for the project, with the reason for that."""
        wanted = (request.metadata or {}).get("python")
        if builder.brings_python or wanted is not None:
            return self._interpreters.find(None if builder.brings_python else wanted), None
        chosen = choose_python(self._interpreters, read_statement(manifests.root, manifests.all()))
        return chosen or (self._interpreters.find(), None)

    def _reuse(self, fingerprint: str) -> Seal | None:
        seal = read_seal(self._layout, fingerprint)
        if seal is None:
            return None
        with leases.shared(self._layout.leases / seal.directory):
            # While we hold the lease, no collector can remove it between this check and the update of its time of last
            # use.
            return seal if read_seal(self._layout, fingerprint) == seal and is_usable(self._layout, seal) else None

    def _build_once(
        self, plan: BuildPlan, since_ns: int | None, log: LogSink, cancellation: Cancellation
    ) -> tuple[Seal, str, bool]:
        with self._locked(plan.fingerprint, log, cancellation) as lock:
            seal = self._reuse(plan.fingerprint)
            # A forced build that began after our request is as new as ours would be.
            if seal is not None and (since_ns is None or seal.started_ns >= since_ns):
                return seal, "built by another meanwhile", True
            reason = self._reason(plan, forced=since_ns is not None)
            self._remove_killed_build(plan, lock)
            log.write(
                f"[debug-server] environment: building with {plan.builder.tool} ({reason})\n",
                "system",
            )
            seal = self._build(plan, lock, log, cancellation)
            remove_superseded(self._layout, key_of(plan.fingerprint))
            return seal, reason, False

    def _remove_killed_build(self, plan: BuildPlan, lock: BuildLock) -> None:
        """Remove what a killed builder left: its tool still running, its folder without a seal."""
        remove_superseded(self._layout, key_of(plan.fingerprint), abandoned=lock.end_killed_build())
        lock.finish()

    def _build(self, plan: BuildPlan, lock: BuildLock, log: LogSink, cancellation: Cancellation) -> Seal:
        key = key_of(plan.fingerprint)
        context = self._context(self._layout.new_directory(key), log, cancellation)
        begun, started_ns = time.monotonic(), time.time_ns()
        damage = read_damage(self._layout, key)
        lock.begin(context.target)
        try:
            if damage is not None and damage.packages:
                plan.builder.drop_from_cache(list(damage.packages), context)
            inventory = build_checked(plan, context)
            self._check_unchanged(plan)
            seal = _new_seal(plan, context.target, started_ns, time.monotonic() - begun)
            with leases.shared(self._layout.leases / seal.directory):
                seal = write_seal(self._layout, seal, inventory)
        except OSError as error:
            raise EnvironmentBuildError(f"the environment could not be written: {error}") from error
        finally:
            if not _is_sealed(self._layout, plan.fingerprint, context.target):
                self._layout.remove(context.target)
            lock.finish()
        self._layout.damage(key).unlink(missing_ok=True)
        return seal

    def _check_unchanged(self, plan: BuildPlan) -> None:
        if read_manifests(plan.request).digest != plan.manifests.digest:
            raise EnvironmentBuildError("a manifest changed while its environment was built: retry")

    def _reason(self, plan: BuildPlan, *, forced: bool) -> str:
        if forced:
            return "forced"
        if (damage := read_damage(self._layout, key_of(plan.fingerprint))) is not None:
            return f"damaged: {damage.problem}"
        if read_seal(self._layout, plan.fingerprint) is not None:
            return "its files or its interpreter are gone"
        state = self.state_store.read(plan.request.name)
        before = None if state is None else state.metadata.get("components")
        return difference(before, plan.components) if isinstance(before, dict) else "not built yet"

    def _packages_of(self, seal: Seal, wrong: set[str]) -> list[str]:
        """The packages whose files in the builder's cache may be damaged too: they are hard links to these files."""
        inventory = read_inventory(self._layout, seal)
        if inventory is None or seal.builder not in ("uv", "venv"):
            return list(seal.packages)
        return distributions_of(self._layout.environments / seal.directory, wrong, inventory.entries)

    def _record_name(self, plan: BuildPlan, seal: Seal) -> None:
        name = plan.request.name
        state = self.state_store.read(name)
        if state is None or (state.fingerprint, state.metadata.get("directory")) != (seal.fingerprint, seal.directory):
            facts = {
                "directory": seal.directory,
                "builder": seal.builder,
                "components": plan.components,
                "chosen": plan.request.chosen,
                "python": _python_line(plan),
            }
            self.state_store.write(name, seal.fingerprint, facts)
        self._link(safe_key(name), seal.directory)

    def _link(self, name: str, directory: str) -> None:
        link, target = self.root / name, f"{self._layout.environments.name}/{directory}"
        if link.is_symlink() and os.readlink(link) == target:  # noqa: PTH115  (compared as text)
            return
        draft = self.root / f".{name}.{secrets.token_hex(4)}"
        draft.symlink_to(target)
        try:
            draft.replace(link)
        except OSError as error:
            draft.unlink()
            raise EnvironmentBuildError(
                f"{str(link)!r} cannot be replaced by a link to the environment: remove it"
            ) from error

    def _handle(self, seal: Seal, report: BuildReport) -> EnvironmentHandle:
        path = self._layout.environments / seal.directory
        return EnvironmentHandle(path, Path(seal.python), seal.fingerprint, home=self.root, build=report)

    def _require_seal(self, fingerprint: str) -> Seal:
        seal = read_seal(self._layout, fingerprint)
        if seal is None:
            raise InvalidInputError(f"there is no environment with the fingerprint {fingerprint!r}")
        return seal

    def _context(self, target: Path, log: LogSink, cancellation: Cancellation | None = None) -> BuildContext:
        deadline = time.monotonic() + self._build_timeout
        return BuildContext(
            target=target,
            temporary=self._layout.temporary(key_of_directory(target.name)),
            deadline=deadline,
            log=log,
            cancellation=cancellation or Cancellation(),
        )

    @contextmanager
    def _locked(self, fingerprint: str, log: LogSink, cancellation: Cancellation | None = None) -> Iterator[BuildLock]:
        path, cancellation = self._layout.lock(key_of(fingerprint)), cancellation or Cancellation()
        with build_lock(path, timeout=self._build_timeout, log=log, cancellation=cancellation) as lock:
            yield lock


def _projects(request: EnvironmentRequest, workspace: Path) -> list[Path]:
    """The folders of the projects that the manifests declare, else the workspace."""
    names = ("pyproject.toml", "setup.py", "setup.cfg", "uv.lock")
    paths = [Path(os.path.abspath(path)) for path in request.manifests or ()]  # noqa: PTH100  (keeps symlinks as named)
    found = list(dict.fromkeys(path.parent for path in paths if path.name in names))
    return [folder for folder in found if folder.is_relative_to(workspace)] or [workspace]


def _python_line(plan: BuildPlan) -> str | None:
    return None if plan.python_reason is None else f"{plan.interpreter.version}, {plan.python_reason}"


def _new_seal(plan: BuildPlan, target: Path, started_ns: int, seconds: float) -> Seal:
    own = target / "bin" / "python"
    return Seal(
        fingerprint=plan.fingerprint,
        directory=target.name,
        python=str(own) if own.exists() else plan.interpreter.path,
        interpreter=plan.components["interpreter"],
        builder=plan.builder.name,
        packages=(),
        inventory="",
        total_bytes=0,
        started_ns=started_ns,
        seconds=seconds,
        boot="",
    )


def _is_sealed(layout: Layout, fingerprint: str, target: Path) -> bool:
    seal = read_seal(layout, fingerprint)
    return seal is not None and seal.directory == target.name
