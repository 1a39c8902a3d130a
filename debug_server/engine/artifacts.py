"""Copies artifacts out of the workspace when a command has ended; any process may do it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from debug_server.model import Artifact, Command, Session
from debug_server.runner.settings import RunnerPaths
from debug_server.store import MetadataStore
from debug_server.worktrees.artifact_files import RefusedFile, copy_artifacts

_LOG = logging.getLogger(__name__)


class ArtifactCopier:
    """Copies files to ``collected/<session>/<command>``; a file ``.<command>`` beside it says that this is done."""

    def __init__(self, *, store: MetadataStore, paths: RunnerPaths) -> None:
        self._store = store
        self._root = paths.artifacts_root.absolute() / "collected"  # readers may have another working directory

    def copy_requested(self, session: Session, command: Command, workspace: Path) -> None:
        """Copy the artifacts that the command requested, unless they were copied; two processes may do it at once."""
        patterns = command.plan.artifacts
        if not patterns or self._done_marker(session.id, command.id).exists():
            return
        _, refused = self.copy(session, workspace, patterns, command_id=command.id)
        for item in refused:
            fields = {"name": item.name, "reason": item.reason}
            self._store.events.append("artifact.refused", command_id=command.id, data=fields)
            _LOG.warning("artifact_refused", extra={"artifact": {"command_id": command.id, **fields}})

    def copy(
        self, session: Session, workspace: Path, patterns: Sequence[str], *, command_id: int
    ) -> tuple[list[Artifact], list[RefusedFile]]:
        """Copy what the globs match in the workspace and record each file."""
        mark = self._done_marker(session.id, command_id)
        with contextlib.suppress(OSError):  # copy_artifacts reports each file that cannot be written
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found, refused = copy_artifacts(workspace, patterns, mark.with_name(str(command_id)))
        kept = [
            self._store.artifacts.add(
                session_id=session.id,
                command_id=command_id,
                kind=item.kind,
                name=item.name,
                path=str(item.path),
                size=item.size,
                sha256=item.sha256,
            )
            for item in found
        ]
        with contextlib.suppress(OSError):  # a full disk: copying again is harmless
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        return kept, refused

    def _done_marker(self, session_id: int, command_id: int) -> Path:
        return self._root / str(session_id) / f".{command_id}"
