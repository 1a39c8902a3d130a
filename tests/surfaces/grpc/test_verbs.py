"""Open, run, follow, cancel, artifacts, diff, close: each over a real gRPC connection."""

from __future__ import annotations

from typing import Any

import grpc

from tests.surfaces.grpc.conftest import Play
from tests.surfaces.grpc.serving import Served, log_of, refusal

BINARY = b"".join(bytes([n, 255 - n]) for n in range(256)) + "grün".encode() + b"\xc3\x28\xff\x00"


def test_a_session_from_open_to_close(play: Play) -> None:
    """A command runs in an opened session; its exit record, artifacts, diff and close are as the service has them."""

    async def scene(served: Served) -> None:
        ask = served.admin.ask
        opened = await ask("OpenSession", repository="project", commit_sha="HEAD", metadata={"a": 1, "b": [None, "x"]})
        assert dict(opened.metadata)["a"] == 1
        submitted = await served.run(
            opened.id, "echo two >> file.txt; echo hello > out.txt; exit 3", artifacts=["out*.txt"]
        )
        ended = await ask("WaitCommand", command_id=submitted.id, timeout=90)
        assert (ended.status, ended.exit_code, ended.exit_reason) == ("failed", 3, "nonzero_exit")
        assert (ended.exit.reason, ended.exit.exit_code) == ("nonzero_exit", 3)
        assert ended.exit.mechanism
        assert ended.finished_at.ToDatetime() >= ended.started_at.ToDatetime()
        diff = await ask("DiffSession", session_id=opened.id)
        assert diff.exact
        assert "+two" in diff.patch
        chunks = [chunk.data async for chunk in served.admin.follow("FetchDiff", session_id=opened.id)]
        assert b"".join(chunks).decode() == diff.patch
        kept = await served.artifact(opened.id, "out.txt")
        wanted = {"session_id": opened.id, "artifact_id": kept.id}
        assert (await ask("GetArtifact", **wanted)).size == 6
        assert [chunk.data async for chunk in served.admin.follow("FetchArtifact", **wanted)] == [b"hello\n"]
        await ask("CloseSession", session_id=opened.id)
        assert (await ask("GetSession", session_id=opened.id)).status == "completed"

    play(scene)


def test_the_quotas_of_a_token_are_told(play: Play) -> None:
    """They are in the answer that makes the token and in the list."""

    async def scene(served: Served) -> None:
        quotas = {"sessions": 4, "requests_per_second": 2.5}
        made = await served.admin.ask("CreateToken", name="bounded", quotas=quotas)
        listed = {row.id: dict(row.quotas) for row in (await served.admin.ask("ListTokens")).items}
        assert dict(made.quotas) == quotas == listed[made.id]

    play(scene)


def test_logs_are_the_same_bytes(play: Play) -> None:
    """Bytes that are no UTF-8 arrive unchanged by FollowLog from any offset and by ReadLog page by page."""

    async def scene(served: Served) -> None:
        session = await served.session()
        octal = "".join(f"\\{byte:03o}" for byte in BINARY)
        command = await served.run(session, f"printf '{octal}'")
        assert await log_of(served.admin, command.id) == BINARY
        assert await log_of(served.admin, command.id, 100) == BINARY[100:]
        assert await log_of(served.admin, command.id, len(BINARY) + 10) == b""
        read, offset, ended = b"", 0, False
        while not ended:
            page = await served.admin.ask("ReadLog", command_id=command.id, offset=offset, limit=100)
            read, offset, ended = read + b"".join(piece.data for piece in page.pieces), page.next_offset, page.ended
        assert read == BINARY

    play(scene)


def test_an_artifact_goes_on_from_an_offset(play: Play) -> None:
    """A large artifact arrives in chunks at their offsets, and again from the middle."""

    async def scene(served: Served) -> None:
        session = await served.session()
        await served.run(session, "head -c 1000000 /dev/urandom > big.bin", artifacts=["*.bin"])
        kept = await served.artifact(session, "big.bin")
        wanted = {"session_id": session, "artifact_id": kept.id}
        chunks = [chunk async for chunk in served.admin.follow("FetchArtifact", **wanted)]
        whole = b"".join(chunk.data for chunk in chunks)
        assert len(whole) == 1_000_000
        assert [chunk.offset for chunk in chunks[1:]] == [chunk.offset + len(chunk.data) for chunk in chunks[:-1]]
        rest = [chunk.data async for chunk in served.admin.follow("FetchArtifact", **wanted, offset=999_000)]
        assert b"".join(rest) == whole[999_000:]
        assert [chunk async for chunk in served.admin.follow("FetchArtifact", **wanted, offset=2_000_000)] == []

    play(scene)


def test_a_cancelled_command_says_so(play: Play) -> None:
    """CancelCommand ends a command that would go on, and its follower's stream ends with it."""

    async def scene(served: Served) -> None:
        command = await served.run(await served.session(), "echo begun; exec sleep 600")
        stream = served.admin.follow("FollowLog", command_id=command.id)
        assert (await stream.read()).data == b"begun\n"
        ended = await served.admin.ask("CancelCommand", command_id=command.id)
        assert (ended.status, ended.exit_reason) == ("cancelled", "cancelled")
        told = await stream.read()
        assert (told.stream, b"cancelled by admin" in told.data) == ("system", True)
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() == grpc.StatusCode.OK

    play(scene)


