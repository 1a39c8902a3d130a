"""The body of ``POST /v1/responses``: what is understood of it; other fields are left alone."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from debug_server.gateway.chat_request import Effort


class _Known(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class InputPart(_Known):
    """A piece of a message."""

    type: Literal["input_text", "output_text", "text", "input_image", "refusal"]
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None


class InputItem(_Known):
    """One item of ``input``: a message, a call that was made, or what it gave."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None

    @model_validator(mode="after")
    def _whole(self) -> InputItem:
        wanted: dict[str, dict[str, object]] = {
            "message": {"role": self.role, "content": self.content},
            "function_call": {"call_id": self.call_id, "name": self.name, "arguments": self.arguments},
            "function_call_output": {"call_id": self.call_id, "output": self.output},
        }
        if missing := [name for name, value in wanted.get(self.type, {}).items() if value is None]:
            raise ValueError(f"an item of type {self.type} needs {' and '.join(missing)}")
        return self


class FunctionTool(_Known):
    """One of ``tools``."""

    type: Literal["function"]
    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    description: str | None = None
    parameters: dict[str, Any] | None = None


class TextFormat(_Known):
    """``text.format``."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class TextOptions(_Known):
    """``text``."""

    format: TextFormat | None = None


class ReasoningOptions(_Known):
    """``reasoning``."""

    effort: Effort | None = None


class ResponsesRequest(_Known):
    """The body."""

    model: str = Field(min_length=1)
    input: str | list[InputItem]
    instructions: str | None = None
    stream: bool | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False, strict=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False, strict=False)
    max_output_tokens: int | None = Field(default=None, ge=1)
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    metadata: dict[str, str] | None = None
    previous_response_id: str | None = None

    @model_validator(mode="after")
    def _whole(self) -> ResponsesRequest:
        if self.previous_response_id is not None:
            raise ValueError("previous_response_id: answers are not kept here, so send the conversation in input")
        if not self.input:
            raise ValueError("input must not be empty")
        return self
