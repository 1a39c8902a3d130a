"""Lists, verifies and collects the environments of this machine."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterator, Mapping

from debug_server.errors import InvalidInputError
from debug_server.runner.environment import EnvironmentManager, GarbageCollection, InstalledEnvironment
from debug_server.runner.settings import RunnerSettings


class Environments:
    """The environments in the configured folder; any number of processes may use it at once."""

    def __init__(self, settings: RunnerSettings) -> None:
        settings.paths.prepare()
        self._defaults = settings.environments
        self._manager = EnvironmentManager(
            settings.paths.environments_dir, build_timeout=settings.environments.build_timeout
        )

    def installed(self) -> list[InstalledEnvironment]:
        """The complete environments, the least recently used first."""
        return self._manager.installed()

    def verify(self, which: Names[str]) -> Iterator[tuple[InstalledEnvironment, Mapping[str, str]]]:
        """Check every file of the environments with these keys or names (none: of all); yield the damage of each.

        A damaged environment is not used again and is rebuilt when it is needed.
        """
        known = self._manager.installed()
        for name in which:
            if not any(name == item.key or name in item.names for item in known):
                raise InvalidInputError(f"there is no environment {name!r}: `debug-server env list` shows them")
        for item in known:
            if not which or item.key in which or set(item.names) & set(which):
                yield item, self._manager.verify(item.fingerprint)

    def collect(self, *, max_idle: float | None, max_bytes: int | None) -> GarbageCollection:
        """Remove environments by idle time, then the least recently used above ``max_bytes``; None: as configured."""
        return self._manager.collect_garbage(
            max_idle=self._defaults.idle_seconds if max_idle is None else max_idle,
            max_bytes=self._defaults.budget if max_bytes is None else max_bytes,
        )
