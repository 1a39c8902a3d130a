"""The short forms of ``scripts/soak_tasks.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks.stress import cancel_at_random, kill_under_load

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(300)]


def test_cancel_at_random_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of every mode, with children that ignore TERM and detach: canceled, and nothing of them is left."""
    monkeypatch.setenv("HOME", str(tmp_path))  # a task's shell is a login shell and reads its user's profile
    findings = cancel_at_random(tmp_path, 12, seed=7)
    assert findings.violations == [] and findings.facts["states"].keys() >= {"queued", "running"}


def test_a_server_killed_under_load(tmp_path: Path) -> None:
    """None lost, none run twice, all terminal, callbacks complete and in order."""
    findings = kill_under_load(tmp_path / "k", tasks=40, kills=2, in_flight=8)
    assert findings.violations == []
    assert findings.facts["callbacks"] >= 80
