"""Requests of every kind to a gateway over the fake worker: shapes of answers, and what is refused and how."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.gateway.gateway_process import GatewayProcess, serving
from tests.running import eventually

CHAT = "/v1/chat/completions"
TOOLS: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One for all: nothing here changes it."""
    environ = {
        "PROXY_SSE_KEEPALIVE_MS": "200",
        "PROXY_IDLE_TIMEOUT_MS": "60000",
        "PROXY_TIMEOUT_MS": "90000",
        "WORKER_MAX_CONCURRENCY": "2",
        "PROXY_SSE_MAX_CONCURRENCY": "2",
        "TOKEN_LOG_PATH": "tokens.jsonl",
        "PROTO_LOG_PATH": "protocol.jsonl",
    }
    with serving(tmp_path_factory.mktemp("gateway"), environ) as found:
        yield found


@pytest.fixture
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    """A plain client."""
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        yield client


def body(text: str = "words=2", **more: Any) -> dict[str, Any]:
    """A request with one message."""
    return {"model": "gpt-5.2", "messages": [{"role": "user", "content": text}], **more}


def error_of(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error, which has a sentence, a type and the expected code; and every answer has an id."""
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert answer.headers["x-request-id"]
    found: dict[str, Any] = answer.json()["error"]
    assert found["message"]
    assert found["type"]
    return found


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": []}, "messages"),
        ({"messages": "x"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages.0"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, None),
        ({"n": 0}, "n"),
        ({"n": 6}, "n"),
        ({"n": "2"}, "n"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"tool_choice": "perhaps"}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
        ({"stop": "w1"}, "stop"),
        ({"stop": ["w1"]}, "stop"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "x", "format": "wav"}}, "audio"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages"),
    ],
)
def test_a_wrong_value_is_named(http: httpx.Client, wrong: dict[str, Any], param: str | None) -> None:
    """400 with the field as ``param``; nothing reaches the worker."""
    error = error_of(http.post(CHAT, json={**body(), **wrong}), 400, "invalid_request_error")
    assert param is None or error["param"] == param
    assert "retryable" not in error


def test_what_is_no_request_is_refused(http: httpx.Client) -> None:
    """Other text than JSON, other JSON than an object, unknown models and paths, and bodies beyond the bound."""
    error_of(http.post(CHAT, content=b"{nope"), 400, "invalid_json")
    error_of(http.post(CHAT, content=b'"text"'), 400, "invalid_request_error")
    error_of(http.post(CHAT, content=b"\xff\xfe"), 400, "invalid_json")
    assert error_of(http.post(CHAT, json=body() | {"model": "gpt-0"}), 404, "model_not_found")["param"] == "model"
    error_of(http.post("/v1/embeddings", json={}), 404, "not_found")
    assert http.get("/__test/conc").status_code == 404
    error_of(http.put(CHAT, json=body()), 405, "method_not_allowed")
    error_of(http.post(CHAT, content=b"x" * 17_000_000), 413, "request_entity_too_large")
    pieces = (b"x" * 1_000_000 for _ in range(25))
    error_of(http.post(CHAT, content=pieces), 413, "request_entity_too_large")


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"previous_response_id": "r"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"tool_choice": {"type": "function", "name": "g"}}, "tool_choice"),
        ({"input": ""}, "input"),
        ({"input": [{"role": "developer", "content": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": []}]}, "input"),
    ],
)
def test_what_a_response_cannot_be_is_named(http: httpx.Client, wrong: dict[str, Any], param: str) -> None:
    """Nothing that would change the answer is dropped in silence: 400 with the field as ``param``."""
    answer = http.post("/v1/responses", json={"model": "gpt-5.2", "input": "x", **wrong})
    assert error_of(answer, 400, "invalid_request_error")["param"] == param


def test_values_that_ask_for_nothing_are_taken(http: httpx.Client) -> None:
    """Clients send null, false and empty values for what they leave alone."""
    nothing: dict[str, Any] = {
        "stop": None,
        "logprobs": False,
        "top_logprobs": None,
        "audio": None,
        "tool_choice": None,
    }
    for modalities in (None, ["text"]):
        assert http.post(CHAT, json=body(**nothing, modalities=modalities)).status_code == 200
    assert http.post(CHAT, json=body(stop=[], tools=TOOLS, tool_choice="auto")).status_code == 200
    chosen = {"type": "function", "function": {"name": "f"}}
    assert http.post(CHAT, json=body(tools=TOOLS, tool_choice=chosen)).status_code == 200
    asked = {"model": "gpt-5.2", "input": "words=2", "background": False, "previous_response_id": None, "prompt": None}
    assert http.post("/v1/responses", json=asked).status_code == 200


def test_one_model(http: httpx.Client, gateway: GatewayProcess) -> None:
    """The official client retrieves each model of the list; another is model_not_found."""
    assert [gateway.client().models.retrieve(name).id for name in ("gpt-5.2", "fake-model")] == [
        "gpt-5.2",
        "fake-model",
    ]
    assert http.head("/v1/models/gpt-5.2").status_code == 200
    assert error_of(http.get("/v1/models/gpt-0"), 404, "model_not_found")["param"] == "model"
    error_of(http.get("/v1/models/gpt-5.2", headers={"Origin": "http://evil.example"}), 401, "invalid_api_key")


def test_a_body_within_the_bound_is_taken(http: httpx.Client) -> None:
    """A prompt of 15 MB passes through to the worker and back as an answer."""
    answer = http.post(CHAT, json=body("words=2 " + "x" * 15_000_000))
    assert answer.json()["choices"][0]["message"]["content"] == "w0 w1"


def test_a_stream_has_its_parts_in_order(http: httpx.Client, tmp_path: Path) -> None:
    """Role, content, finish, usage where asked for, [DONE]; comments while nothing is said."""
    gate = tmp_path / "gate"
    asked = body(f"words=3 delay=5 gate={gate}", stream=True, stream_options={"include_usage": True})
    lines: list[str] = []
    with http.stream("POST", CHAT, json=asked) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in filter(None, answer.iter_lines()):
            lines.append(line)
            if line == ": keepalive":
                gate.touch()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1]) == "w0 w1 w2"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert (events[-1]["choices"], events[-1]["usage"]["total_tokens"]) == ([], 10)
    assert lines[-1] == "data: [DONE]"
    assert len({(event["id"], event["created"], event["model"], event["object"]) for event in events}) == 1


def test_several_choices(gateway: GatewayProcess) -> None:
    """n = 3 gives three choices, and the tokens of all of them, in both forms."""
    client = gateway.client()
    answer = client.chat.completions.create(**body(n=3))
    assert [choice.message.content for choice in answer.choices] == ["w0 w1"] * 3
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6
    chunks = list(client.chat.completions.create(**body(n=2, stream=True)))
    assert {chunk.choices[0].index for chunk in chunks} == {0, 1}


def test_functions_of_the_client(gateway: GatewayProcess) -> None:
    """Calls come as tool_calls, in both forms and both APIs, and as function_call for those who declare functions."""
    client = gateway.client()
    answer = client.chat.completions.create(**body("tool=f calls=2", tools=TOOLS))
    assert answer.choices[0].finish_reason == "tool_calls"
    assert [call.id for call in answer.choices[0].message.tool_calls or ()] == ["call_0", "call_1"]
    chunks = list(client.chat.completions.create(**body("tool=f calls=2", tools=TOOLS, stream=True)))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert [(call.index, call.id) for call in calls] == [(0, "call_0"), (1, "call_1")]
    legacy = client.chat.completions.create(**body("tool=f", functions=[{"name": "f", "parameters": {}}]))
    assert legacy.choices[0].finish_reason == "function_call"
    tools: Any = [{"type": "function", "name": "f", "parameters": {}, "strict": False}]
    response = client.responses.create(model="fake-model", input="tool=f", tools=tools)
    assert [(item.type, getattr(item, "name", None)) for item in response.output] == [("function_call", "f")]


def test_the_events_of_the_responses_api(gateway: GatewayProcess) -> None:
    """The official client follows them, and they are numbered from 0 without a gap."""
    with gateway.client().responses.stream(model="gpt-5.2", input="words=2 delay=5") as stream:
        events = list(stream)
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    for kind in ("output_item.added", "output_text.delta", "output_text.done", "output_item.done"):
        assert f"response.{kind}" in kinds
    numbers = sorted({event.sequence_number for event in events})
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize(
    ("info", "status", "code"),
    [
        ("contextWindowExceeded", 403, "context_length_exceeded"),
        ("usageLimitExceeded", 429, "rate_limited"),
        ("unauthorized", 401, "invalid_api_key"),
        ("badRequest", 400, "invalid_request_error"),
        ("internalServerError", 500, "worker_error"),
    ],
)
def test_failures_of_a_turn_have_their_codes(http: httpx.Client, info: str, status: int, code: str) -> None:
    """What the worker reports becomes the status and code that clients know, before and within a stream."""
    error = error_of(http.post(CHAT, json=body(f"error={info}")), status, code)
    assert error_of(http.post(CHAT, json=body(f"error={info}", stream=True)), status, code) == error
    if info == "unauthorized":
        assert set(error["details"]) == {"auth_url", "login_id"}


def trickled(port: int) -> str:
    """The answer to a request whose body comes byte by byte and never ends."""
    with socket.create_connection(("127.0.0.1", port), 60) as peer:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 1000\r\n\r\n"
        peer.sendall(head.encode())
        peer.settimeout(0.2)
        for _ in range(300):
            with contextlib.suppress(TimeoutError):
                first = peer.recv(1 << 16)
                peer.settimeout(60)
                return (first + peer.makefile("rb").read()).decode()
            peer.sendall(b" ")
    raise AssertionError("it was waited for")


def trickled_whole(port: int) -> str:
    """The same, once more where a byte that came after the answer had the connection reset before it was read."""
    for _ in range(5):
        with contextlib.suppress(ConnectionError):
            return trickled(port)
    raise AssertionError("the connection was reset each time")


def test_silence_ends_at_its_deadline(tmp_path: Path, nothing_left: None) -> None:
    """A turn without a sign of life is interrupted: idle_timeout."""
    environ = {
        "PROXY_SSE_KEEPALIVE_MS": "500",
        "PROXY_IDLE_TIMEOUT_MS": "3000",
        "PROXY_STREAM_IDLE_TIMEOUT_MS": "5000",
    }
    with serving(tmp_path, environ) as gateway, httpx.Client(base_url=gateway.url, timeout=60) as http:
        error_of(http.post(CHAT, json=body("hang=1")), 504, "idle_timeout")
        stream = http.post(CHAT, json=body("hang=1", stream=True)).text
    assert stream.count(": ") >= 2 and '"code":"idle_timeout"' in stream, stream  # our comments are no sign of its life


def test_what_never_ends_is_ended(tmp_path: Path, nothing_left: None) -> None:
    """A turn that talks for ever: request_timeout, which a body that never comes gets, too."""
    environ = {"PROXY_TIMEOUT_MS": "3000", "PROXY_IDLE_TIMEOUT_MS": "4000"}
    with serving(tmp_path, environ) as gateway, ThreadPoolExecutor(1) as pool:
        trickle = pool.submit(trickled_whole, gateway.port)
        endless = httpx.post(gateway.url + CHAT, json=body("words=100000 delay=50"), timeout=60)
        error = error_of(endless, 504, "request_timeout")
        answer = trickle.result().lower()
    assert error["retryable"] is True
    assert answer.startswith("http/1.1 504 ") and "connection: close" in answer and "request_timeout" in answer, answer


def test_an_overload_of_the_worker_is_waited_for(http: httpx.Client) -> None:
    """-32001 is tried again until it is answered."""
    assert http.post(CHAT, json=body("words=1 overload=2")).status_code == 200


def test_a_client_that_leaves_frees_its_turn(gateway: GatewayProcess, http: httpx.Client) -> None:
    """After a disconnect, in either form, the worker is idle again long before the answer would have ended."""
    with http.stream("POST", CHAT, json=body("words=100000 delay=20", stream=True)) as answer:
        lines = answer.iter_lines()  # kept: one that nobody holds closes the connection
        assert next(lines).startswith(("data: ", ": "))
        eventually(lambda: gateway.worker()["in_flight"] == 1, what="the turn")
    eventually(lambda: gateway.worker()["in_flight"] == 0, what="an idle worker")
    with pytest.raises(httpx.ReadTimeout):
        http.post(CHAT, json=body("words=100000 delay=20"), timeout=0.3)
    eventually(lambda: gateway.worker()["in_flight"] == 0, what="an idle worker")


def test_a_flood_is_refused_and_leaves_no_trace(gateway: GatewayProcess) -> None:
    """More streams than the bound: concurrency_exceeded; more requests than fit: worker_busy; then quiet."""
    barrier = threading.Barrier(40)

    def one(number: int) -> tuple[int, str]:
        with httpx.Client(base_url=gateway.url, timeout=60) as client:
            barrier.wait()
            answer = client.post(CHAT, json=body("words=2 delay=300", stream=number % 2 == 0))
            code = answer.json()["error"]["code"] if answer.status_code != 200 else "ok"
            assert answer.status_code == 200 or "retry-after" in answer.headers
            return answer.status_code, code

    with ThreadPoolExecutor(40) as pool:
        ends = list(pool.map(one, range(40)))
    assert set(ends) <= {(200, "ok"), (429, "concurrency_exceeded"), (429, "worker_busy")}
    assert (200, "ok") in ends
    assert (429, "concurrency_exceeded") in ends
    assert gateway.metrics("codex_streams_active") == 0


def test_models_usage_and_the_small_methods(http: httpx.Client, gateway: GatewayProcess) -> None:
    """Models, sums and raw usage, HEAD and OPTIONS; wrong queries are named."""
    assert [item["id"] for item in http.get("/v1/models").json()["data"]] == ["gpt-5.2", "fake-model"]
    for path in ("/v1/models", CHAT, "/v1/responses"):
        assert http.head(path).status_code == 200
        assert http.options(path).status_code == 204
    http.post(CHAT, json=body())
    total = http.get("/v1/usage?group=hour").json()
    assert total["total"]["requests"] >= 1
    assert sum(item["requests"] for item in total["data"]) == total["total"]["requests"]
    last = http.get("/v1/usage/raw?limit=1").json()["data"][0]
    assert (last["model"], last["total_tokens"]) == ("gpt-5.2", 9)
    for query in ("raw?limit=0", "raw?limit=x", "raw?limit=10001", "?group=year", "?start=soon"):
        error_of(http.get(f"/v1/usage{'/' if query.startswith('raw') else ''}{query}"), 400, "invalid_request_error")
    eventually(lambda: '"total_tokens": 9' in (gateway.root / "tokens.jsonl").read_text(), what="a line")
    protocol = (gateway.root / "protocol.jsonl").read_text()
    assert '"method": "turn/start"' in protocol
    assert "words=" not in protocol


def test_without_a_key_only_this_machine_is_served(http: httpx.Client) -> None:
    """A foreign Origin or Host is refused although the peer is loopback: it may be a page in a browser."""
    own = str(http.base_url).rstrip("/")
    assert http.post(CHAT, json=body(), headers={"Origin": own, "Sec-Fetch-Site": "same-origin"}).status_code == 200
    foreign = (
        {"Origin": "http://evil.example"},
        {"Host": "evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},  # another port, or another name: perhaps another user's page
        {"Origin": own.replace("http:", "https:")},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    )
    for headers in foreign:
        for path in (CHAT, "/v1/responses"):
            error_of(http.post(path, json=body(), headers=headers), 401, "invalid_api_key")
        assert "access-control-allow-origin" not in http.get("/v1/models", headers=headers).headers


def test_a_page_of_this_machine_may_use_a_token(http: httpx.Client) -> None:
    """Its preflight is answered, and so is a request that brings a token: the page can read why it is refused."""
    headers = {"Origin": "http://localhost:3000"}
    preflight = http.options(CHAT, headers=headers)
    refused = http.post(CHAT, json=body(), headers={**headers, "Authorization": "Bearer unknown"})
    error_of(refused, 401, "invalid_api_key")
    for answer in (preflight, refused):
        assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert "access-control-allow-origin" not in http.options(CHAT, headers={"Origin": "http://evil.example"}).headers


def test_a_key_maintenance_and_rates(tmp_path: Path, nothing_left: None) -> None:
    """With a key everybody needs it; rates are bounded; metrics have a token of their own; maintenance refuses all."""
    key = "a-long-and-random-key"
    environ = {
        "PROXY_API_KEY": key,
        "PROXY_RATE_LIMIT_ENABLED": "true",
        "PROXY_RATE_LIMIT_MAX": "2",
        "PROXY_METRICS_ALLOW_LOOPBACK": "false",
        "PROXY_METRICS_TOKEN": "only-metrics",
        "PROXY_MAX_PROMPT_TOKENS": "100",
    }
    with serving(tmp_path, environ) as gateway, httpx.Client(base_url=gateway.url, timeout=60) as http:
        for secret in ("wrong", key[:-1], key + "x"):
            error_of(
                http.post(CHAT, json=body(), headers={"Authorization": f"Bearer {secret}"}), 401, "invalid_api_key"
            )
        error_of(http.post(CHAT, json=body()), 401, "invalid_api_key")
        client = gateway.client(api_key=key)
        assert client.chat.completions.create(**body()).choices[0].message.content == "w0 w1"
        with pytest.raises(openai.PermissionDeniedError):
            client.chat.completions.create(**body("x" * 1000))
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(**body())
        assert int(caught.value.response.headers["retry-after"]) > 0
        assert http.get("/metrics").json() == {"ok": False, "reason": "metrics_forbidden"}
        assert http.get("/metrics", headers={"Authorization": "Bearer only-metrics"}).status_code == 200
        assert http.get("/v1/models").status_code == 200
        environ_of_worker = Path(f"/proc/{gateway.worker()['pid']}/environ").read_text()
        assert key not in environ_of_worker
        assert "only-metrics" not in environ_of_worker
    with serving(tmp_path / "closed", {"PROXY_MAINTENANCE_MODE": "true"}) as gateway:
        answer = httpx.post(gateway.url + CHAT, json=body(), timeout=60)
        assert error_of(answer, 503, "maintenance_mode")["retryable"] is True
        assert answer.headers["retry-after"] == "60"
        assert gateway.metrics("codex_maintenance_mode") == 1


def test_switches_for_operators_and_testers(tmp_path: Path, nothing_left: None) -> None:
    """A worker that does not confirm an interruption is replaced where that is asked for; its heartbeats harm nothing,
    and the numbers of requests are shown to testers."""
    environ = {"PROXY_KILL_ON_DISCONNECT": "true", "PROXY_TEST_ENDPOINTS": "true"}
    with (
        serving(tmp_path, environ, JSONRPC_HANG="turn/interrupt", WORKER_HEARTBEAT_MS="20") as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):
        with http.stream("POST", CHAT, json=body("words=100000 delay=20", stream=True)) as answer:
            lines = answer.iter_lines()  # kept, as above
            assert next(lines)
            busy = {"inside": 1, "running": 1, "streams": 1}
            eventually(lambda: http.get("/__test/conc").json() == busy, what="the turn")
        eventually(lambda: gateway.worker()["restarts_total"] == 1, what="a replaced worker")
        status = gateway.await_ready()
        assert (status["restarts_total"], status["consecutive_failures"]) == (1, 0)
        beat = eventually(lambda: gateway.worker()["last_log_sample"], what="a heartbeat")
        assert beat["stream"] == "stdout"
        eventually(lambda: gateway.worker()["last_log_sample"]["ts"] != beat["ts"], what="another heartbeat")
        assert http.post(CHAT, json=body()).json()["choices"][0]["message"]["content"] == "w0 w1"
        assert http.get("/__test/conc").json() == {"inside": 0, "running": 0, "streams": 0}


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"PROXY_ENV": "prod"}, "PROXY_API_KEY is not set"),
        ({"PROXY_ENV": "prod", "PROXY_USE_APP_SERVER": "true"}, "PROXY_API_KEY is not set"),
        ({"PROXY_ENV": "prod", "PROXY_API_KEY": "changeme"}, "well known or too short"),
        ({"PROXY_ENV": "staging", "PROXY_API_KEY": "k" * 20, "PROXY_TEST_ENDPOINTS": "true"}, "PROXY_TEST_ENDPOINTS"),
        ({"PROXY_HOST": "0.0.0.0", "PROXY_METRICS_ALLOW_UNAUTH": "true"}, "PROXY_METRICS_ALLOW_UNAUTH"),
        ({"PROXY_SANDBOX_MODE": "none"}, "PROXY_SANDBOX_MODE"),
    ],
)
def test_a_start_that_would_be_insecure_is_refused(tmp_path: Path, environ: dict[str, str], sentence: str) -> None:
    """One line says what is wrong, with no traceback, and the status is 2; by itself or within the whole server."""
    arguments = ("serve", "--no-grpc") if "PROXY_USE_APP_SERVER" in environ else ("gateway", "serve")
    gateway = GatewayProcess(tmp_path, environ, arguments)
    gateway.launch()
    assert gateway.process is not None
    assert gateway.process.wait(60) == 2
    said = (tmp_path / "serve.err").read_text()
    assert sentence in said
    assert ("CONFIG_INSECURE" in said) == ("SANDBOX" not in sentence)
    assert "Traceback" not in said


def test_a_missing_program_is_told(tmp_path: Path, nothing_left: None) -> None:
    """A binary that is not there: requests are refused with the reason in status and diagnostics, the server lives."""
    with serving(tmp_path, {"CODEX_BIN": "no-such-codex", "WORKER_RESTART_MAX": "1"}, ready=False) as gateway:
        eventually(lambda: gateway.get("/livez")[0] == 503, what="a worker that is given up")
        told = eventually(lambda: _checked(gateway), what="a check of the program")
        assert told["ok"] is False
        assert "CODEX_BIN" in told["reason"]
        answer = httpx.post(gateway.url + CHAT, json=body(), timeout=60)
        error = error_of(answer, 503, "worker_not_ready")
        assert "restart limit" in error["message"] and "POST /workers/codex/restart" in error["message"]
        assert "retryable" not in error and "retry-after" not in answer.headers
        status, health = gateway.get("/healthz")
        assert (status, health["ok"]) == (200, False) and "restart limit" in health["message"]
        assert gateway.get("/readyz")[0] == 503


def _checked(gateway: GatewayProcess) -> dict[str, Any] | None:
    """What is known of the worker's program, once it was looked at."""
    told: dict[str, Any] = gateway.get("/healthz")[1]["worker_program"]
    return told if "ok" in told else None


def test_another_version_is_told(tmp_path: Path, nothing_left: None) -> None:
    """A codex without the methods of turns fails its handshake, and the status names its version."""
    environ = {"WORKER_RESTART_MAX": "0"}
    with serving(tmp_path, environ, ready=False, HANDSHAKE_MODE="old", VERSION="0.53.0") as gateway:
        eventually(lambda: gateway.get("/livez")[0] == 503, what="a worker that is given up")
        status = gateway.worker()
        assert "0.53.0" in json.dumps(status)
