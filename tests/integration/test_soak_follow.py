"""The short form of `make soak-follow`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.soak.follow import TRANSPORTS, Campaign, run

pytestmark = pytest.mark.timeout(600)  # dozens of processes, on a machine that may be busy


def test_followers_lose_nothing_when_they_are_cut_off_and_servers_killed(tmp_path: Path, nothing_left: None) -> None:
    """By each transport, over cuts and a kill -9, every byte arrives once and in order."""
    found = asyncio.run(run(tmp_path, Campaign(size=2 << 20, cuts=3, kills=1, seed=7)))
    assert [item.transport for item in found] == list(TRANSPORTS)
    assert [str(item) for item in found if not item.identical] == []
