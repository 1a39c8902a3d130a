"""The real codex behind the gateway, over a stub of its model's provider, through the official client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.gateway.gateway_process import PATIENT, GatewayProcess, codex_home, require_codex
from tests.gateway.responses_stub import ResponsesStub, provider
from tests.running import carrying, eventually

pytestmark = pytest.mark.timeout(180)


def says(text: str) -> Any:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


class Real:
    """A gateway over the real codex, and its provider."""

    def __init__(self, gateway: GatewayProcess, stub: ResponsesStub) -> None:
        self.gateway = gateway
        self.stub = stub


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """One for all tests here: it takes a while to start and to stop."""
    program = require_codex()
    with provider() as stub, codex_home() as home:
        stub.configure(home)
        environ = {
            "CODEX_BIN": str(program),
            "CODEX_HOME": str(home),
            "HOME": str(home),  # codex starts a login shell, to learn what it sets
            "PROXY_APPROVAL_POLICY": "untrusted",
            "WORKER_BACKOFF_INITIAL_MS": "100",
            "PROXY_IDLE_TIMEOUT_MS": "60000",
            **PATIENT,
        }
        gateway = GatewayProcess(tmp_path_factory.mktemp("real"), environ)
        gateway.start(ready=False)
        try:
            gateway.await_ready(90)
            yield Real(gateway, stub)
        finally:
            gateway.stop()
        eventually(lambda: not carrying(str(home)), what="the end of every worker")


def test_boot_to_ready(real: Real) -> None:
    """The handshake is done, its version is the pinned one, and the program answers ``app-server --help``."""
    status = real.gateway.worker()
    assert status["health"]["readiness"]["handshake"]["version"] == "0.166.0"
    assert status["startup_latency_ms"] > 0
    told = eventually(lambda: real.gateway.get("/healthz")[1]["worker_program"].get("version"), what="its version")
    assert told == "0.166.0"


def test_a_whole_chat(real: Real) -> None:
    """System, history and the question reach the model; the answer and the tokens come back."""
    messages: Any = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "first question"},
        {"role": "assistant", "content": "first answer"},
        {"role": "user", "content": "SAY Hello world"},
    ]
    answer = real.gateway.client().chat.completions.create(model="gpt-5.2", messages=messages)
    assert answer.choices[0].message.content == "Hello world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (11, 3)
    told = [part["text"] for item in real.stub.requests[-1]["input"] for part in item.get("content", ())]
    assert [text for text in told if text in ("be brief", "first question", "first answer", "SAY Hello world")] == [
        *("be brief", "first question", "first answer", "SAY Hello world")
    ]


def test_a_streamed_chat(real: Real) -> None:
    """Role first, then the words as they come, the finish and the usage."""
    chunks = []
    for chunk in real.gateway.client().chat.completions.create(
        model="gpt-5.2", messages=says("HELD w0 w1 w2 w3"), stream=True, stream_options={"include_usage": True}
    ):
        chunks.append(chunk)
        if chunk.choices and chunk.choices[0].delta.content:
            real.stub.gate.set()  # the first word has come while the model still holds the others
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == "w0 w1 w2 w3"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None


def test_the_responses_api(real: Real) -> None:
    """Both forms give the text; the events are numbered without a gap."""
    client = real.gateway.client()
    assert client.responses.create(model="gpt-5.2", input="SAY one two").output_text == "one two"
    with client.responses.stream(model="gpt-5.2", input="SAY three") as stream:
        numbers = [event.sequence_number for event in stream if hasattr(event, "sequence_number")]
        assert stream.get_final_response().output_text == "three"
    assert sorted(set(numbers)) == list(range(max(numbers) + 1))


def test_a_function_of_the_clients(real: Real) -> None:
    """A declared function is called by the model, and its result, sent back, reaches it."""
    client = real.gateway.client()
    tools: Any = [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ]
    first = client.chat.completions.create(model="gpt-5.2", messages=says("CALL weather"), tools=tools)
    assert first.choices[0].finish_reason == "tool_calls"
    assert first.choices[0].message.tool_calls
    assert first.usage is not None
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (11, 3)
    asked = len(real.stub.requests)
    call = first.choices[0].message.tool_calls[0]
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Rome"}')
    messages = [
        *says("CALL weather"),
        first.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    second = client.chat.completions.create(model="gpt-5.2", messages=messages, tools=tools)
    assert second.choices[0].message.content == "done sunny"
    assert len(real.stub.requests) == asked + 1  # the interrupted turn has cost no further request


def test_a_turn_with_an_approval_request(real: Real) -> None:
    """The command that the model wants to run outside the sandbox is declined, and the turn goes on to its answer."""
    answer = real.gateway.client().chat.completions.create(model="gpt-5.2", messages=says("RUN touch /forbidden"))
    assert (answer.choices[0].message.content or "").startswith("done")
    output = next(item for item in real.stub.requests[-1]["input"] if item["type"] == "function_call_output")
    assert "reject" in str(output["output"]).lower()


def test_a_disconnect_interrupts_the_turn(real: Real) -> None:
    """When the client leaves, codex hangs up on the model; the next request works."""
    stream = real.gateway.client().chat.completions.create(model="gpt-5.2", messages=says("SLOW 2000"), stream=True)
    broken = real.stub.broken
    for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    stream.close()
    eventually(lambda: real.stub.broken > broken, what="the end of the model's answer")
    eventually(lambda: real.gateway.worker()["in_flight"] == 0, what="an idle worker")
    answer = real.gateway.client().chat.completions.create(model="gpt-5.2", messages=says("SAY again"))
    assert answer.choices[0].message.content == "again"


def test_a_failure_of_the_provider_is_told(real: Real) -> None:
    """A refused key at the provider is an authentication error, not an answer."""
    with pytest.raises(openai.AuthenticationError):
        real.gateway.client().chat.completions.create(model="gpt-5.2", messages=says("STATUS 401"))


def test_kill_9_in_mid_stream(real: Real) -> None:
    """The client gets one retryable error; readiness is false at once and true again; the next request succeeds."""
    gateway = real.gateway
    stream = gateway.client().chat.completions.create(model="gpt-5.2", messages=says("SLOW 2000"), stream=True)
    for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    before = gateway.worker()["restarts_total"]
    gateway.kill_worker()
    with pytest.raises(openai.APIError) as caught:
        for _ in stream:
            pass
    assert isinstance(caught.value.body, dict)
    assert (caught.value.body["code"], caught.value.body["retryable"]) == ("worker_exited", True)
    eventually(lambda: gateway.worker()["restarts_total"] == before + 1 and gateway.worker()["ready"], what="recovery")
    answer = gateway.client().chat.completions.create(model="gpt-5.2", messages=says("SAY recovered"))
    assert answer.choices[0].message.content == "recovered"
