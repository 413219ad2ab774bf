"""Writers of the items of hosted calls: of MCP servers, of OpenAI's types, of tool searches.

The ids of calls and of approval requests are derived from the call's id, so that the next request's history
(`hosted_items`) has the same call ids as this answer. Each writer sends its events in OpenAI's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.core import json_codec
from emulator.core.events import (
    ApprovalRequested,
    HostedCallFinished,
    HostedCallStarted,
    HostedKind,
    ToolsListed,
    pieces,
    serialize_arguments,
)
from emulator.fronts.responses.callers import caller_fields
from emulator.fronts.responses.hosted_items import (
    APPROVAL,
    CALL,
    FILES,
    FOUND,
    IMAGES,
    SEARCH,
    SHELL_OUTPUT,
    TOOL_SEARCH,
    item_id,
    text_of,
)
from emulator.fronts.responses.items import Json
from emulator.fronts.responses.output import Events, ItemWriter
from emulator.hosted.search_results import read_pages


class ListedToolsWriter(ItemWriter):
    """Writes the list of a server's tools."""

    def __init__(self, index: int, listed: ToolsListed) -> None:
        item = {"id": listed.id, "type": "mcp_list_tools", "server_label": listed.server}
        super().__init__(index, {**item, "tools": []})
        self._listed = listed

    def all_events(self) -> Events:
        yield from self.start()
        yield self._event("mcp_list_tools.in_progress")
        error = self._listed.error
        yield self._event(f"mcp_list_tools.{'completed' if error is None else 'failed'}")
        tools = [dict(tool) for tool in self._listed.tools]
        yield self._done(tools=tools, **({} if error is None else {"error": error}))


class ApprovalRequestWriter(ItemWriter):
    """Writes a call that waits for the client's decision."""

    def __init__(self, index: int, call: ApprovalRequested) -> None:
        item = {"id": item_id(APPROVAL, call.id), "type": "mcp_approval_request"}
        super().__init__(index, {**item, **_function(call)})

    def all_events(self) -> Events:
        yield from self.start()
        yield self._done()


class HostedCallWriter(ItemWriter):
    """Writes a call that the proxy runs. Other items may start and end between `start` and `close`."""

    def __init__(self, index: int, call: HostedCallStarted) -> None:
        approval = item_id(APPROVAL, call.approval_id) if call.approval_id else None
        item = {"id": item_id(CALL, call.id), "type": "mcp_call", "status": "in_progress"}
        result = {"approval_request_id": approval, "error": None, "output": None}
        super().__init__(index, {**item, **result, **_function(call), "arguments": ""})
        self._arguments = serialize_arguments(call.arguments, "function")

    def start(self) -> Events:
        yield from super().start()
        yield self._event("mcp_call.in_progress")
        for piece in pieces(self._arguments):
            yield self._event("mcp_call_arguments.delta", delta=piece)
        self.item = {**self.item, "arguments": self._arguments}
        yield self._event("mcp_call_arguments.done", arguments=self._arguments)

    def close(self, result: HostedCallFinished) -> Events:
        text = text_of(result.content)
        if result.is_error:
            content = [{"type": "text", "text": text}]
            changes: Json = {"error": {"type": "mcp_tool_execution_error", "content": content}}
        else:
            changes = {"output": text}
        status = "failed" if result.is_error else "completed"
        yield self._event(f"mcp_call.{status}")
        yield self._done(status=status, **changes)


@dataclass(frozen=True)
class _Shape:
    """How the calls of one of OpenAI's types are written."""

    type: str
    prefix: str
    works: str
    """The event while the call runs."""
    started: Callable[[Mapping[str, Any]], Json]
    """The fields that the call's arguments make."""
    ended: Callable[[Json, HostedCallFinished], Json]
    """The changes that a result makes to the item."""


def _searched(item: Json, result: HostedCallFinished) -> Json:
    pages = [] if result.is_error else read_pages(result.content)
    sources = [{"type": "url", "url": page.url} for page in pages]
    return {"action": {**item["action"], "sources": sources}}


def _made(image: str) -> Json:
    """The fields of an image, a data: URL."""
    media_type, separator, data = image.partition(";base64,")
    return {"result": data, "output_format": media_type.rpartition("/")[2]} if separator else {}


def found_files(result: HostedCallFinished) -> list[Json]:
    """The hits of a file search; text that is no list of them is one."""
    if result.is_error:
        return []
    text = text_of(result.content)
    try:
        hits = json_codec.loads(text)
    except json_codec.NotJSON:
        hits = None
    if not isinstance(hits, list) or not all(isinstance(one, dict) for one in hits):
        hits = [{"text": text}] if text else []
    names = ("file_id", "filename", "score", "text")
    return [{"attributes": None, **{name: one.get(name) for name in names}} for one in hits]


