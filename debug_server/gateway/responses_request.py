"""The body of ``POST /v1/responses``: the fields that the gateway uses; others are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from debug_server.gateway.chat_request import Effort, check_choice, unsupported

_NOT_STORED = "answers are not stored: send the conversation in input"


class _RequestModel(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class InputPart(_RequestModel):
    """A piece of a message."""

    type: Literal["input_text", "output_text", "text", "input_image", "refusal"]
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None


class InputItem(_RequestModel):
    """One item of ``input``: a message, a function call or its output."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None

    @model_validator(mode="after")
    def _check_complete(self) -> InputItem:
        wanted: dict[str, dict[str, object]] = {
            "message": {"role": self.role, "content": self.content},
            "function_call": {"call_id": self.call_id, "name": self.name, "arguments": self.arguments},
            "function_call_output": {"call_id": self.call_id, "output": self.output},
        }
        if missing := [name for name, value in wanted.get(self.type, {}).items() if value is None]:
            raise ValueError(f"an item of type {self.type} needs {' and '.join(missing)}")
        return self

    @property
    def has_content(self) -> bool:
        """Whether it has content to answer, besides instructions."""
        if self.type != "message":
            return self.type != "reasoning"
        if self.role in ("system", "developer") or self.content is None:
            return False
        if isinstance(self.content, str):
            return bool(self.content)
        return any(part.text or part.refusal or part.image_url for part in self.content)


class FunctionTool(_RequestModel):
    """One of ``tools``."""

    type: Literal["function"]
    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    description: str | None = None
    parameters: dict[str, Any] | None = None


class TextFormat(_RequestModel):
    """``text.format``."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class TextOptions(_RequestModel):
    """``text``."""

    format: TextFormat | None = None


class ReasoningOptions(_RequestModel):
    """``reasoning``."""

    effort: Effort | None = None


class ResponsesRequest(_RequestModel):
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
    previous_response_id: Annotated[Any, unsupported(_NOT_STORED)] = None
    conversation: Annotated[Any, unsupported(_NOT_STORED)] = None
    prompt: Annotated[Any, unsupported("templates are not stored: send the text in input")] = None
    background: Annotated[Any, unsupported("an answer belongs to its request: use stream for a long one")] = None
    top_logprobs: Annotated[Any, unsupported("the worker gives no probabilities")] = None

    @field_validator("input")
    @classmethod
    def _check_content(cls, given: str | list[InputItem]) -> str | list[InputItem]:
        answerable = given if isinstance(given, str) else any(item.has_content for item in given)
        if not answerable:
            raise ValueError("must contain a message with content")
        return given

    @field_validator("tool_choice")
    @classmethod
    def _check_tool_choice(cls, choice: Any, info: ValidationInfo) -> Any:
        if "tools" in info.data:  # otherwise tools is invalid
            check_choice(choice, [tool.name for tool in info.data["tools"] or ()])
        return choice
