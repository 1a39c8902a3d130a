"""Errors say what to do next: the nearest name, where names are listed, what a token lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.repositories import make_repository
from tests.servers import ServerProcess
from tests.surfaces.cli.conftest import Terminal


def test_an_unknown_repository_is_answered_with_the_nearest(terminal: Terminal, project: Callable[[], str]) -> None:
    """By every command that takes a name; a name that resembles none is told where names are listed."""
    name = project()
    wrong = f"{name}x"
    for words in (
        ("repo", "show", wrong),
        ("repo", "remove", wrong),
        ("history", "--repo", wrong),
        ("session", "list", "--repo", wrong),
        ("session", "create", "--repo", wrong),
        ("command", "run", "--repo", wrong, "--", "true"),
        ("exec", "--repo", wrong, "--", "true"),
    ):
        refused = terminal(*words)
        assert refused.status == 1, (words, refused)
        assert f"did you mean {name!r}? See `debug-server repo list`" in refused.err, (words, refused)
    refused = terminal("repo", "show", "zzzzzzzz")
    assert refused.err.endswith("there is no repository 'zzzzzzzz': see `debug-server repo list`\n"), refused


def test_an_unknown_number_is_told_where_numbers_are_listed(terminal: Terminal) -> None:
    """Commands, sessions and tokens; with --json the message stays as it is."""
    for words, lists in (
        (("command", "show", 987654), "history"),
        (("logs", 987654), "history"),
        (("session", "show", 987654), "session list"),
        (("token", "revoke", 987654), "token list"),
    ):
        refused = terminal(*words)
        assert refused.status == 1 and refused.err.endswith(f"987654: see `debug-server {lists}`\n"), refused
        assert "see `" not in terminal("--json", *words).err


def test_run_says_what_a_remote_is(alone: Terminal) -> None:
    """A path without a repository is a wrong value; the name of a registered repository is answered with its remote."""
    refused = alone("run", "--repo", "nowhere", "--", "true")
    assert refused.status == 2 and "--repo takes a git URL or the path of a repository" in refused.err, refused
    (alone.folder / "plain").mkdir()
    refused = alone("run", "--repo", "plain", "--", "true")
    assert refused.status == 2 and "is not the root of a git repository" in refused.err, refused


def test_run_knows_registered_names(alone: Terminal) -> None:
    """They are what other commands take."""
    path = make_repository(alone.folder.parent / "elsewhere")
    assert alone("repo", "add", path, "--name", "sample").status == 0
    refused = alone("run", "--repo", "sample", "--", "true")
    assert refused.status == 2 and f"write --repo {path}" in refused.err, refused


def test_a_token_that_may_not_open_sessions_is_told_so_first(alone: Terminal, server: ServerProcess) -> None:
    """Before it is asked for the name of a repository, however many there are."""
    admin = replace(alone, variables={"DEBUG_SERVER_URL": server.base_url, "DEBUG_SERVER_TOKEN": server.token})
    made = admin("--json", "token", "create", "reader", "--scope", "sessions:read").json
    reader = replace(alone, variables={"DEBUG_SERVER_URL": server.base_url, "DEBUG_SERVER_TOKEN": made["token"]})
    for words in (("session", "create"), ("command", "run", "--", "true")):
        refused = reader(*words)
        assert refused.status == 77 and "lacks the scope" in refused.err and "--repo" not in refused.err, refused
