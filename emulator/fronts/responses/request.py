"""The Responses request: lenient about what clients send, explicit about what is unsupported.

`wire` says what becomes of each field. Knows nothing of chat, of the store or of
Flask.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from emulator.core import json_codec
from emulator.core.errors import BadRequest
from emulator.core.part_cache import PartCache
from emulator.core.protocol import Lenient, read_object, validated
from emulator.core.wire import check_fields
from emulator.fronts.responses import items
from emulator.fronts.responses.items import Json
from emulator.fronts.responses.tools import check_has_type
from emulator.fronts.responses.wire import FIELDS

CODE_OUTPUTS = "code_interpreter_call.outputs"
FILE_RESULTS = "file_search_call.results"
SOURCES = "web_search_call.action.sources"
LOGPROBS = "message.output_text.logprobs"
INCLUDED = frozenset({CODE_OUTPUTS, FILE_RESULTS, SOURCES, LOGPROBS})
"""Of openai.types.responses.response_includable; others have no effect."""


class TextFormat(Lenient):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextOptions(Lenient):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Lenient):
    effort: str | None = None
    summary: str | None = None


class CacheOptions(Lenient):
    prewarm: bool = False


class ContextManagement(Lenient):
    type: Literal["compaction"]
    compact_threshold: int | None = Field(None, ge=1)
    """Tokens of a prompt beyond which the conversation is compacted first."""


def _check_metadata(value: Any) -> Any:
    """Enforce OpenAI's limits on metadata: 16 pairs, keys of 64 characters, values of 512 characters."""
    if isinstance(value, dict):
        if len(value) > 16:
            raise ValueError("metadata has at most 16 pairs")
        for name, text in value.items():
            if len(name) > 64:
                raise ValueError("a key in metadata has at most 64 characters")
            if not isinstance(text, str) or len(text) > 512:
                raise ValueError("a value in metadata is text of at most 512 characters")
    return value


Metadata = Annotated[dict[str, str], BeforeValidator(_check_metadata)]


def _conversation(value: Any) -> Any:
    """Return the conversation's id, which may be wrapped in an object."""
    return value["id"] if isinstance(value, dict) and "id" in value else value


class ResponseRequest(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    model: str = Field(min_length=1)
    input: Any = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Annotated[str | None, BeforeValidator(_conversation)] = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = Field(None, ge=1)
    max_output_tokens: int | None = Field(None, ge=1)
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_logprobs: int | None = Field(None, ge=0, le=20)
    metadata: Metadata | None = None
    include: list[str] | None = None
    context_management: list[ContextManagement] | None = None
    background: bool | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: CacheOptions | None = None

    @property
    def prewarms(self) -> bool:
        """The prompt is read, and nothing is answered."""
        return bool(self.prompt_cache_options and self.prompt_cache_options.prewarm)


def parse_request(
    body: bytes, client: str = "", cache: PartCache | None = None, *, model: str | None = None
) -> tuple[ResponseRequest, list[Json]]:
    """Parse a request body. Returns the request and its input as normalized items.

    Items that the ``client`` sent before are read once. ``model`` is the default for a request without one.
    Raises `BadRequest`, which names the place.
    """
    value = read_object(body)
    if model is not None and value.get("model") is None:
        value["model"] = model
    try:
        # Parts of a request are echoed or stored later, and orjson reads deeper JSON than it writes.
        json_codec.dumps(value)
    except TypeError as error:
        raise BadRequest("The request is nested too deeply.") from error
    check_fields(FIELDS, value)
    request = validated(ResponseRequest, value)
    if request.background and request.store is False:
        message = "A background response is stored until it is fetched: remove store."
        raise BadRequest(message, param="store")
    if request.conversation is not None and request.previous_response_id is not None:
        message = "A response continues a conversation or previous_response_id, not both."
        raise BadRequest(message, param="conversation")
    for n, tool in enumerate(request.tools or ()):
        check_has_type(tool, f"tools[{n}]")
    input_items = items.normalize([] if request.input is None else request.input)
    items.parse(input_items, client=client, cache=cache)
    return request, input_items
