"""The short form of ``make soak``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.soak.campaign import Campaign
from tests.soak.check import check
from tests.soak.full_disk import FullDisk
from tests.soak.workspace_campaign import WorkspaceCampaign

pytestmark = pytest.mark.timeout(600)  # dozens of processes, on a machine that may be busy
SEED = 2024
SERVER_KILLS, KEEPER_KILLS, WORKSPACE_USER_KILLS = 50, 25, 12
OUTAGES, OUTAGE_SECONDS = 3, 1.5
FULL_DISKS = 2


def test_killed_servers_and_keepers_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    """While servers and keepers are killed at random and the store goes away, each command starts at most once, has
    exactly one end with the reason it must have, and a log that holds its child's bytes; commands of dead servers carry
    on; and no process, control group, socket or file remains."""
    campaign = Campaign(tmp_path, SEED, say=lambda _: None)
    try:
        campaign.kill_servers(SERVER_KILLS)
        campaign.take_store_away(OUTAGES, OUTAGE_SECONDS)
        campaign.kill_keepers(KEEPER_KILLS)
        campaign.finish()
        result = check(campaign)
    finally:
        campaign.close()
    assert result.violations == []
    assert result.figures["server_kills"] >= SERVER_KILLS
    assert result.figures["keeper_kills"] == KEEPER_KILLS
    assert result.figures["outages"] == OUTAGES
    assert result.figures["of_those_exited_0_later"] > 0


def test_commands_on_a_full_disk_have_their_ends(tmp_path: Path) -> None:
    """While commands fill the disk that holds everything, and a server is killed, each command has exactly one end."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root")
    campaign = FullDisk(tmp_path, SEED, say=lambda _: None)
    try:
        campaign.fill(FULL_DISKS)
        campaign.finish()
        result = campaign.check()
    finally:
        campaign.close()
    assert result.violations == []
    assert result.figures["full_disk_server_kills"] == FULL_DISKS // 2


@pytest.mark.parametrize("backend", ["auto", "pool"])
def test_killed_users_of_workspaces_leave_nothing(tmp_path: Path, backend: str) -> None:
    """While processes that lease, mount, build and run are killed at random, no workspace has two holders or another
    commit's files and no half environment is served; afterwards no mount, lease, session, half environment, process
    or temporary file remains."""
    campaign = WorkspaceCampaign(tmp_path, SEED, say=lambda _: None, backend=backend)
    try:
        campaign.kill_users(WORKSPACE_USER_KILLS)
        campaign.finish()
        result = campaign.check()
    finally:
        campaign.close()
    assert result.violations == []
    assert result.figures["workspace_user_kills"] >= WORKSPACE_USER_KILLS
