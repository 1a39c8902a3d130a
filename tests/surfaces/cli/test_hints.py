"""Errors say what to do next: the nearest name, where names are listed, what a token lacks."""

from __future__ import annotations

import json
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


def test_a_missing_manifest_has_the_name_that_was_given(terminal: Terminal, project: Callable[[], str]) -> None:
    """Once, and not as a path in the server's workspace."""
    refused = terminal("command", "run", "--repo", project(), "--manifest", "none/req.txt", "--", "true")
    assert refused.status == 125, refused
    assert refused.err.count("manifest 'none/req.txt' does not exist in the repository") == 1, refused
    assert "worktrees" not in refused.err


def test_a_program_that_is_missing_shows_the_first_folders_of_path(alone: Terminal) -> None:
    """An environment puts its own first; the many others are counted."""
    folders = [f"/folder-{number}" for number in range(30)]
    given = replace(alone, variables={"PATH": ":".join(folders)})
    done = given("run", "--", "no-such-program")
    assert done.status == 127, done
    assert "was not found in PATH: /folder-0, /folder-1, /folder-2 and 27 more (" in done.err, done
    done = alone("run", "--", "echo hello | cat")
    assert done.status == 127 and "a line for a shell is run by: sh -c LINE" in done.err, done


def test_history_names_places(alone: Terminal) -> None:
    """An empty one the data folder that was looked at; a run here is at this folder's name."""
    empty = alone("history")
    assert empty.status == 0 and "data folder" in empty.err and str(alone.folder.parent) in empty.err, empty
    assert alone("run", "--", "true").status == 0
    assert alone.folder.name in alone("history").out.splitlines()[1].split()


def test_rerun_says_what_it_starts_from(terminal: Terminal, project: Callable[[], str]) -> None:
    """The commit and the patch, or the directory."""
    patch = terminal.folder / "p.patch"
    patch.write_text("--- /dev/null\n+++ b/added\n@@ -0,0 +1 @@\n+new\n")
    ran = terminal("--json", "command", "run", "--repo", project(), "--patch", patch, "--", "cat", "added")
    earlier = json.loads(ran.out.splitlines()[-1])
    session = terminal("--json", "session", "show", earlier["session_id"]).json
    again = terminal("rerun", earlier["id"])
    told = f"from commit {session['commit_sha'][:12]} with patch {session['patch_hash'][:12]}"
    assert (again.status, again.out) == (0, "new\n") and told in again.err, again


def test_options_of_the_program_may_follow_the_command(alone: Terminal, server: ServerProcess) -> None:
    """The server, its token and --local; a program's own words are left alone."""
    token = alone.folder / "token"
    token.write_text(server.token)
    chosen = ("--base-url", server.base_url, "--token-file", token)
    done = alone("--json", "status", *chosen)
    assert done.status == 0 and done.json["server"] == server.base_url, done
    assert alone("--json", "session", *chosen, "list").status == 0
    assert alone("configure", *chosen).status == 0
    done = alone("--json", "status", "--local")
    assert done.status == 0 and "data folder" in done.json["server"], done
    assert alone("run", "--quiet", "--", "echo", "--local").out == "--local\n"
    assert "--token-file" not in alone("session", "list", "-h").out, "the help of the program has them"


def test_tasks_and_scopes_are_told_as_well(alone: Terminal, server: ServerProcess) -> None:
    """Where tasks are listed, the nearest scope, and what to write for an address of the wrong kind."""
    admin = replace(alone, variables={"DEBUG_SERVER_URL": server.base_url, "DEBUG_SERVER_TOKEN": server.token})
    assert "there is no task 'nope': see `debug-server tasks list`" in admin("tasks", "get", "nope").err
    assert "did you mean 'sessions:read'?" in admin("token", "create", "x", "--scope", "sesions:read").err
    wrong = server.base_url.replace("http://", "https://")
    refused = admin("tasks", "list", "--base-url", wrong)
    assert refused.status == 2 and f"write {server.base_url}" in refused.err, refused
