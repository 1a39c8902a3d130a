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
from debug_server.runner.cancellation import Cancellation, StartCancelledError
from debug_server.runner.log_format import STREAM_CODES, LogWriter

if TYPE_CHECKING:
    from debug_server.runner.environment import EnvironmentHandle, EnvironmentManager, EnvironmentRequest
    from debug_server.worktrees.patches import SessionPatch

_LOG = logging.getLogger(__name__)
_COMPILE_SECONDS = 60.0  # to end the compilation, which takes an instant


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
        self._compiling: dict[Path, threading.Thread] = {}
        self._closed = Cancellation()
        self._synced: set[str] = set()  # leases whose environment was built anew

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
        if (request := environments.detected(request, log=log)) is None:
            return None, {}
        token = getattr(lease, "lease_token", None)
        force = bool(getattr(lease, "needs_dependency_sync", False)) and token not in self._synced
        handle = environments.ensure(request, force=force, log=log, cancellation=cancellation)
        if force and token is not None:  # the next commands of the lease find what this one has built
            self._synced.add(token)
        stack.enter_context(handle.hold())
        if handle.build is not None:
            found = "reused" if handle.build.hit else f"built {len(handle.build.packages)} packages for"
            log.write(f"[debug-server] environment: {found} {handle.path.name} in {handle.build.seconds:.3f} s\n")
        variables = environments.workspace_variables(
            handle, Path(lease.path), request, base_env=self._base_env, log=log, cancellation=cancellation
        )
        if not environments.has_bytecode(handle):
            self._compile_later(environments, handle)
        return handle, variables

    def _compile_later(self, environments: EnvironmentManager, handle: EnvironmentHandle) -> None:
        """Compile bytecode while commands run, so that later commands need not; what is left goes on in later runs."""
        if (running := self._compiling.get(handle.path)) is not None and running.is_alive():
            return
        arguments = (environments, handle, self._closed)
        thread = threading.Thread(target=_compile, args=arguments, name="bytecode", daemon=True)
        self._compiling[handle.path] = thread
        thread.start()

    def close(self) -> None:
        """End background work: nobody waits for bytecode."""
        self._closed.request("the process ends")
        deadline = time.monotonic() + _COMPILE_SECONDS
        for thread in list(self._compiling.values()):
            thread.join(max(0.0, deadline - time.monotonic()))


def _compile(environments: EnvironmentManager, handle: EnvironmentHandle, cancellation: Cancellation) -> None:
    try:
        environments.compile_bytecode(handle, cancellation=cancellation)
    except StartCancelledError:
        return
    except (DebugServerError, OSError) as error:
        _LOG.warning("bytecode_not_compiled", extra={"environment": str(handle.path), "error": str(error)})
