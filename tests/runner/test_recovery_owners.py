"""Owners: a live process is known by its lock, a dead one by the lack of it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from debug_server.disk import ownership
from debug_server.errors import ConfigurationError
from tests.running import ROOT

HOLD = (
    "import sys\nfrom pathlib import Path\nfrom debug_server.disk.ownership import Owner\n"
    "print(Owner(Path(sys.argv[1])).name, flush=True)\nsys.stdin.read()"
)


def test_an_owner_lives_as_long_as_its_process(tmp_path: Path) -> None:
    """kill -9 is enough to be dead, and the dead one's file goes when somebody looks."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert ownership.is_ours(tmp_path, name)
        assert ownership.is_alive(tmp_path, name)
        assert ownership.is_alive(tmp_path, name), "looking does not harm"
        process.kill()
        process.wait(60)
    assert not ownership.is_alive(tmp_path, name)
    assert list(tmp_path.glob("*.lock")) == []


def test_an_owner_of_this_very_process_is_alive(tmp_path: Path) -> None:
    """A lock that we hold ourselves counts, until it is closed."""
    first, second = ownership.Owner(tmp_path), ownership.Owner(tmp_path)
    assert first.name != second.name
    first.close()
    first.close()
    assert not ownership.is_alive(tmp_path, first.name)
    assert ownership.is_alive(tmp_path, second.name)
    second.close()


def test_two_who_look_at_once_agree(tmp_path: Path) -> None:
    """Somebody else who looks at a dead process's file at the same time does not make it seem alive."""
    name = f"{ownership.folder_identity(tmp_path)}.1-dead"
    with ownership.owner_file(tmp_path, name).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not ownership.is_alive(tmp_path, name)


def test_a_sweep_removes_the_dead_only(tmp_path: Path) -> None:
    """Files of dead processes go, half-made ones too; those of the living stay."""
    owner = ownership.Owner(tmp_path)
    word = ownership.folder_identity(tmp_path)
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (f"{word}.{dead.pid}-abc.lock", f".{dead.pid}-abc", f".{os.getpid()}-abc"):
        (tmp_path / name).touch()
    ownership.remove_dead(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"identity", f"{owner.name}.lock", f".{os.getpid()}-abc"}
    owner.close()


def test_an_owner_of_another_folder_is_not_judged(tmp_path: Path) -> None:
    """Two artifact folders on one store: what one cannot see alive it must not call dead."""
    here, there = tmp_path / "here", tmp_path / "there"
    owner = ownership.Owner(there)
    assert not ownership.is_ours(here, owner.name)
    assert ownership.is_ours(there, owner.name)
    owner.close()


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    """A file stands in the way."""
    (tmp_path / "owners").write_text("")
    with pytest.raises(ConfigurationError, match="owners"):
        ownership.Owner(tmp_path / "owners")
