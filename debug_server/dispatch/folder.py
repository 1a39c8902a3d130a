"""The folder of ``runners.yml`` and ``repos.yml``, and the users whose files there are trusted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from debug_server.config import ConfigLocation, find_config_location, load
from debug_server.config.dispatch import DispatchConfig
from debug_server.disk import owners_of, why_distrusted

RUNNERS, REPOS = "runners.yml", "repos.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFolder:
    """The folder of both files; it need not exist."""

    path: Path
    trusted_uids: frozenset[int]  # user ids whose files are trusted
    named: bool  # by the operator: there an untrusted file is an error, elsewhere it is ignored

    @property
    def is_used(self) -> bool:
        """Whether there is a ``runners.yml`` to use."""
        runners = self.path / RUNNERS
        return runners.exists() and (self.named or why_distrusted(runners, self.trusted_uids) is None)


def load_dispatch(location: ConfigLocation) -> tuple[DispatchConfig, ConfigurationFolder]:
    """The settings of dispatch and the folder: the one that a variable names, or else ``config`` in ``location``."""
    loaded = load(DispatchConfig, environ=os.environ, defaults={"config": location.config_folder})
    path = loaded.value.config
    if loaded.source("config") == "default":
        return loaded.value, ConfigurationFolder(
            path=path, trusted_uids=location.trusted_uids, named=location.named is not None
        )
    return loaded.value, ConfigurationFolder(path=path, trusted_uids=owners_of(path), named=True)


def configuration_folder() -> ConfigurationFolder:
    """The configuration folder for the current directory."""
    return load_dispatch(find_config_location())[1]