_SHAPES: Mapping[HostedKind, _Shape] = {
    "web_search": _Shape(
        "web_search_call",
        SEARCH,
        "searching",
        lambda call: {
            "action": {"type": "search", "query": call["query"], "queries": [call["query"]]}
        },
        _searched,
    ),
    "file_search": _Shape(
        "file_search_call",
        FILES,
        "searching",
        lambda call: {"queries": [call["query"]], "results": None},
        lambda _, result: {"results": found_files(result)},
    ),
    "image_generation": _Shape(
        "image_generation_call",
        IMAGES,
        "generating",
        lambda call: {"result": None, "revised_prompt": call["prompt"]},
        lambda _, result: _made(result.image),
    ),
}


class ServedCallWriter(ItemWriter):
    """Writes a call of one of OpenAI's types. Other items may start and end between `start` and `close`."""

    def __init__(self, index: int, call: HostedCallStarted) -> None:
        self._shape = _SHAPES[call.kind]
        item = {"id": item_id(self._shape.prefix, call.id), "type": self._shape.type}
        fields = self._shape.started(call.arguments)
        super().__init__(index, {**item, "status": "in_progress", **fields})

    def start(self) -> Events:
        yield from super().start()
        yield self._event(f"{self._shape.type}.in_progress")
        yield self._event(f"{self._shape.type}.{self._shape.works}")

    def close(self, result: HostedCallFinished) -> Events:
        yield self._event(f"{self._shape.type}.completed")
        status = "failed" if result.is_error else "completed"
        yield self._done(status=status, **self._shape.ended(self.item, result))


class ModelImageWriter(ItemWriter):
    """Writes an image that the model itself made, as one of a call."""

    def __init__(self, index: int, key: str, image: str) -> None:
        item = {"id": key, "type": "image_generation_call", "status": "in_progress"}
        super().__init__(index, {**item, "result": None, "revised_prompt": None})
        self._image = image

    def all_events(self) -> Events:
        yield from self.start()
        for state in ("in_progress", "generating", "completed"):
            yield self._event(f"image_generation_call.{state}")
        yield self._done(status="completed", **_made(self._image))


class ShellOutputWriter(ItemWriter):
    """Writes the outputs of the commands of a shell call."""

    def __init__(self, index: int, call: HostedCallStarted, result: HostedCallFinished) -> None:
        item = {"id": item_id(SHELL_OUTPUT, call.id), "type": "shell_call_output"}
        most = call.arguments.get("max_output_length")
        fields: Json = {"call_id": call.id, "status": "in_progress", "output": []}
        fields |= caller_fields(call.caller)
        super().__init__(index, {**item, **fields, "max_output_length": most})
        self._result = result

    def all_events(self) -> Events:
        yield from self.start()
        outputs = _command_outputs(text_of(self._result.content))
        for n, output in enumerate(outputs):
            texts = {name: output[name] for name in ("stdout", "stderr")}
            place = {"command_index": n}
            yield self._event("shell_call_output_content.delta", **place, delta=texts)
            yield self._event("shell_call_output_content.done", **place, output=[output])
        yield self._done(status="completed", output=outputs)


def _command_outputs(text: str) -> list[Json]:
    """The outputs in a result; a call that did not run has its reason as the output of one command."""
    try:
        outputs: list[Json] = json_codec.loads(text)
    except json_codec.NotJSON:
        outcome = {"type": "exit", "exit_code": 1}
        outputs = [{"stdout": "", "stderr": text, "outcome": outcome}]
    return outputs


class ToolSearchWriter(ItemWriter):
    """Writes a search for tools."""

    def __init__(self, index: int, call: HostedCallStarted) -> None:
        item = {"id": item_id(TOOL_SEARCH, call.id), "type": "tool_search_call", "call_id": None}
        state = {"execution": "server", "arguments": call.arguments, "status": "in_progress"}
        super().__init__(index, {**item, **state})

    def close(self, _: HostedCallFinished) -> Events:
        yield self._done(status="completed")


class FoundToolsWriter(ItemWriter):
    """Writes the tools that a search found."""

    def __init__(self, index: int, call_id: str, tools: list[Json]) -> None:
        item = {"id": item_id(FOUND, call_id), "type": "tool_search_output", "call_id": None}
        state = {"execution": "server", "tools": tools, "status": "completed"}
        super().__init__(index, {**item, **state})

    def all_events(self) -> Events:
        yield from self.start()
        yield self._done()


WRITERS: Mapping[HostedKind, type[HostedCallWriter | ServedCallWriter | ToolSearchWriter]] = {
    **dict.fromkeys(_SHAPES, ServedCallWriter),
    "tool_search": ToolSearchWriter,
}
"""Of calls that are not written as those of an MCP server."""


def _function(call: HostedCallStarted | ApprovalRequested) -> Json:
    arguments = serialize_arguments(call.arguments, "function")
    function = {"server_label": call.server, "name": call.name, "arguments": arguments}
    return function | caller_fields(call.caller)
