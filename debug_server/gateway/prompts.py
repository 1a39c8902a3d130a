"""Makes a turn of a client's conversation: instructions, history, and the last message as its input.

leading system -> base instructions      leading developer -> developer instructions
everything up to the last user message -> history      that message -> input
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from debug_server.gateway.chat_request import ChatMessage, ChatRequest, chosen_function
from debug_server.gateway.responses_request import InputItem, InputPart, ResponsesRequest
from debug_server.workers import TurnRequest

_CHARACTERS_PER_TOKEN = 4  # a rule of thumb for English
_JSON_ONLY = "Answer with one JSON object and nothing else."
Item = dict[str, Any]


def chat_turn(request: ChatRequest, base: TurnRequest) -> TurnRequest:
    """The turn that answers a chat request; ``base`` has the operator's settings."""
    head = 0
    while head < len(request.messages) and request.messages[head].role in ("system", "developer"):
        head += 1
    leading, rest = request.messages[:head], request.messages[head:]
    items = [item for message in rest for item in _chat_items(message)]
    form = request.response_format
    return _turn(
        base,
        model=request.model,
        system=[message.text for message in leading if message.role == "system"],
        developer=[message.text for message in leading if message.role == "developer"],
        items=items,
        tools=[_tool(item.name, item.description, item.parameters) for item in request.offered],
        tool_choice=request.tool_choice,
        effort=request.effort,
        schema=form.json_schema.schema_ if form and form.json_schema else None,
        json_only=form is not None and form.type == "json_object",
    )


def responses_turn(request: ResponsesRequest, base: TurnRequest) -> TurnRequest:
    """The turn that answers a request of the Responses API."""
    given = request.input
    items = (
        [_message("user", given)]
        if isinstance(given, str)
        else [_item(item) for item in given if item.type != "reasoning"]
    )
    form = request.text.format if request.text else None
    return _turn(
        base,
        model=request.model,
        system=[request.instructions] if request.instructions else [],
        developer=[],
        items=items,
        tools=[_tool(item.name, item.description or "", item.parameters) for item in request.tools or ()],
        tool_choice=request.tool_choice,
        effort=request.reasoning.effort if request.reasoning else None,
        schema=form.schema_ if form else None,
        json_only=form is not None and form.type == "json_object",
    )


def estimated_tokens(turn: TurnRequest) -> int:
    """The approximate number of tokens of a prompt."""
    texts = [turn.base_instructions or "", turn.developer_instructions or "", json.dumps([*turn.history, *turn.input])]
    return sum(map(len, texts)) // _CHARACTERS_PER_TOKEN


def _turn(
    base: TurnRequest,
    *,
    model: str,
    system: Sequence[str],
    developer: Sequence[str],
    items: Sequence[Item],
    tools: Sequence[Item],
    tool_choice: str | Mapping[str, Any] | None,
    effort: str | None,
    schema: Mapping[str, Any] | None,
    json_only: bool,
) -> TurnRequest:
    instructions = [*developer]
    if json_only:
        instructions.append(_JSON_ONLY)
    if tools and (instruction := _tool_instruction(tool_choice)):
        instructions.append(instruction)
    history, turn_input = _split(items)
    return TurnRequest(
        model=model,
        cwd=base.cwd,
        approval_policy=base.approval_policy,
        sandbox=base.sandbox,
        base_instructions="\n\n".join(system) or None,
        developer_instructions="\n\n".join(instructions) or None,
        history=history,
        input=turn_input,
        tools=[] if tool_choice == "none" else tools,
        effort=effort,
        output_schema=schema,
    )


def _split(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """The history, and the input of the turn; it is empty if the last message is not the user's."""
    if not items or items[-1].get("role") != "user":
        return list(items), []
    parts = []
    for part in items[-1]["content"]:
        if part["type"] == "input_image":
            parts.append({"type": "image", "url": part["image_url"]})
        else:
            parts.append({"type": "text", "text": part["text"]})
    return list(items[:-1]), parts


def _tool_instruction(choice: str | Mapping[str, Any] | None) -> str | None:
    if choice == "required":
        return "Call at least one of the functions."
    name = chosen_function(choice)
    return f"Call the function {name}." if name else None


def _tool(name: str, description: str, parameters: Mapping[str, Any] | None) -> Item:
    schema = dict(parameters) if parameters is not None else {"type": "object", "properties": {}}
    return {"type": "function", "name": name, "description": description, "inputSchema": schema}


def _message(role: str, text: str, images: Sequence[str] = ()) -> Item:
    kind = "output_text" if role == "assistant" else "input_text"
    content: list[Item] = [{"type": kind, "text": text}] if text or not images else []
    content += [{"type": "input_image", "image_url": url} for url in images]
    return {"type": "message", "role": role, "content": content}


def _chat_items(message: ChatMessage) -> list[Item]:
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": message.text}]
    if message.role == "function":
        return [{"type": "function_call_output", "call_id": f"call_{message.name}", "output": message.text}]
    if message.role != "assistant":
        role = "user" if message.role == "user" else "developer"
        return [_message(role, message.text, message.images)]
    items = [_message("assistant", message.text)] if message.text else []
    items += [_call(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    if (called := message.function_call) is not None:
        items.append(_call(f"call_{called.name}", called.name, called.arguments))
    return items


def _call(call_id: str, name: str, arguments: str) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _item(item: InputItem) -> Item:
    if item.type == "function_call":
        return _call(item.call_id or "", item.name or "", item.arguments or "")
    if item.type == "function_call_output":
        return {"type": "function_call_output", "call_id": item.call_id, "output": _plain(item.output)}
    images = [part.image_url for part in item.content if part.image_url] if isinstance(item.content, list) else []
    role = "developer" if item.role in ("system", "developer") else item.role or "user"
    return _message(role, _plain(item.content), images)


def _plain(content: str | Sequence[InputPart] | None) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(part.text or part.refusal or "" for part in content)
