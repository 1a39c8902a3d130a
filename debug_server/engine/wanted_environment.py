"""The environment that a session's commands run in, as it was asked for and as the session's row keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from debug_server.runner.environments.request import EnvironmentRequest

ENVIRONMENT = "environment"  # key of a session's metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEnvironment:
    """Manifests by their names in the workspace, a version of Python, and parts of ``pyproject.toml``."""

    manifests: Sequence[str] = ()
    python: str | None = None
    extras: Sequence[str] = ()
    groups: Sequence[str] = ()

    @property
    def is_any(self) -> bool:
        """Whether anything was asked for: a command without an environment runs in the server's own."""
        return bool(self.manifests or self.python or self.extras or self.groups)

    def metadata(self) -> dict[str, Any]:
        """For a session's row."""
        return {ENVIRONMENT: asdict(self)} if self.is_any else {}

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> WantedEnvironment:
        """From a session's row, whoever wrote it."""
        asked = metadata.get(ENVIRONMENT)
        known = {field.name for field in fields(cls)}
        return cls(**{name: asked[name] for name in known & asked.keys()} if isinstance(asked, dict) else {})

    def request(self, session_id: int, workspace: Path) -> EnvironmentRequest | None:
        """In terms of the runner."""
        if not self.is_any:
            return None
        return EnvironmentRequest(
            f"session-{session_id}",
            [workspace / name for name in self.manifests],
            {"python": self.python} if self.python else None,
            project_root=workspace,
            groups=self.groups,
            extras=self.extras,
        )
