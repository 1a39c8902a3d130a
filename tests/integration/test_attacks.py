"""The quick cases of the attack campaign: no attack gets through, whoever runs the server."""

from __future__ import annotations

import os

import pytest

from tests.attacks.campaign import main

QUICK = ["another-user", "own-commands", "bind-mounts", "leaving-the-group", "many-connections"]
QUICK += ["no-more-processes", "exactly-once"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", ["root", "user"])
def test_no_attack_gets_through(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As another user of the machine, by a command's own tricks, by a crowd of strangers, by crashes."""
    if server == "root" and os.geteuid() != 0:
        pytest.skip("only root can run a server as root")
    status = main(["--short", "--server", server, *QUICK])
    assert status == 0, capsys.readouterr().out
