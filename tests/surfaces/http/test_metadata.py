"""A caller's metadata is the caller's: no name in it means anything to the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.surfaces.http.serving import Served, answered, refused


def _every_name_of_ours(place: Path) -> dict[str, Any]:
    return {
        "after": ["touch", str(place / "ran")],
        "scratch": True,
        "branch_tree": {"repository": "/", "path": str(place), "branch": "x", "cleanup": True},
        "cleanup": "daily",
        "workspace": str(place),
        "environment": "staging",
        "process": "batch",
        "task": {"task_id": "7", "status_callback_url": "http://127.0.0.1:9/"},
        "lease_generation": -1,
        "lease_with_first_command": "main",
        "idempotency_key": "mine",
        "caller": "me",
        "forked_from": "trunk",
    }


def test_no_name_means_anything_to_the_engine(shared: Served, tmp_path: Path) -> None:
    """Metadata named like the engine's own facts is kept, told and forked as it is, and never acted upon."""
    metadata = _every_name_of_ours(tmp_path)
    session = shared.session(shared.client(["sessions:write", "sessions:read"]), metadata=metadata)
    told = answered(shared.admin.get(f"/sessions/{session}"), 200)
    assert told["metadata"] == metadata
    command = shared.run(session, "pwd")
    assert answered(shared.admin.get(f"/commands/{command}"), 200)["exit_reason"] == "exited"
    assert str(tmp_path) != shared.admin.get(f"/commands/{command}/log").text.strip()
    answered(shared.admin.post(f"/sessions/{session}/reset"), 200)
    (fork,) = answered(shared.admin.post(f"/sessions/{session}/fork"), 201)["items"]
    assert fork["metadata"] == metadata
    for number in (session, fork["id"]):
        answered(shared.admin.delete(f"/sessions/{number}"), 200)
    assert list(tmp_path.iterdir()) == []


def test_a_run_keeps_its_metadata(shared: Served, tmp_path: Path) -> None:
    """The same by the one-shot run."""
    metadata = _every_name_of_ours(tmp_path)
    body = {"repository": "repo", "commit_sha": "main", "argv": ["true"], "metadata": metadata}
    done = answered(shared.admin.post("/runs?wait=100", json=body), 201)
    assert (done["session"]["metadata"], done["command"]["exit_reason"]) == (metadata, "exited")
    assert list(tmp_path.iterdir()) == []


def test_it_is_bounded(shared: Served) -> None:
    """A thousand sessions fit on a page: what one may say of itself has a bound."""
    body = {"repository": "repo", "commit_sha": "main", "metadata": {"note": "x" * 70_000}}
    told = refused(shared.admin.post("/sessions", json=body), 422, "invalid_input")
    assert told["field"] == "metadata" and "the limit is 65536" in told["message"]
    refused(shared.admin.post("/runs", json={**body, "argv": ["true"]}), 422, "invalid_input")


def test_rows_that_others_have_written(shared: Served) -> None:
    """Facts of another shape, as a program of this machine may have written them, break no list."""
    for metadata in ({"caller": "ci", "environment": None}, {"environment": {"manifests": [], "more": 1}}):
        session = shared.local.store.sessions.create(metadata=metadata)
        assert answered(shared.admin.get(f"/sessions/{session.id}"), 200)["metadata"] == metadata
        assert shared.local.sessions.environment(session, Path("/")) is None
