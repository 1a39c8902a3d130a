"""The strongest level that a machine can do is chosen, the record says why not more, and a requirement fails closed."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from debug_server.errors import InvalidInputError, UnmetRequirementError
from debug_server.runner.isolation import Wish, decide, report
from debug_server.runner.limits import Capabilities
from tests.running import PROGRAMS, ROOT, Bench, missing_mechanism

_NO_NAMESPACES = "user namespaces cannot be created: Operation not permitted"
_FORBID = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'


def _machine(*, namespaces: bool = True, landlock: int = 7, seccomp: bool = True) -> Capabilities:
    kernel = {"namespace": None if namespaces else _NO_NAMESPACES, "landlock": landlock, "seccomp": seccomp}
    return Capabilities(mechanism="session", controllers=frozenset(), root=False, isolation=kernel)


def _wish(level: str, network: str = "open", *require: str, asked: bool = False) -> Wish:
    return Wish(level=level, network=network, network_asked=asked, require=require)


@pytest.mark.parametrize(
    ("asked", "machine", "level", "why"),
    [
        ("namespace", _machine(), "namespace", None),
        ("namespace", _machine(landlock=0), "namespace", None),
        ("namespace", _machine(seccomp=False), "namespace", None),
        ("namespace", _machine(namespaces=False), "process", _NO_NAMESPACES),
        ("namespace", _machine(namespaces=False, landlock=1), "process", _NO_NAMESPACES),
        ("namespace", _machine(namespaces=False, landlock=0), "none", "Landlock"),
        ("process", _machine(), "process", None),
        ("process", _machine(landlock=0), "none", "Landlock"),
        ("process", _machine(namespaces=False), "process", None),
        ("none", _machine(), "none", None),
        ("none", _machine(namespaces=False, landlock=0), "none", None),
    ],
)
def test_the_strongest_level_is_chosen(asked: str, machine: Capabilities, level: str, why: str | None) -> None:
    """Up to the one that was asked for; the reason for less is told."""
    decision = decide(_wish(asked), machine)
    card = report(decision, machine)
    assert decision.level == card["level"] == level
    assert card["asked"] == asked
    assert (why is None) == ("why" not in card)
    assert why is None or why in card["why"]


def test_a_command_that_starts_containers_is_not_confined() -> None:
    """It is told, and refused if it requires more."""
    decision = decide(_wish("namespace"), _machine(), containers=True)
    assert (decision.level, decision.why) == ("none", "the command starts containers")
    with pytest.raises(UnmetRequirementError, match="starts containers"):
        decide(_wish("namespace", "open", "process"), _machine(), containers=True)


@pytest.mark.parametrize(
    ("level", "network", "machine", "in_force"),
    [
        ("namespace", "none", _machine(), "none"),
        ("namespace", "loopback", _machine(), "loopback"),
        ("process", "none", _machine(), "none"),
        ("process", "loopback", _machine(), None),
        ("process", "none", _machine(seccomp=False), None),
        ("namespace", "none", _machine(namespaces=False, seccomp=False), None),
        ("namespace", "loopback", _machine(namespaces=False), None),
        ("none", "none", _machine(), None),
    ],
)
def test_a_network_that_was_asked_for_is_in_force_or_refused(
    level: str, network: str, machine: Capabilities, in_force: str | None
) -> None:
    """The default of the server becomes ``open`` where it cannot be had, and the record says so."""
    by_default = decide(_wish(level, network), machine)
    assert by_default.network == (in_force or "open")
    assert report(by_default, machine)["network"] == {"asked": network, "in_force": in_force or "open"}
    if in_force is None:
        with pytest.raises(UnmetRequirementError, match=network):
            decide(_wish(level, network, asked=True), machine)
    else:
        assert decide(_wish(level, network, asked=True), machine).network == in_force


def test_no_layer_is_named_that_the_machine_lacks() -> None:
    """Whatever the machine, the card names a technology only where it is there."""
    for namespaces, landlock, seccomp in itertools.product((True, False), (0, 1, 6), (True, False)):
        machine = _machine(namespaces=namespaces, landlock=landlock, seccomp=seccomp)
        for level, network in itertools.product(("none", "process", "namespace"), ("open", "loopback", "none")):
            layers = report(decide(_wish(level, network), machine), machine)["layers"]
            assert seccomp or "seccomp" not in layers.values(), (machine, level, network)
            assert landlock or "landlock" not in layers.values(), (machine, level, network)
            assert landlock >= 6 or "landlock" not in (layers["signals"], layers["abstract_sockets"])
            assert namespaces or "namespace" not in layers.values(), (machine, level, network)


@pytest.mark.parametrize("name", ["namespace", "process"])
def test_a_required_level_is_in_force_or_refused(name: str) -> None:
    """A stronger level than required is enough."""
    assert decide(_wish("namespace", "open", name), _machine()).level == "namespace"
    with pytest.raises(UnmetRequirementError, match=f"--require {name}"):
        decide(_wish("namespace", "open", name), _machine(namespaces=False, landlock=0))
    with pytest.raises(UnmetRequirementError, match="'none' was asked for"):
        decide(_wish("none", "open", name), _machine())


def test_a_required_network_is_in_force_or_refused() -> None:
    """It is compared with what is in force; an unknown one is named."""
    decide(_wish("namespace", "none", "network=none"), _machine())
    with pytest.raises(UnmetRequirementError, match="'open'"):
        decide(_wish("namespace", "open", "network=none"), _machine())
    with pytest.raises(InvalidInputError, match="network=fast"):
        decide(_wish("namespace", "open", "network=fast"), _machine())


@pytest.mark.parametrize("asked", [{"isolation": "strong"}, {"network": "slow"}])
def test_an_unknown_name_is_refused(bench: Bench, asked: dict[str, Any]) -> None:
    """With the names that are known."""
    with pytest.raises(InvalidInputError, match="use one of"):
        bench.run(["true"], **asked)


@pytest.mark.parametrize("mechanism", ["pid-namespace", "session"])
def test_on_a_machine_without_user_namespaces(tmp_path: Path, nothing_left: None, mechanism: str) -> None:
    """The level ``process`` takes their place, really; what requires more is refused before it has a row."""
    inside = ["unshare", "--user", "--map-root-user", "sh", "-c", _FORBID, "sh"]
    probe = subprocess.run([*inside, "unshare", "--user", "true"], capture_output=True, check=False)
    if probe.returncode == 0 or b"max_user_namespaces" in probe.stderr or missing_mechanism(mechanism):
        pytest.skip("user namespaces cannot be forbidden here")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "outside").write_text("mine")
    done = subprocess.run(
        [*inside, sys.executable, str(PROGRAMS / "isolation_without.py"), str(tmp_path / "bench"), mechanism],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["mechanism"] == mechanism
    assert (found["card"]["asked"], found["card"]["level"]) == ("namespace", "process")
    assert "user namespaces cannot be created" in found["card"]["why"]
    assert found["code"] != 0, "it read a file outside its workspace"
    assert all("namespace" in refusal for refusal in found["refusals"][:2]) and found["refusals"][2]
    assert found["rows"] == 1
