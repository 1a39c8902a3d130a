"""``debug-server env``: the environments of this machine are listed, checked and removed."""

from __future__ import annotations

import os
import time

from debug_server.runner.environment import EnvironmentManager
from tests.runner.environment_support import hook
from tests.surfaces.cli.conftest import Terminal


def test_environments_are_listed_checked_and_removed(alone: Terminal) -> None:
    """A list for people and for programs, damage with its file and status 1, removal by age."""
    assert alone("--json", "env", "list").items == []
    root = alone.folder / ".artifacts" / "envs"
    manager = EnvironmentManager(root)
    good = manager.ensure(hook("echo x > $DEBUG_SERVER_ENV_PATH/file", name="good", root=alone.folder))
    bad = manager.ensure(hook("echo y > $DEBUG_SERVER_ENV_PATH/file", name="bad", root=alone.folder))

    rows = {row["names"][0]: row for row in alone("--json", "env", "list").items}
    assert rows.keys() == {"good", "bad"} and rows["good"]["fingerprint"] == good.fingerprint
    assert rows["good"]["builder"] == "hook" and not rows["good"]["in_use"]
    earlier = time.time() - 3 * 3600
    os.utime(root / ".leases" / good.path.name, (earlier, earlier))
    shown = alone("env", "list")
    assert shown.status == 0 and rows["bad"]["key"] in shown.out and "idle for 3 h" in shown.out

    (bad.path / "file").write_text("z\n")
    whole = alone("env", "verify", "good")
    assert (whole.status, whole.out) == (0, f"{rows['good']['key']} is whole\n")
    damaged = alone("env", "verify")
    assert damaged.status == 1
    assert f"{rows['bad']['key']} is damaged\n  file " in damaged.out
    assert [row["names"] for row in alone("--json", "env", "list").items] == [["good"]]

    unknown = alone("env", "verify", "nothing")
    assert (unknown.status, unknown.out) == (2, "") and "'nothing'" in unknown.err
    assert alone("env", "gc", "--idle", "soon").status == 2
    assert alone("env", "gc", "--budget", "much").status == 2
    kept = alone("env", "gc")
    assert kept.status == 0 and kept.out.startswith("0 environments removed")
    then = time.time() - 7200
    os.utime(root / ".leases" / good.path.name, (then, then))
    assert alone("--json", "env", "gc", "--idle", "3h").json["removed"] == []
    assert good.path.name in alone("--json", "env", "gc", "--idle", "1h").json["removed"]
    assert not good.path.exists()
