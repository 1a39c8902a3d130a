"""Builds with the user's own command, for manifests that no other builder supports."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.build_plan import BuildPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class HookBuilder:
    """A shell command that fills the folder named in ``DEBUG_SERVER_ENV_PATH``."""

    command: str
    tool: ClassVar[str] = "hook"
    name: ClassVar[str] = "hook"
    brings_python: ClassVar[bool] = False
    keeps_records: ClassVar[bool] = False

    def build(self, plan: BuildPlan, context: BuildContext) -> None:
        """Run the command in the project root."""
        context.target.mkdir(parents=True)
        variables = {
            "DEBUG_SERVER_ENV_PATH": str(context.target),
            "DEBUG_SERVER_ENV_PYTHON": plan.interpreter.path,
            "DEBUG_SERVER_ENV_MANIFESTS": os.pathsep.join(map(str, plan.manifests.all())),
        }
        context.run(["/bin/sh", "-c", self.command], cwd=plan.manifests.root, env=variables)

    def sources(self) -> str:
        """Not known: the tool's own settings choose."""
        return ""

    def drop_from_cache(self, packages: list[str], context: BuildContext) -> None:
        """Does nothing: the command manages its own caches."""
