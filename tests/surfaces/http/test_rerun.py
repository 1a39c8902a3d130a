"""Commands are found, run again, and repositories removed, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from debug_server.model import CommandSpec
from debug_server.service.foreground import RunRequest
from tests.running import eventually
from tests.surfaces.http.serving import SECONDS, Served, answered, refused

PATCH = "--- a/README\n+++ b/README\n@@ -1 +1 @@\n-three\n+four\n"


def found(served: Served, **query: Any) -> list[dict[str, Any]]:
    """The commands that a search finds."""
    items: list[dict[str, Any]] = answered(served.admin.get("/commands", params=query), 200)["items"]
    return items


def ended(served: Served, command_id: int) -> dict[str, Any]:
    """A command at its end."""
    return answered(served.admin.get(f"/commands/{command_id}/wait", params={"timeout": SECONDS}), 200)


def test_commands_of_all_sessions_are_found(served: Served) -> None:
    """By status, repository and session, the newest first, in pages; a waiting one names what it waits for."""
    first, second = served.session(), served.session()
    failed, passed = served.run(first, "false"), served.run(second, "true")
    running = served.submit(second, "sleep", "600")
    waiting = served.submit(second, "true")
    assert [item["id"] for item in found(served)] == [waiting, running, passed, failed]
    assert [item["id"] for item in found(served, order="oldest", limit=2)] == [failed, passed]
    active = found(served, status="active")
    assert [(item["id"], item["repository"]) for item in active] == [(waiting, "repo"), (running, "repo")]
    assert active[0]["waits_for"] == [running] and active[1]["waits_for"] == []
    assert [item["id"] for item in found(served, status=["succeeded", "failed"])] == [passed, failed]
    assert [item["id"] for item in found(served, status="succeeded,failed")] == [passed, failed]
    assert [item["id"] for item in found(served, session_id=first, repository="repo")] == [failed]
    page = answered(served.admin.get("/api/v1/commands", params={"limit": 3}), 200)
    assert [item["id"] for item in found(served, after=page["next_after"])] == [failed]
    refused(served.admin.get("/commands", params={"repository": "none"}), 404, "not_found")
    error = refused(served.admin.get("/commands", params={"status": "done"}), 422, "invalid_input")
    assert "'done'" in error["message"] and "'active'" in error["message"], error
    with served.client(["sessions:read"]) as stranger:
        assert answered(stranger.get("/commands"), 200)["items"] == []
        refused(stranger.get("/commands", params={"session_id": first}), 404, "not_found")
    answered(served.admin.post(f"/commands/{running}/cancel"), 200)


def test_lists_have_two_orders_and_filters(served: Served) -> None:
    """Oldest first unless asked; sessions also by status and repository."""
    sessions = [served.session() for _ in range(3)]
    answered(served.admin.delete(f"/sessions/{sessions[0]}"), 200)

    def listed(path: str, **query: Any) -> list[int]:
        return [item["id"] for item in answered(served.admin.get(path, params=query), 200)["items"]]

    assert listed("/sessions") == sessions
    page = answered(served.admin.get("/sessions", params={"order": "newest", "limit": 2}), 200)
    assert [item["id"] for item in page["items"]] == sessions[:0:-1]
    assert listed("/sessions", order="newest", after=page["next_after"]) == sessions[:1]
    assert listed("/sessions", status="open") == sessions[1:]
    assert listed("/sessions", status="closed", repository="repo") == sessions[:1]
    for path in ("/repository", "/auth/tokens", "/leases"):
        assert listed(path, order="newest") == listed(path)[::-1]
    commands = [served.run(sessions[1], "true") for _ in range(2)]
    assert listed(f"/sessions/{sessions[1]}/commands", order="newest") == commands[::-1]
    newest = listed(f"/sessions/{sessions[1]}/artifacts", order="newest")
    assert newest == listed(f"/sessions/{sessions[1]}/artifacts")[::-1] and len(newest) == 2


def test_a_command_runs_again_as_it_was(served: Served) -> None:
    """Arguments, folder, limits, commit, patch and variables, in a session of its own that closes; once under a key."""
    session = served.session(patch=PATCH)
    script = "cat ../README; echo $WORD; ls; ulimit -n; exit 3"
    body = {"argv": ["sh", "-c", script], "cwd": "docs", "env": {"WORD": "x"}, "limits": {"open_files": 77}}
    first = answered(served.admin.post(f"/sessions/{session}/commands", json=body), 201)["id"]
    ended(served, first)
    served.run(session, "sh", "-c", "echo changed > README; touch docs/made")
    answered(served.admin.delete(f"/sessions/{session}"), 200)
    error = refused(served.admin.post(f"/commands/{first}/rerun"), 422, "invalid_input")
    assert error["field"] == "env" and "WORD" in error["message"], error
    key = {"Idempotency-Key": "again"}
    again = [
        answered(served.admin.post(f"/commands/{first}/rerun", json={"env": {"WORD": "x"}}, headers=key), 201)
        for _ in range(2)
    ]
    assert again[0] == again[1] and again[0]["session"]["id"] != session
    command = ended(served, again[0]["command"]["id"])
    assert (command["exit_code"], command["command"], command["cwd"]) == (3, body["argv"], "docs")
    assert served.admin.get(f"/commands/{command['id']}/log").text == served.admin.get(f"/commands/{first}/log").text
    opened = f"/sessions/{command['session_id']}"
    eventually(lambda: answered(served.admin.get(opened), 200)["status"] == "failed", what="the end of the session")
    with served.client(["sessions:read", "sessions:write", "commands:write"]) as stranger:
        refused(stranger.post(f"/commands/{first}/rerun", json={"env": {"WORD": "x"}}), 404, "not_found")


def test_a_run_in_a_directory_runs_again_there(served: Served, tmp_path: Path) -> None:
    """In the same directory, whose files are as they are now; a directory that is gone is named."""
    place = tmp_path / "place"
    place.mkdir()
    request = RunRequest(command=CommandSpec(["sh", "-c", "pwd; cat word"], stdin=True))
    with served.local.foreground.in_directory(request, place) as run:
        first = run.run(observers=[]).command_id
    (place / "word").write_text("now\n")
    command = answered(served.admin.post(f"/commands/{first}/rerun"), 201)["command"]
    assert ended(served, command["id"])["status"] == "succeeded"
    assert served.admin.get(f"/commands/{command['id']}/log").text == f"{place}\nnow\n"
    (item,) = found(served, session_id=command["session_id"])
    assert (item["directory"], item["repository"]) == (str(place), None)
    (place / "word").unlink()
    place.rmdir()
    assert str(place) in refused(served.admin.post(f"/commands/{first}/rerun"), 422, "invalid_input")["message"]


def test_a_command_in_an_empty_folder_runs_again_in_another(served: Served) -> None:
    """Of ``exec`` without a session: the new folder is empty, too, and is gone with its session."""
    body = {"argv": ["sh", "-c", "pwd; ls; touch made"], "wait": SECONDS}
    first = answered(served.admin.post("/exec", json=body), 200)
    again = answered(served.admin.post(f"/commands/{first['command_id']}/rerun"), 201)["command"]
    assert ended(served, again["id"])["status"] == "succeeded"
    (folder,) = served.admin.get(f"/commands/{again['id']}/log").text.split()
    assert folder != first["stdout"].strip() and not Path(folder).exists()


def test_a_repository_is_removed_with_its_files(served: Served) -> None:
    """Not while a session is open; then mirror and workspaces are gone, its history stays, and its name is free."""
    session = served.session()
    command = served.run(session, "sh", "-c", "echo hello")
    error = refused(served.admin.delete("/repository/repo"), 409, "conflict")
    assert f"({session})" in error["message"], error
    answered(served.admin.delete(f"/sessions/{session}"), 200)
    folders = [served.root / "artifacts" / name for name in ("repos", "worktrees")]
    assert all(any(folder.glob("repo*")) for folder in folders)
    assert answered(served.admin.delete("/repository/repo"), 200) == {"message": "repository repo is removed"}
    refused(served.admin.delete("/repository/repo"), 404, "not_found")
    assert [path for folder in folders for path in folder.iterdir() if path.name != ".views"] == []
    assert served.admin.get(f"/commands/{command}/log").text == "hello\n"
    assert [item["id"] for item in found(served)] == [command]
    assert answered(served.admin.get(f"/sessions/{session}"), 200)["status"] == "completed"
    assert answered(served.admin.get("/leases"), 200)["items"] == []
    refused(served.admin.post(f"/commands/{command}/rerun"), 409, "conflict")
    body = {"name": "repo", "remote_url": str(served.remote.path)}
    answered(served.admin.post("/repository/init", json=body), 201)
    assert served.run(served.session(), "true")


def test_a_removal_that_was_interrupted_is_completed(served: Served) -> None:
    """Killed after the commit: maintenance removes the files, and only then the name can be registered again."""
    answered(served.admin.delete(f"/sessions/{served.session()}"), 200)
    store, sessions = served.local.store, served.local.sessions
    number = store.repositories.by_name("repo").id
    store.repositories.remove(number)
    mirror = served.root / "artifacts" / "repos" / "repo.bare"
    body = {"name": "repo", "remote_url": str(served.remote.path)}
    refusal = refused(served.admin.post("/repository/init", json=body), 409, "conflict")
    assert "being removed" in refusal["message"] and mirror.exists()
    sessions.remove_leftovers()
    assert not mirror.exists() and not (served.root / "artifacts" / "worktrees" / "repo").exists()
    answered(served.admin.post("/repository/init", json=body), 201)
    session = served.session()
    store.repositories.free_name(number, "repo")  # repeated, it leaves the new one alone
    sessions.remove_leftovers()
    assert served.run(session, "cat", "README") and mirror.exists()
