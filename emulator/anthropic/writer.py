"""Answer events -> the events of a message's stream; `collect` folds them into the whole message.

The events follow the rules that Anthropic's SDKs check: ``message_start`` first; dense indices; each block
started before its deltas and stopped before the next block; ``message_delta`` with the stop reason second to
last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from emulator import json_codec
from emulator.answering.summary import collected
from emulator.anthropic.blocks import CODE, hosted_block_id
from emulator.anthropic.mcp_servers import LISTING
from emulator.errors import EmulatorError
from emulator.events import (
    AnswerEvent,
    ArgumentsDelta,
    CallStarted,
    CodeComplete,
    CodeFinished,
    CodeStarted,
    ContentDelta,
    Finish,
    FinishReason,
    HostedCallFinished,
    HostedCallStarted,
    Logs,
    ReasoningDelta,
    ToolCall,
    ToolsListed,
    UpstreamAccepted,
    Usage,
    new_id,
    pieces,
    serialize_arguments,
    with_call_deltas,
)
from emulator.hosted.hosted_tool import IMAGE
from emulator.hosted.search_results import read_pages
from emulator.upstream.failures import CONTEXT_CODE

Json = dict[str, Any]
Events = Iterator[Json]

_SERVER = "srvtoolu_"
"""The prefix of the ids of ``server_tool_use`` blocks."""
_INDEX = re.compile(r"\[(\d+)\]")

_REASONS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class MessageWriter:
    """Writes one message. ``thinks`` is True if the client asked for the model's reasoning; ``shows_lists``,
    if the client knows lists of an MCP server's tools; ``code_caller`` is how blocks name code as the caller
    of a tool, "" if they name no callers."""

    def __init__(
        self, model: str, *, thinks: bool, shows_lists: bool = False, code_caller: str = ""
    ) -> None:
        self._thinks = thinks
        self._code_caller = code_caller
        self._shows_lists = shows_lists
        self._index = -1
        self._open = ""
        """The type of the open block, or ""."""
        self._cell_id = ""
        """The id of the running cell's block."""
        self._is_resumed = False
        """The running cell's block is in an earlier answer."""
        self._hosted_calls: dict[str, HostedCallFinished | None] = {}
        """Call id -> its result, of the hosted calls whose result block is not written yet, in their order:
        so the next request has the results in the order of the calls."""
        self._searches: set[str] = set()
        """The ids of the calls that are web searches."""
        self._tool_searches: set[str] = set()
        """The ids of the calls that are searches for tools."""
        self._container: Json | None = None
        """Where code has run in this answer."""
        self._accepted = UpstreamAccepted()
        self._message: Json = {
            "id": new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(Usage()),
        }

    def write(self, events: Iterable[AnswerEvent]) -> Iterator[Json | UpstreamAccepted]:
        """Write the stream's events; `UpstreamAccepted` passes through."""
        started = False
        for event in with_call_deltas(events):
            if isinstance(event, UpstreamAccepted):
                self._accepted = event if event.container_id else self._accepted
                yield event
            if not started:
                started = True
                yield {"type": "message_start", "message": self._message}
            yield from self._events(event)

    def write_summary(self, events: Iterator[AnswerEvent]) -> Iterator[Json | UpstreamAccepted]:
        """Write the events of a message that consists of the summary in ``events``."""
        for event in events:
            if isinstance(event, UpstreamAccepted):
                yield event
                break
        yield {"type": "message_start", "message": self._message}
        text, usage = collected(events)
        yield from self._start("compaction", content=None)
        yield self._delta("compaction_delta", content=text)
        yield from self._close()
        yield self._finish("compaction", None, usage)
        yield {"type": "message_stop"}

    def _events(self, event: AnswerEvent) -> Events:
        match event:
            case ReasoningDelta(text) if self._thinks:
                yield from self._start("thinking", thinking="", signature="")
                yield self._delta("thinking_delta", thinking=text)
            case ContentDelta(text):
                yield from self._start("text", text="")
                yield self._delta("text_delta", text=text)
            case CallStarted():
                yield from self._close()
                caller = self._caller(event.caller)
                yield from self._start("tool_use", id=event.id, name=event.name, input={}, **caller)
            case ArgumentsDelta(text):
                yield self._delta("input_json_delta", partial_json=text)
            case ToolCall():
                yield from self._close()
            case ToolsListed() | HostedCallStarted() | HostedCallFinished():
                yield from self._hosted(event)
            case CodeStarted() | CodeComplete() | CodeFinished():
                yield from self._cell(event)
            case Finish(reason, usage):
                yield from self._close()
                yield from self._hosted_results()
                yield self._finish(_REASONS[reason], event.stop_sequence, usage)
                yield {"type": "message_stop"}

    def _caller(self, cell: str) -> Json:
        """The field of a call's block; ``cell`` is the one that makes the call, "" if the model does."""
        code = {"type": self._code_caller, "tool_id": f"{_SERVER}{cell}"}
        return {"caller": code if cell else {"type": "direct"}} if self._code_caller else {}

    def _hosted(self, event: ToolsListed | HostedCallStarted | HostedCallFinished) -> Events:
        match event:
            case ToolsListed(error=None) if self._shows_lists:
                tools = [dict(tool) for tool in event.tools]
                yield from self._whole(LISTING, mcp_server_name=event.server, tools=tools)
            case HostedCallStarted(key, kind, server, name):
                self._hosted_calls[key] = None
                yield from self._close()
                if kind == "tool_search":
                    self._tool_searches.add(key)
                    yield from self._begin(
                        "server_tool_use", id=search_id(key), name=name, input={}
                    )
                elif kind == "web_search":
                    self._searches.add(key)
                    yield from self._begin(
                        "server_tool_use", id=search_id(key), name=kind, input={}
                    )
                else:
                    place = {"id": hosted_block_id(key), "name": name, "server_name": server}
                    yield from self._begin("mcp_tool_use", **place, input={})
                for piece in pieces(serialize_arguments(event.arguments, "function")):
                    yield self._delta("input_json_delta", partial_json=piece)
                yield from self._close()
            case HostedCallFinished(key):
                self._hosted_calls[key] = event
                if not self._open:
                    yield from self._hosted_results()

    def _cell(self, event: CodeStarted | CodeComplete | CodeFinished) -> Events:
        match event:
            case CodeStarted(key, resumes=resumes):
                self._cell_id = f"{_SERVER}{resumes or key}"
                self._is_resumed = bool(resumes)
            case CodeComplete(code):
                self._container = _container(self._accepted)
                if self._is_resumed:
                    return
                yield from self._close()
                yield from self._start("server_tool_use", id=self._cell_id, name=CODE, input={})
                for piece in pieces(json_codec.dumps({"code": code}).decode()):
                    yield self._delta("input_json_delta", partial_json=piece)
                yield from self._close()
            case CodeFinished():
                yield from self._cell_result(event)

    def _start(self, kind: str, **fields: Any) -> Events:
        """Start a block of this type, unless one is open already."""
        if self._open == kind:
            return
        yield from self._close()
        yield from self._hosted_results()
        yield from self._begin(kind, **fields)

    def _begin(self, kind: str, **fields: Any) -> Events:
        self._index += 1
        self._open = kind
        block = {"type": kind, **fields}
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _close(self) -> Events:
        if self._open == "thinking":
            # Clients send the signature back unread; the proxy ignores it.
            yield self._delta("signature_delta", signature=new_id("sig_"))
        if self._open:
            yield {"type": "content_block_stop", "index": self._index}
        self._open = ""

    def _delta(self, kind: str, **fields: Any) -> Json:
        delta = {"type": kind, **fields}
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _whole(self, kind: str, **fields: Any) -> Events:
        """A block without deltas."""
        yield from self._begin(kind, **fields)
        yield from self._close()

    def _hosted_results(self) -> Events:
        """The results that are known, up to the first that is not."""
        while (key := next(iter(self._hosted_calls), "")) and (result := self._hosted_calls[key]):
            del self._hosted_calls[key]
            if key in self._searches:
                found = _found_pages(result)
                kind = "web_search_tool_result"
                yield from self._whole(kind, tool_use_id=search_id(key), content=found)
                continue
            if key in self._tool_searches:
                kind, found = "tool_search_tool_result", _found_tools(result)
                yield from self._whole(kind, tool_use_id=search_id(key), content=found)
                continue
            content = result.content
            texts = [content] if isinstance(content, str) else [_part_text(one) for one in content]
            yield from self._whole(
                "mcp_tool_result",
                tool_use_id=hosted_block_id(key),
                is_error=result.is_error,
                content=[{"type": "text", "text": text} for text in texts],
            )

    def _cell_result(self, event: CodeFinished) -> Events:
        """The result of a cell. A cell that waits for a call has no result yet."""
        if event.status == "incomplete":
            return
        result = {
            "type": "code_execution_result",
            "stdout": "".join(one.text for one in event.outputs if isinstance(one, Logs)),
            "stderr": "",
            "return_code": int(event.status == "failed"),
            "content": [
                {"type": "code_execution_output", "file_id": file.file_id} for file in event.files
            ],
        }
        yield from self._start(
            "code_execution_tool_result", tool_use_id=self._cell_id, content=result
        )
        yield from self._close()

    def _finish(self, reason: str, stop_sequence: str | None, usage: Usage) -> Json:
        delta: Json = {"stop_reason": reason, "stop_sequence": stop_sequence}
        if stop_sequence is not None and reason == "end_turn":
            delta["stop_reason"] = "stop_sequence"
        if self._container:
            delta["container"] = self._container
        return {"type": "message_delta", "delta": delta, "usage": _usage(usage)}


