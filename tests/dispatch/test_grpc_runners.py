"""Runners that make a gRPC call: targets that misbehave, services of other people, and crashes during a call."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from debug_server.kanban import kanban_pb2 as pb
from tests.dispatch.governor_process import TERMINAL, GovernorProcess, make_repository, repos_text
from tests.dispatch.probes import SYNC_REPO, not_grpc, notebook, serving, strange_probe
from tests.running import eventually, lasting_port

YES = pb.SyncRepoResponse(ok=True, files_synced=7).SerializeToString()


def _runners(targets: Mapping[str, tuple[int, str]], timeout: float = 60.0) -> str:
    """One runner for each port and rpc."""
    return "runners:\n" + "".join(
        f"  {name}:\n    executor: grpc\n    target: 127.0.0.1:{port}\n    rpc: {rpc}\n    skills: [{name}.call]\n"
        f"    repos: all\n    timeout: {timeout}\n"
        for name, (port, rpc) in targets.items()
    )


def test_whatever_the_target_does_becomes_the_right_event(governor: GovernorProcess, tmp_path: Path) -> None:
    """Garbage, another protocol, nobody there; a service known by reflection only is called, with the payload's fields.

    What was sent is never sent again.
    """
    path = make_repository(tmp_path / "repo")
    with ExitStack() as stack:
        garbage, calls = stack.enter_context(strange_probe(b"\xff\xff garbage"))
        long = pb.SyncRepoResponse(ok=True, error="[" * 9000).SerializeToString()
        brackets, _ = stack.enter_context(strange_probe(long))
        other, notes = stack.enter_context(not_grpc()), stack.enter_context(notebook())
        targets = {
            "garbage": (garbage, "ProbeSync.SyncRepo"),
            "other": (other, "ProbeSync.SyncRepo"),
            "gone": (lasting_port(), "ProbeSync.SyncRepo"),
            "reflected": (notes, "acme.Notebook.Add"),
            "short": (notes, "Notebook.Add"),
            "method": (notes, "acme.Notebook.Remove"),
            "streams": (notes, "acme.Notebook.Watch"),
            "unknown": (notes, "acme.Diary.Add"),
            "silent": (garbage, "acme.Notebook.Add"),
            "brackets": (brackets, "ProbeSync.SyncRepo"),
            "misfit": (notes, "acme.Notebook.Add"),
        }
        governor.configure(_runners(targets), repos_text({"repo": path}))
        governor.start()
        for name in targets:
            count = "many" if name == "misfit" else 3
            assert governor.emit(name, f"{name}.call", "repo", payload=json.dumps({"count": count})).ok
        ends = {
            event.task_id: (event.event_type, json.loads(event.payload))
            for event in governor.events()
            if event.event_type in TERMINAL
        }
    assert len(calls) == 1
    # Too long to be kept whole, and what is kept looks like bottomless JSON: nobody's stream ends with it.
    assert ends["brackets"] == ("runner.exited", {**ends["brackets"][1], "ok": True, "response": None})
    for name in ("reflected", "short"):
        assert ends[name] == ("runner.exited", {**ends[name][1], "ok": True, "response": {"said": "3 notes of repo"}})
    said = {
        "garbage": "INTERNAL",
        "other": "does not answer",
        "gone": "nothing was sent",
        "method": "no method 'Remove'",
        "streams": "Watch streams",
        "unknown": "has 0 services named",
        "silent": "does not describe",
        "misfit": "does not fit acme.Note",
    }
    for name, words in said.items():
        kind, payload = ends[name]
        assert (kind, payload["ok"]) == ("runner.error", False), (name, payload)
        assert words in payload["stderr"], payload["stderr"]
    assert "trying once more" in ends["gone"][1]["stderr"]


def test_only_the_probe_is_redirected_by_variables(governor: GovernorProcess, tmp_path: Path) -> None:
    """PROBE_HOST and PROBE_GRPC_PORT name the target of the runner ``probe``; another runner calls its own."""
    with strange_probe(YES) as (redirected, probed), strange_probe(YES) as (declared, called):
        targets = {"probe": (lasting_port(), "ProbeSync.SyncRepo"), "other": (declared, "ProbeSync.SyncRepo")}
        governor.configure(_runners(targets), repos_text({"repo": make_repository(tmp_path / "repo")}))
        governor.environ = {"PROBE_HOST": "127.0.0.1", "PROBE_GRPC_PORT": str(redirected)}
        governor.start()
        for name in targets:
            assert governor.emit(name, f"{name}.call", "repo").ok
            assert governor.run_end(name)[0] == "runner.exited"
    assert (len(probed), len(called)) == (1, 1)


def test_a_crash_during_a_call_sends_nothing_twice(governor: GovernorProcess, tmp_path: Path) -> None:
    """kill -9 of the server: its keeper brings the answer to the next server. kill -9 of the keeper, too: `lost`.

    Each event is received once by the probe.
    """
    path = make_repository(tmp_path / "repo")
    with ExitStack() as stack:
        slow, calls = stack.enter_context(strange_probe("never"))
        answered: list[bytes] = []
        gate = tmp_path / "gate"

        def answer(request: bytes) -> bytes:
            answered.append(request)
            eventually(gate.exists, 90)
            return YES

        late = stack.enter_context(serving(SYNC_REPO[0], {SYNC_REPO[1]: answer}))
        targets = {"late": (late, "ProbeSync.SyncRepo"), "slow": (slow, "ProbeSync.SyncRepo")}
        governor.configure(_runners(targets), repos_text({"repo": path}))
        governor.start()
        for name in targets:
            governor.emit(name, f"{name}.call", "repo")
        eventually(lambda: answered and calls, what="both calls")
        (keeper,) = _keepers(governor, "slow")
        governor.kill()
        os.kill(keeper, signal.SIGKILL)
        governor.start()
        gate.touch()
        kind, payload = governor.run_end("late")
        assert (kind, payload["ok"], payload["response"]["files_synced"]) == ("runner.exited", True, 7)
        kind, payload = governor.run_end("slow")
        assert (kind, payload["ok"], payload["reason"]) == ("runner.error", False, "lost")
        assert governor.emit("after", "nothing.known", "repo").ok
    assert (len(answered), len(calls)) == (1, 1)


def _keepers(governor: GovernorProcess, runner: str) -> list[int]:
    """The pids of the keepers that have a run of this runner."""
    folders = (governor.root / ".artifacts/keepers").glob("[0-9]*")  # those that are spare begin with a dot
    handles = [json.loads((folder / "handle.json").read_text()) for folder in folders]
    return [handle["keeper"]["pid"] for handle in handles if Path(handle["log_path"]).name.startswith(f"{runner}-")]
