"""No attack of ``isolation/program.py`` gets more than the table promises, at any level, whoever runs the server."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.isolation import table
from tests.attacks.isolation.program import ATTACKS
from tests.attacks.isolation.victims import RUNS, victims
from tests.attacks.target import AttackSetup
from tests.other_users import shared_python
from tests.running import ROOT, eventually, rooted_in

_USERS = {"root": 0, "user": 20001 if os.geteuid() == 0 else os.geteuid()}
# A tree of processes by the weakest means, too: it leaves the machine's processes in sight.
_CONTAINMENTS = {"root": "auto", "user": "session"}
Results = dict[str, dict[str, Any]]

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") is None, reason="no python3"),
]


def _cases(level: str, network: str) -> list[Any]:
    """The attacks that are judged: those that may or may not be held have no test."""
    return [
        pytest.param(level, network, name, id=f"{level}-{network}-{name}")
        for name in table.names(level, network)
        if table.is_promised(name, level)
    ]


CONFINED = [case for level, network in RUNS if level != "none" for case in _cases(level, network)]


@pytest.fixture(scope="session", params=list(_USERS))
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What each run gave, by user of the server: the first of the parallel test processes makes all of them."""
    user: str = request.param
    if user == "root" and os.geteuid() != 0:
        pytest.skip("only root can run a server as root")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    file = shared / f"isolation-{user}.json"
    with (shared / f"isolation-{user}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            file.write_text(json.dumps(_attack(user)))
    found: Results = json.loads(file.read_text())
    return found


def _attack(user: str) -> Results:
    root = Path(tempfile.mkdtemp(prefix="debug-server-isolation-"))  # pytest's own folders are closed to other users
    root.chmod(0o755)
    setup = AttackSetup(root=root, python=_python(root, user), uid=_USERS[user], other=None)
    try:
        with victims(setup, _CONTAINMENTS[user]) as found:
            return {f"{level} {network}": found.attack(level, network) for level, network in RUNS}
    finally:
        eventually(lambda: not rooted_in(root, f"{root}="), what="the end of everything below it")
        shutil.rmtree(root)


def _python(root: Path, user: str) -> str:
    return shared_python(root) if _USERS[user] != os.geteuid() else sys.executable


def _run(results: Results, level: str, network: str) -> dict[str, Any]:
    found = results[f"{level} {network}"]
    if found["exit"]["isolation"]["level"] != level:
        pytest.skip(f"not on this machine: {found['exit']['isolation'].get('why')}")
    assert "broken" not in found, found["broken"]
    return found


def _got(found: dict[str, Any], name: str) -> str:
    """What an attack got, or did; empty if it was held."""
    result = found["attacks"][name]
    assert not result["error"].startswith("BROKEN"), result
    return str(found["harm"].get(name) or result["got"])


@pytest.mark.parametrize(("level", "network", "name"), CONFINED)
def test_an_attack_gets_what_is_promised(results: Results, level: str, network: str, name: str) -> None:
    """It is held, or it is named in the table; ordinary work goes on; the record has the level and the network."""
    found = _run(results, level, network)
    got = _got(found, name)
    if table.promised(name, level, network) == "held":
        assert not got
    else:
        assert got or name not in table.REAL, "it is held: change the table"
    assert _works(found["control"]) and _works(found["after"])
    assert found["exit"]["isolation"]["network"] == {"asked": network, "in_force": network}


def _works(control: dict[str, Any]) -> bool:
    expected = {"file": "b'mine'", "socket": "b'hello'", "program": 0, "terminal": True}
    return {name: value for name, value in control.items() if name != "loopback"} == expected


@pytest.mark.parametrize("name", sorted(table.REAL))
def test_the_attack_is_real(results: Results, name: str) -> None:
    """Without isolation it gets what it wants: so a level that holds it does something."""
    assert _got(_run(results, "none", "open"), name)


@pytest.mark.parametrize("name", [name for name in table.names("none", "open") if name not in table.REAL])
def test_the_attack_is_real_where_the_machine_allows_it(results: Results, name: str) -> None:
    """The same for those that need root, a device or a part of the kernel."""
    found = _run(results, "none", "open")
    if not _got(found, name):
        pytest.skip(f"held by this machine, or by the server itself: {found['attacks'][name]['error']}")


@pytest.mark.parametrize(("level", "network"), RUNS)
def test_the_record_says_what_was_in_force(results: Results, level: str, network: str) -> None:
    """Each layer of the level is named, and none at the level ``none``."""
    card = _run(results, level, network)["exit"]["isolation"]
    layers = card["layers"]
    if level == "none":
        assert set(layers.values()) == {None}
        return
    assert (layers["capabilities"], layers["new_privileges"]) == ("dropped", "forbidden")
    assert layers["files"] == {"process": "landlock", "namespace": "namespace"}[level]
    assert layers["processes"] == layers["users"] == {"process": None, "namespace": "namespace"}[level]
    assert layers["network"] == (None if network == "open" else {"process": "seccomp", "namespace": "namespace"}[level])


def test_an_own_network_is_alone(results: Results) -> None:
    """With ``loopback`` a command reaches its own servers; with ``none`` not even those."""
    assert _run(results, "namespace", "loopback")["control"]["loopback"] == "works"
    assert _run(results, "namespace", "none")["control"]["loopback"] != "works"
    assert _run(results, "namespace", "open")["control"]["loopback"] == "works"


def test_the_page_has_the_table() -> None:
    """``docs/security.md`` shows what the tests check, attack by attack."""
    page = (ROOT / "docs/security.md").read_text()
    assert table.as_markdown() in page, "write this table under '## Attacks':\n" + table.as_markdown()


def test_every_exception_names_an_attack() -> None:
    """A name in the table that no attack has would promise nothing."""
    named = table.AT_PROCESS_LEVEL | table.BY_NETWORK | table.REAL | table.AIMED_AT_THE_MACHINE
    assert not named - set(ATTACKS)
    assert len(ATTACKS) >= 80
