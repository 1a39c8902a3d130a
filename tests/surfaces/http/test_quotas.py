"""A token's bounds: sessions, commands, requests each second."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.running import eventually
from tests.surfaces.http.serving import Served, answered, refused

SCOPES = ["sessions:read", "sessions:write", "commands:write", "artifacts:read"]


def test_they_can_be_seen(served: Served) -> None:
    """What a token was given is in the answer that made it and in the list; one without bounds has none."""
    quotas = {"sessions": 4, "commands": 8, "requests_per_second": 2.5}
    made = answered(served.admin.post("/auth/tokens", json={"name": "bounded", "quotas": quotas}), 201)
    free = answered(served.admin.post("/auth/tokens", json={"name": "free"}), 201)
    listed = {row["id"]: row["quotas"] for row in answered(served.admin.get("/auth/tokens"), 200)["items"]}
    assert (made["quotas"], free["quotas"]) == (quotas, {}) == (listed[made["id"]], listed[free["id"]])


def test_sessions(served: Served) -> None:
    """One session more than allowed is 429 with Retry-After, by opening, forking or running; closing one makes room."""
    client = served.client(SCOPES, quotas={"sessions": 2})
    first = served.session(client)
    body = {"repository": "repo", "commit": "HEAD"}
    refused(client.post(f"/sessions/{first}/fork", json={"count": 2}), 429, "quota_exceeded")
    served.session(client)
    answer = client.post("/sessions", json=body)
    assert refused(answer, 429, "quota_exceeded")["retryable"] is True
    assert int(answer.headers["retry-after"]) >= 1
    refused(client.post("/runs", json={**body, "argv": ["true"]}), 429, "quota_exceeded")
    answered(client.delete(f"/sessions/{first}"), 200)
    served.session(client)
    served.session()  # another's token has its own bounds


def test_workspaces_of_a_token_without_quotas(served: Served) -> None:
    """A token that is no admin's leaves half of the workspaces to others, by opening, forking and running; an admin's
    and one with a quota of sessions do not."""
    client, most = served.client(SCOPES), served.local.settings.workspaces_per_token
    found = [served.session(client) for _ in range(most)]
    body = {"repository": "repo", "commit": "HEAD"}
    message = refused(client.post("/sessions", json=body), 429, "quota_exceeded")["message"]
    assert f"{most} workspaces" in message
    refused(client.post("/runs", json={**body, "argv": ["true"]}), 429, "quota_exceeded")
    refused(client.post(f"/sessions/{found[0]}/fork", json={"count": 1}), 429, "quota_exceeded")
    served.session()
    for number in found:
        answered(client.delete(f"/sessions/{number}"), 200)
    served.session(client)
    with_quota = served.client(SCOPES, quotas={"sessions": most + 1})
    for _ in range(most + 1):
        served.session(with_quota)


def test_commands_that_race(served: Served) -> None:
    """However many are sent at once, no more run or wait than allowed."""
    client = served.client(SCOPES, quotas={"commands": 3})
    session = served.session(client)

    def submit(_: int) -> int:
        return client.post(f"/sessions/{session}/commands", json={"argv": ["sleep", "600"]}).status_code

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(submit, range(16)))
    assert set(found) == {201, 429} and 1 <= found.count(201) <= 3
    while found.count(201) < 3:
        found.append(submit(0))
    assert submit(0) == 429
    command = client.get(f"/sessions/{session}/commands").json()["items"][0]["id"]
    answered(client.post(f"/commands/{command}/cancel"), 200)
    assert submit(0) == 201


def test_requests_each_second(served: Served) -> None:
    """A second's worth may come at once; then 429 says when to come again."""
    client = served.client(SCOPES, quotas={"requests_per_second": 3})
    assert [client.get("/whoami").status_code for _ in range(3)] == [200, 200, 200]
    with ThreadPoolExecutor(8) as pool:  # one after the other they are fewer than allowed, where each takes its time

        def refusal() -> httpx.Response | None:
            found = pool.map(lambda _: client.get("/whoami"), range(8))
            return next((item for item in found if item.status_code == 429), None)

        late: httpx.Response = eventually(refusal, what="a refusal")
    refused(late, 429, "quota_exceeded")
    assert late.headers["retry-after"] == "1"


def test_a_command_that_does_not_read_holds_up_nobody(served: Served) -> None:
    """Any number of writes may wait for one command to read: others are answered, and its end ends the waiting."""
    client = served.client(SCOPES, quotas={"commands": 1})
    command = served.submit(served.session(client), "sleep", "600", client=client, stdin=True)
    eventually(lambda: client.get(f"/commands/{command}").json()["status"] == "running")

    sent = []

    def write(number: int) -> httpx.Response:
        sent.append(number)
        body = {"write_id": f"w{number}", "data": "x" * (200_000 if number == 0 else 1)}
        return client.post(f"/commands/{command}/stdin", json=body, timeout=100)

    with ThreadPoolExecutor(48) as pool:
        writes = [pool.submit(write, number) for number in range(48)]
        eventually(lambda: len(sent) == 48)
        answered(served.admin.post("/auth/tokens", json={"name": "another"}), 201)
        answered(served.admin.post(f"/commands/{command}/cancel"), 200)
        # Those that came before the large one had room in the pipe.
        assert {item.result().status_code for item in writes} in ({409}, {200, 409})
