"""Prepares a claimed command before its keeper starts it: applies its patch and gets its environment."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from debug_server.errors import DebugServerError, PatchApplicationError
from debug_server.ports import Lease
from debug_server.runner.cancellation import Cancellation
from debug_server.runner.log_format import STREAM_CODES, LogWriter

if TYPE_CHECKING:
    from debug_server.runner.environment import EnvironmentHandle, EnvironmentManager, EnvironmentRequest
    from debug_server.worktrees.patches import SessionPatch

_LOG = logging.getLogger(__name__)
_COMPILE_SECONDS = 60.0


class StageLog:
    """The log of a command before its keeper writes to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: LogWriter | None = None

    def write(self, text: str, stream: str = "system") -> None:
        """Append text; the first call creates the file."""
        if self._writer is None:
            self._writer = LogWriter(self._path)
        self._writer.write(STREAM_CODES[stream], text.encode("utf-8", "replace"))

    @property
    def begun(self) -> bool:
        """Whether anything was written."""
        return self._writer is not None

    def close(self) -> None:
        """Close the log, so that the keeper can write to it."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Preparation:
    """The stages before the start."""

    def __init__(
        self,
        *,
        environments: Callable[[], EnvironmentManager | None],
        patches_dir: Path,
        base_env: Mapping[str, str],
    ) -> None:
        self._environments = environments
        self._patches_dir = patches_dir
        self._base_env = base_env
        self._compiling: list[threading.Thread] = []

    def patch(self, workspace: Path, patch: SessionPatch, log: StageLog, cancellation: Cancellation) -> None:
        """Apply a patch; PatchApplicationError and StartCancelledError leave the workspace as it was."""
        from debug_server.worktrees.patches import apply_patch

        begun = time.monotonic()
        try:
            kept = apply_patch(workspace, patch, patches_dir=self._patches_dir, on_cancel=cancellation.on_request)
        except PatchApplicationError:
            cancellation.check()
            raise
        log.write(f"[debug-server] patch: applied {kept.name} in {time.monotonic() - begun:.3f} s\n")

    def environment(
        self,
        request: EnvironmentRequest | None,
        lease: Lease,
        log: StageLog,
        stack: ExitStack,
        cancellation: Cancellation,
    ) -> tuple[EnvironmentHandle | None, dict[str, str]]:
        """The requested environment and its variables; it is not removed while ``stack`` is open."""
        if request is None or (environments := self._environments()) is None:
            return None, {}
        from debug_server.runner.environment import workspace_environment

        if (request := environments.detected(request, log=log)) is None:
            return None, {}
        force = bool(getattr(lease, "needs_dependency_sync", False))
        handle = environments.ensure(request, force=force, log=log, cancellation=cancellation)
        stack.enter_context(handle.hold())
        if handle.build is not None:
            found = "reused" if handle.build.hit else f"built {len(handle.build.packages)} packages for"
            log.write(f"[debug-server] environment: {found} {handle.path.name} in {handle.build.seconds:.3f} s\n")
            if not handle.build.hit:
                self._compile_later(environments, handle)
        return handle, workspace_environment(handle, Path(lease.path), base_env=self._base_env)

    def _compile_later(self, environments: EnvironmentManager, handle: EnvironmentHandle) -> None:
        """Compile bytecode while the first command runs, so that later commands need not."""
        thread = threading.Thread(target=_compile, args=(environments, handle), name="bytecode", daemon=True)
        thread.start()
        self._compiling = [other for other in self._compiling if other.is_alive()] + [thread]

    def close(self) -> None:
        """Wait for background work."""
        deadline = time.monotonic() + _COMPILE_SECONDS
        for thread in self._compiling:
            thread.join(max(0.0, deadline - time.monotonic()))


def _compile(environments: EnvironmentManager, handle: EnvironmentHandle) -> None:
    try:
        environments.compile_bytecode(handle)
    except DebugServerError as error:
        _LOG.warning("bytecode_not_compiled", extra={"environment": str(handle.path), "error": str(error)})
