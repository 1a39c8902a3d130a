"""From conversations to turns: where each message goes."""

from __future__ import annotations

from typing import Any

from debug_server.gateway.chat_request import ChatRequest
from debug_server.gateway.prompts import chat_turn, estimated_tokens, responses_turn
from debug_server.gateway.responses_request import ResponsesRequest
from debug_server.workers.codex_turn import TurnRequest

BASE = TurnRequest(cwd="/work", sandbox="read-only", approval_policy="never")


def chat(*messages: dict[str, Any], **more: Any) -> TurnRequest:
    """The turn of a chat."""
    return chat_turn(ChatRequest.model_validate({"model": "m", "messages": list(messages), **more}), BASE)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_conversation_is_instructions_history_and_input() -> None:
    """Leading system and developer messages instruct; the last user message is the input; the rest is history."""
    turn = chat(
        {"role": "system", "content": "s1"},
        {"role": "developer", "content": "d1"},
        user("q1"),
        {"role": "assistant", "content": "a1"},
        {"role": "system", "content": "s2"},
        user("q2"),
    )
    assert (turn.base_instructions, turn.developer_instructions) == ("s1", "d1")
    assert [(item["role"], item["content"][0]["text"]) for item in turn.history] == [
        *(("user", "q1"), ("assistant", "a1"), ("developer", "s2"))
    ]
    assert turn.input == [{"type": "text", "text": "q2"}]
    assert (turn.cwd, turn.sandbox, turn.approval_policy, turn.model) == ("/work", "read-only", "never", "m")


def test_calls_and_their_results_are_history_and_the_input_is_empty() -> None:
    """After a tool's result there is nothing new from the user, and nothing is made up."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = chat(
        user("q"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
    )
    assert turn.input == []
    assert [item["type"] for item in turn.history] == ["message", "function_call", "function_call_output"]
    assert turn.history[2] == {"type": "function_call_output", "call_id": "c1", "output": "r"}


def test_images_and_parts_are_kept() -> None:
    """Text parts are joined, images go along."""
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    turn = chat({"role": "user", "content": parts})
    assert turn.input == [{"type": "text", "text": "a"}, {"type": "image", "url": "data:x"}]


def test_functions_formats_and_effort() -> None:
    """Tools become functions of the turn, a schema its output's schema, choices of tools a word to the model."""
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]
    turn = chat(user("q"), tools=tools, tool_choice="required", reasoning={"effort": "high"})
    assert turn.tools == [{"type": "function", "name": "f", "description": "d", "inputSchema": {"type": "object"}}]
    assert turn.effort == "high"
    assert "Call" in (turn.developer_instructions or "")
    assert chat(user("q"), tools=tools, tool_choice="none").tools == []
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    assert chat(user("q"), response_format=schema).output_schema == {"type": "object"}
    assert "JSON" in (chat(user("q"), response_format={"type": "json_object"}).developer_instructions or "")


def test_the_responses_api_says_the_same() -> None:
    """A text, or items: messages, calls and results; instructions are the base."""
    plain = ResponsesRequest.model_validate({"model": "m", "input": "q", "instructions": "i"})
    turn = responses_turn(plain, BASE)
    assert (turn.base_instructions, turn.input) == ("i", [{"type": "text", "text": "q"}])
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "id": "r"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ]
    turn = responses_turn(ResponsesRequest.model_validate({"model": "m", "input": items}), BASE)
    assert [item["type"] for item in turn.history] == ["message", "function_call", "function_call_output"]
    assert turn.input == []
    assert estimated_tokens(turn) > 0