def test_stdin_takes_bytes(play: Play) -> None:
    """Bytes written by WriteStdin reach the command as they are, once per write id."""

    async def scene(served: Served) -> None:
        command = await served.run(await served.session(), "echo ready; cat", stdin=True)
        stream = served.admin.follow("FollowLog", command_id=command.id)
        assert (await stream.read()).data == b"ready\n"
        for write_id, data in (("1", BINARY), ("1", BINARY)):
            await served.admin.ask("WriteStdin", command_id=command.id, write_id=write_id, data=data)
        await served.admin.ask("WriteStdin", command_id=command.id, write_id="2", close=True)
        await served.admin.ask("WaitCommand", command_id=command.id, timeout=90)
        assert await log_of(served.admin, command.id) == b"ready\n" + BINARY

    play(scene)


def test_a_repeated_key_gives_the_same_command(play: Play) -> None:
    """Two SubmitCommand with one idempotency key are one command; a key that is too long is refused."""

    async def scene(served: Served) -> None:
        session = await served.session()
        one, two = [await served.run(session, "true", key="again") for _ in range(2)]
        assert one.id == two.id
        code, told = await refusal(served.run(session, "true", key="x" * 300))
        assert (code, told["code"]) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_input")

    play(scene)


def test_a_run_opens_and_closes_by_itself(play: Play) -> None:
    """StartRun leaves a command that ends and, among the events that FollowEvents tells, its end."""

    async def scene(served: Served) -> None:
        run = await served.admin.ask("StartRun", repository="project", commit_sha="HEAD", argv=["cat", "file.txt"])
        assert await log_of(served.admin, run.command.id) == b"one\n"
        events = served.admin.follow("FollowEvents", command_id=run.command.id)
        async for event in events:
            if event.kind == "command.finished":
                break
        events.cancel()
        listed = (await served.admin.ask("ReadEvents", command_id=run.command.id)).items
        assert "command.finished" in [item.kind for item in listed]

    play(scene)


def test_exec_answers_with_the_bytes(play: Play) -> None:
    """Exit code, both streams as they are, a digest, and what is left out; in a session and in a folder."""

    async def scene(served: Served) -> None:
        script = "printf '\\377\\000'; echo e >&2; exit 3"
        session = await served.session()
        places: list[dict[str, Any]] = [{"session_id": session}, {}]
        for place in places:
            done = await served.admin.ask(
                "ExecCommand", argv=["sh", "-c", script], wait=90, merged=True, digest=True, **place
            )
            assert (done.ended, done.exit_code, done.exit_reason) == (True, 3, "nonzero_exit")
            assert (done.stdout, done.stderr, done.stdout_encoding) == (b"\xff\x00", b"e\n", "base64")
            assert sorted((piece.stream, piece.data) for piece in done.merged) == [
                ("stderr", b"e\n"),
                ("stdout", b"\xff\x00"),
            ]
            assert done.digest.end == 4 and not done.left_out
        cut = await served.admin.ask("ExecCommand", argv=["seq", "1000"], wait=90, output_bytes=4)
        assert (cut.stdout, cut.stdout_tail, cut.left_out[0].bytes) == (b"1\n2\n", b"000\n", 3893 - 8)

    play(scene)


def test_commit_is_another_name_and_the_newest_session_is_the_first(play: Play) -> None:
    """As over HTTP, ``commit`` may be given for ``commit_sha``, not both; a list continues in its order."""

    async def scene(served: Served) -> None:
        ask = served.admin.ask
        opened = [(await ask("OpenSession", repository="project", commit="main")).id for _ in range(3)]
        found, _ = await refusal(ask("OpenSession", repository="project", commit="main", commit_sha="main"))
        assert found is grpc.StatusCode.INVALID_ARGUMENT
        assert (await ask("ExecCommand", repository="project", commit="main", argv=["true"], wait=90)).exit_code == 0
        first = await ask("ListSessions", status=["open"], limit=2)
        rest = await ask("ListSessions", status=["open"], limit=2, after=first.next_after)
        assert [row.id for row in (*first.items, *rest.items)] == sorted(opened, reverse=True)
        oldest = await ask("ListSessions", status=["open"], order="oldest")
        assert [row.id for row in oldest.items] == sorted(opened)
        for session in opened:
            await ask("CloseSession", session_id=session)

    play(scene)


def test_a_patch_of_any_bytes(play: Play) -> None:
    """A patch that is not UTF-8 goes both ways as bytes."""
    patch = b"--- a/file.txt\n+++ b/file.txt\n@@ -1 +1 @@\n-one\n+gr\xfc\xdf\n"

    async def scene(served: Served) -> None:
        ask = served.admin.ask
        opened = await ask("OpenSession", repository="project", patch_bytes=patch)
        diff = await ask("DiffSession", session_id=opened.id)
        assert not diff.exact and b"+gr\xfc\xdf\n" in diff.patch_bytes
        done = await ask("ExecCommand", argv=["cat", "file.txt"], repository="project", patch_bytes=diff.patch_bytes)
        assert done.stdout == b"gr\xfc\xdf\n"

    play(scene)
