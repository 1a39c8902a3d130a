"""The files that commands leave: copied out of the workspace when a command has ended, by whoever comes to it."""

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


class ArtifactKeeper:
    """Keeps files below ``collected/<session>/<command>``; ``.<command>`` beside it says that this was done."""

    def __init__(self, *, store: MetadataStore, paths: RunnerPaths) -> None:
        self._store = store
        self._root = paths.artifacts_root.absolute() / "collected"  # whoever reads it may be in another directory

    def keep_asked(self, session: Session, command: Command, workspace: Path) -> None:
        """What the command asked for when it was added, unless that was done; a second process does no harm."""
        patterns = command.plan.artifacts
        if not patterns or self._mark(session.id, command.id).exists():
            return
        _, refused = self.keep(session, workspace, patterns, command_id=command.id)
        for item in refused:
            fields = {"name": item.name, "reason": item.reason}
            self._store.events.append("artifact.refused", command_id=command.id, data=fields)
            _LOG.warning("artifact_refused", extra={"artifact": {"command_id": command.id, **fields}})

    def keep(
        self, session: Session, workspace: Path, patterns: Sequence[str], *, command_id: int
    ) -> tuple[list[Artifact], list[RefusedFile]]:
        """Copy what the globs match in the workspace and record each file."""
        mark = self._mark(session.id, command_id)
        with contextlib.suppress(OSError):  # what cannot be written is refused by name
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
        with contextlib.suppress(OSError):  # a full disk: doing it again is harmless
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        return kept, refused

    def _mark(self, session_id: int, command_id: int) -> Path:
        return self._root / str(session_id) / f".{command_id}"
