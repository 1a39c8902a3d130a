"""The body of ``POST /v1/chat/completions``: what is understood of it; other fields are left alone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Effort = Literal["minimal", "low", "medium", "high", "xhigh"]


def _unless_null(default: object) -> BeforeValidator:
    """Clients write null for what they leave to the server."""
    return BeforeValidator(lambda value: default if value is None else value)


class _Known(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class FunctionCall(_Known):
    """A call that the model asked for."""

    name: str
    arguments: str = ""


class ToolCallMessage(_Known):
    """One entry of an assistant's ``tool_calls``."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ImageUrl(_Known):
    """Where an image is."""

    url: str


class ContentPart(_Known):
    """A piece of a message."""

    type: Literal["text", "image_url", "input_text", "output_text", "refusal"]
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | str | None = None

    @property
    def plain(self) -> str:
        """Its text."""
        return self.text or self.refusal or ""


class ChatMessage(_Known):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCallMessage] | None = None
    tool_call_id: str | None = None
    function_call: FunctionCall | None = None

    @model_validator(mode="after")
    def _whole(self) -> ChatMessage:
        if self.role == "tool" and not self.tool_call_id:
            raise ValueError("a message with the role tool needs its tool_call_id")
        if self.role == "function" and not self.name:
            raise ValueError("a message with the role function needs its name")
        if self.role in ("system", "developer", "user") and self.content is None:
            raise ValueError(f"a message with the role {self.role} needs content")
        return self

    @property
    def text(self) -> str:
        """All its text."""
        if isinstance(self.content, str) or self.content is None:
            return self.content or ""
        return "".join(part.plain for part in self.content)

    @property
    def images(self) -> list[str]:
        """The addresses of its images."""
        parts = self.content if isinstance(self.content, list) else []
        found = [part.image_url for part in parts if part.image_url is not None]
        return [item if isinstance(item, str) else item.url for item in found]


class FunctionSpec(_Known):
    """A function that the client offers."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")
    description: Annotated[str, _unless_null("")] = ""
    parameters: dict[str, Any] | None = None


class ToolSpec(_Known):
    """One of ``tools``."""

    type: Literal["function"]
    function: FunctionSpec


class StreamOptions(_Known):
    """``stream_options``."""

    include_usage: Annotated[bool, _unless_null(False)] = False


class JsonSchema(_Known):
    """The schema of an answer."""

    name: Annotated[str, _unless_null("answer")] = "answer"
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class ResponseFormat(_Known):
    """``response_format``."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _whole(self) -> ResponseFormat:
        if self.type == "json_schema" and (self.json_schema is None or self.json_schema.schema_ is None):
            raise ValueError("json_schema needs a schema")
        return self


class Reasoning(_Known):
    """``reasoning``."""

    effort: Effort | None = None


class ChatRequest(_Known):
    """The body."""

    model: str = Field(min_length=1)
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1), _unless_null(1)] = 1
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False, strict=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False, strict=False)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    tools: list[ToolSpec] | None = None
    functions: list[FunctionSpec] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning: Reasoning | None = None
    reasoning_effort: Effort | None = None

    @property
    def offered(self) -> list[FunctionSpec]:
        """The functions that the model may call."""
        return [tool.function for tool in self.tools or ()] + list(self.functions or ())

    @property
    def effort(self) -> Effort | None:
        """By either of its names."""
        return self.reasoning_effort or (self.reasoning.effort if self.reasoning else None)