def collect(events: Iterable[Json | UpstreamAccepted]) -> Json:
    """Fold a stream's events into the message."""
    message: Json = {}
    texts: list[str] = []
    for event in events:
        if isinstance(event, UpstreamAccepted):
            continue
        match event["type"]:
            case "message_start":
                message = {**event["message"], "content": []}
            case "content_block_start":
                message["content"].append(dict(event["content_block"]))
                texts = []
            case "content_block_delta":
                _fold(message["content"][-1], event["delta"], texts)
            case "content_block_stop":
                _close(message["content"][-1], texts)
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"]}
    return message


def _fold(block: Json, delta: Json, texts: list[str]) -> None:
    if delta["type"] == "signature_delta":
        block["signature"] = delta["signature"]
    else:
        fields = ("text", "thinking", "partial_json", "content")
        texts += [delta[field] for field in fields if field in delta]


def _close(block: Json, texts: list[str]) -> None:
    text = "".join(texts)
    match block["type"]:
        case "text" | "thinking" as field:
            block[field] = text
        case "compaction":
            block["content"] = text
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            block["input"] = json_codec.loads(text or "{}")


def _container(accepted: UpstreamAccepted) -> Json:
    expires_at = datetime.fromtimestamp(accepted.container_expires_at, UTC)
    return {"id": accepted.container_id, "expires_at": f"{expires_at:%Y-%m-%dT%H:%M:%SZ}"}


