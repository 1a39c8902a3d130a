"""The codex worker's folder holds settings that name programs, and a login: it must be nobody else's."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from debug_server.config import load
from debug_server.config.gateway import GatewayConfig
from debug_server.errors import ConfigurationError
from debug_server.gateway.codex_worker import prepare_folders

OTHER = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """Beside a data folder of ours in a shared folder, somebody makes ``.codex-api``."""
    home = tmp_path / ".codex-api"
    config = replace(load(GatewayConfig).value.codex, home=home)
    assert prepare_folders(config) == (home, home / "workspace")
    os.chown(home, OTHER, OTHER)
    with pytest.raises(ConfigurationError, match=rf"{home} is not used: it belongs to another user \(uid {OTHER}\)"):
        prepare_folders(config)
    assert prepare_folders(config, {0, OTHER})[0] == home
