"""The items of a Responses input and their parts. Knows nothing of what they mean in a chat.

`item_table.ITEMS` and `PARTS` define what an input may contain. Clients also send back output items, with
null fields and with fields that only outputs have; these are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from emulator.fronts.responses.callers import caller_of

Status = Literal["in_progress", "interpreting", "completed", "incomplete", "failed"]


class ItemModel(BaseModel):
    """The base of items and parts. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


# Parts of messages and of calls' outputs


class TextPart(ItemModel):
    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str


class RefusalPart(ItemModel):
    type: Literal["refusal"]
    refusal: str


class ImagePart(ItemModel):
    type: Literal["input_image"]
    image_url: str | None = Field(None, description="a URL, or the image itself as a data: URL")
    file_id: str | None = Field(None, description="the id of an uploaded file")
    detail: str | None = None


class FilePart(ItemModel):
    type: Literal["input_file"]
    file_data: str | None = Field(None, description="the file as a data: URL or base64")
    file_id: str | None = Field(None, description="the id of an uploaded file")
    filename: str | None = None


Part = TextPart | RefusalPart | ImagePart | FilePart

PARTS: Mapping[str, type[Part]] = {
    "input_text": TextPart,
    "output_text": TextPart,
    "text": TextPart,
    "summary_text": TextPart,
    "reasoning_text": TextPart,
    "refusal": RefusalPart,
    "input_image": ImagePart,
    "input_file": FilePart,
}
"""As of openai 3.57, openai.types.responses.response_input_content_param, and what outputs have. Others are
refused."""


# Items


class MessageItem(ItemModel):
    type: Literal["message"] = "message"
    id: str
    role: Literal["user", "assistant", "system", "developer"]
    content: tuple[Part, ...]


class CallItem(ItemModel):
    caller: Any = None

    @property
    def program(self) -> str | None:
        """The id of the program that calls."""
        return caller_of(self.caller)


class FunctionCallItem(CallItem):
    type: Literal["function_call"]
    id: str
    call_id: str = Field(min_length=1)
    name: str
    namespace: str | None = None
    server: str | None = None
    """The label of a hosted tool's server."""
    arguments: str


class CustomCallItem(CallItem):
    type: Literal["custom_tool_call"]
    id: str
    call_id: str = Field(min_length=1)
    name: str
    namespace: str | None = None
    input: str


class CallOutputItem(ItemModel):
    """The output of a call to a function or a custom tool."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    id: str
    call_id: str = Field("", description='the id of the call; "" if the client omitted it')
    output: tuple[Part, ...]
    status: Any = None
    found: list[dict[str, Any]] | None = None
    """The tools that a search found."""

    @property
    def is_error(self) -> bool:
        return self.status in ("failed", "incomplete")


class ProgramItem(ItemModel):
    type: Literal["program"]
    id: str
    call_id: str = Field(min_length=1)
    code: str
    fingerprint: str = ""


class ProgramOutputItem(ItemModel):
    type: Literal["program_output"]
    id: str
    call_id: str = Field(min_length=1)
    result: str = ""
    status: Literal["completed", "incomplete"] = "completed"


class ApprovalResponseItem(ItemModel):
    """The client's decision about a hosted call."""

    type: Literal["mcp_approval_response"]
    id: str
    approval_request_id: str
    approve: StrictBool
    reason: str = ""


class ReasoningItem(ItemModel):
    type: Literal["reasoning"]
    id: str
    summary: Any = None
    content: Any = None

    @property
    def text(self) -> str:
        """The reasoning, or its summary, as far as the item has it in the clear."""
        parts = self.content or self.summary
        texts = (
            [p.get("text") for p in parts if isinstance(p, dict)] if isinstance(parts, list) else ()
        )
        return "\n".join(text for text in texts if isinstance(text, str))


class CellOutput(ItemModel):
    type: Literal["logs", "image"]
    logs: str = ""


class CodeCallItem(ItemModel):
    type: Literal["code_interpreter_call"]
    id: str
    code: str = ""
    container_id: str = ""
    outputs: tuple[CellOutput, ...] | None = None
    status: Status = "completed"

    @property
    def key(self) -> str:
        """The cell's id in those of its calls. Each time that it continues, it is a new item."""
        return self.id.removeprefix("ci_").partition("_")[0]


class CompactionItem(ItemModel):
    """A summary of the conversation so far, opaque to clients (`compaction.py`)."""

    type: Literal["compaction"]
    id: str
    encrypted_content: str = ""


class ReferenceItem(ItemModel):
    type: Literal["item_reference"]
    id: str


Item = (
    MessageItem
    | FunctionCallItem
    | CustomCallItem
    | CallOutputItem
    | ProgramItem
    | ProgramOutputItem
    | ApprovalResponseItem
    | ReasoningItem
    | CodeCallItem
    | CompactionItem
    | ReferenceItem
)
