"""Who may call the kanban services: this machine without a token, others with one that has the scope."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import grpc
import pytest

from debug_server.kanban import kanban_pb2 as pb
from debug_server.kanban import kanban_pb2_grpc
from debug_server.store import open_store
from debug_server.surfaces.grpc.v1 import debug_server_pb2 as v1
from tests.dispatch.conftest import ONE_RUNNER
from tests.dispatch.governor_process import GovernorProcess, make_repository, repos_text


def _outward_address() -> str:
    """This machine's address as others see it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError as error:
            pytest.skip(f"this machine has no address but loopback: {error}")
        return str(probe.getsockname()[0])


def test_a_caller_from_elsewhere_needs_a_token(governor: GovernorProcess, tmp_path: Path) -> None:
    """Emit and Stream answer loopback without a token, another address not; a token needs the call's scope."""
    path = make_repository(tmp_path / "repo", {"work.sh": "echo fine\n"})
    governor.configure(ONE_RUNNER, repos_text({"repo": path}))
    with open_store(str(governor.root / ".artifacts/data/metadata.db")) as store:
        tokens = {
            name: store.tokens.create(name, scopes)[1]
            for name, scopes in {"watcher": ["sessions:read"], "all": ["admin"]}.items()
        }
    governor.host = "0.0.0.0"
    governor.start()
    asked = pb.IssueEventRequest(task_id="T", event_type="work.do", repo_name="repo")
    repo = pb.AddRepoRequest(repo=pb.RepoEntry(name="other", local_path="other"))
    with grpc.insecure_channel(f"{_outward_address()}:{governor.port}") as channel:
        events = kanban_pb2_grpc.IssueEventStub(channel)  # type: ignore[no-untyped-call]
        registry = kanban_pb2_grpc.RepoRegistryStub(channel)  # type: ignore[no-untyped-call]

        def status(token: str | None) -> list[str]:
            headers = () if token is None else (("authorization", f"Bearer {token}"),)
            calls = (
                lambda: events.Emit(asked, metadata=headers, timeout=60),
                lambda: list(events.Stream(pb.StreamRequest(), metadata=headers, timeout=60)),
                lambda: registry.AddRepo(repo, metadata=headers, timeout=60),
            )
            found = []
            for call in calls:
                try:
                    call()
                    found.append("OK")
                except grpc.RpcError as error:
                    found.append(error.code().name)
            return found

        assert status(None) == status("wrong") == ["UNAUTHENTICATED"] * 3
        assert governor.events() == []
        assert status(tokens["watcher"]) == ["PERMISSION_DENIED", "OK", "PERMISSION_DENIED"]
        assert status(tokens["all"]) == ["OK"] * 3
        _sent_away(governor, events, channel)
    assert governor.emit("L", "work.do", "repo").ok
    _handed_on(governor, repo)
    governor.events()


def _handed_on(governor: GovernorProcess, repo: pb.AddRepoRequest) -> None:
    """What a proxy of this machine hands on is somebody else's."""
    with grpc.insecure_channel(f"127.0.0.1:{governor.port}") as channel:
        registry = kanban_pb2_grpc.RepoRegistryStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError) as refused:
            registry.AddRepo(repo, metadata=(("x-forwarded-for", "192.0.2.7"),), timeout=60)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def _sent_away(governor: GovernorProcess, events: Any, channel: grpc.Channel) -> None:
    """Who follows the stream does so no longer than the token is good."""
    with open_store(str(governor.root / ".artifacts/data/metadata.db")) as store:
        admin = store.tokens.create("admin", ["admin"])[1]
        made, secret = store.tokens.create("short", ["sessions:read"])
    following = events.Stream(
        pb.StreamRequest(follow=True), metadata=(("authorization", f"Bearer {secret}"),), timeout=60
    )
    next(following)
    revoke = channel.unary_unary(
        "/debug_server.v1.DebugServer/RevokeToken",
        request_serializer=v1.RevokeTokenRequest.SerializeToString,
        response_deserializer=v1.Confirmation.FromString,
    )
    revoke(v1.RevokeTokenRequest(token_id=made.id), metadata=(("authorization", f"Bearer {admin}"),), timeout=60)
    with pytest.raises(grpc.RpcError) as ended:
        list(following)
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