def search_id(call_id: str) -> str:
    """The id of the ``server_tool_use`` block of a web search."""
    return _SERVER + call_id.removeprefix("call_")


def _found_pages(result: HostedCallFinished) -> list[Json] | Json:
    """The pages; a client gets no text of them, as at Anthropic, where it is encrypted."""
    if result.is_error:
        return {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    return [
        {
            "type": "web_search_result",
            "url": page.url,
            "title": page.title or page.url,
            "encrypted_content": "",
            "page_age": None,
        }
        for page in read_pages(result.content)
    ]


def _found_tools(result: HostedCallFinished) -> Json:
    if result.is_error:
        return {"type": "tool_search_tool_result_error", "error_code": "invalid_tool_input"}
    references = [{"type": "tool_reference", "tool_name": name} for name in result.found]
    return {"type": "tool_search_tool_search_result", "tool_references": references}


def _part_text(part: Json) -> str:
    """Results in this API have only text."""
    return str(part.get("text") or IMAGE)


def error_body(error: EmulatorError, request_id: str | None = None) -> Json:
    """Return an error in the shape of Anthropic's API reference ("Errors")."""
    kind = _ERRORS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    message = error.message
    if error.param:  # this API writes ``tools.0.name``
        message = message.replace(error.param, _INDEX.sub(r".\1", error.param))
    if (
        error.code == CONTEXT_CODE
    ):  # Anthropic's words, by which its clients know when to shorten the history
        message = f"prompt is too long: {message} ({CONTEXT_CODE})"
    body: Json = {"type": "error", "error": {"type": kind, "message": message}}
    if error.code and error.code.startswith("thread_"):
        # By this code Anthropic's SDKs know that they have to send the whole conversation again.
        body["error"]["details"] = {"error_code": error.code}
    return {**body, "request_id": request_id} if request_id else body


def _usage(usage: Usage) -> Json:
    details = usage.details.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    read = cached if isinstance(cached, int) else 0
    return {
        # In this API, input_tokens does not include the tokens read from a cache.
        "input_tokens": max(usage.prompt_tokens - read, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": read,
        "output_tokens": usage.completion_tokens,
    }
