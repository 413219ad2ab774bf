"""Answer events -> the events of a message's stream.

The events follow the rules that Anthropic's SDKs check: ``message_start`` first; dense indices; each block
started before its deltas and stopped before the next block; ``message_delta`` with the stop reason second to
last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from emulator.core import json_codec
from emulator.core.events import (
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
    ModelImage,
    PageCited,
    ReasoningDelta,
    RefusalDelta,
    Summary,
    ToolCall,
    ToolsListed,
    UpstreamAccepted,
    Usage,
    new_id,
    pieces,
    serialize_arguments,
    with_call_deltas,
)
from emulator.fronts.anthropic.code_calls import CODE
from emulator.fronts.anthropic.hosted_blocks import SERVER, call_block, result_block
from emulator.fronts.anthropic.mcp_servers import LISTING
from emulator.hosted.citations import FoundPages

Json = dict[str, Any]
Events = Iterator[Json]


_REASONS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


_MAX_CITED = 150
"""Characters of a page (Anthropic's documentation, "Web search tool")."""


class MessageWriter:
    """Writes one message. ``thinks`` is True if the client asked for the model's reasoning; ``shows_lists``,
    if the client knows lists of an MCP server's tools; ``code_caller`` is how blocks name code as the caller
    of a tool, "" if they name no callers; ``tool_changes`` are those of the messages that a summary replaces;
    ``context_management`` is the report of edits."""

    def __init__(
        self,
        model: str,
        *,
        thinks: bool,
        shows_lists: bool = False,
        code_caller: str = "",
        tool_changes: Sequence[Json] | None = None,
        context_management: Json | None = None,
    ) -> None:
        self._thinks = thinks
        self._code_caller = code_caller
        self._shows_lists = shows_lists
        self._tool_changes = tool_changes
        self._context_management = context_management
        self._last = ""
        """The type of the last block."""
        self._summary: Summary | None = None
        self._index = -1
        self._open = ""
        """The type of the open block, or ""."""
        self._has_text = False
        self._cited: list[PageCited] = []
        """The citations of the text block that is open, or of the next one."""
        self._pages = FoundPages()
        self._texts: list[str] = []
        """Of the text block that is open."""
        self._has_refused = False
        """Whether a text block has begun."""
        self._cell_id = ""
        """The id of the running cell's block."""
        self._is_resumed = False
        """The running cell's block is in an earlier answer."""
        self._hosted_calls: dict[str, HostedCallStarted] = {}
        """The hosted calls whose result block is not written yet, by id, in their order: so the next request
        has the results in the order of the calls."""
        self._hosted_results: dict[str, HostedCallFinished] = {}
        self._web_calls = Counter[str]()
        """The calls of the vendor's types that did not fail, by type: others are no requests at Anthropic."""
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

    def _events(self, event: AnswerEvent) -> Events:
        match event:
            case ReasoningDelta(text) if self._thinks:
                yield from self._start("thinking", thinking="", signature="")
                yield self._delta("thinking_delta", thinking=text)
            case ContentDelta(text) | RefusalDelta(text):
                self._has_refused |= isinstance(event, RefusalDelta)
                yield from self._words(text)
            case PageCited():
                self._cited.append(event)
            case ModelImage():  # an assistant's blocks have no place for one
                yield from self._close()
                yield from self._words(event.words)
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
            case Summary(text):
                self._summary = event
                changed = self._tool_changes or ()
                changes = [{"type": one["type"], "tool": one["tool"]} for one in changed]
                fields = {} if self._tool_changes is None else {"tool_changes": changes}
                yield from self._start("compaction", content=None, **fields)
                yield self._delta("compaction_delta", content=text)
                yield from self._close()
            case Finish(reason, usage):
                yield from self._close()
                yield from self._known_results()
                is_refusal = self._has_refused and reason == "stop"
                stop = "refusal" if is_refusal else _REASONS[reason]
                stop = "compaction" if self._last == "compaction" else stop
                yield self._finish(stop, event.stop_sequence, usage)
                yield {"type": "message_stop"}

    def _words(self, text: str) -> Events:
        if self._has_text and self._open != "text":  # each block is a paragraph
            text = text.lstrip("\n")
        if text:
            yield from self._start("text", text="")
            self._texts.append(text)
            yield self._delta("text_delta", text=text)

    def _caller(self, cell: str) -> Json:
        """The field of a call's block; ``cell`` is the one that makes the call, "" if the model does."""
        code = {"type": self._code_caller, "tool_id": f"{SERVER}{cell}"}
        return {"caller": code if cell else {"type": "direct"}} if self._code_caller else {}

    def _hosted(self, event: ToolsListed | HostedCallStarted | HostedCallFinished) -> Events:
        if not isinstance(event, ToolsListed):
            self._pages.note(event)
        match event:
            case ToolsListed(error=None) if self._shows_lists:
                tools = [dict(tool) for tool in event.tools]
                listed = {"mcp_server_name": event.server, "tools": tools}
                yield from self._whole({"type": LISTING, **listed})
            case HostedCallStarted():
                self._hosted_calls[event.id] = event
                yield from self._close()
                yield from self._begin(call_block(event))
                for piece in pieces(serialize_arguments(event.arguments, "function")):
                    yield self._delta("input_json_delta", partial_json=piece)
                yield from self._close()
            case HostedCallFinished():
                self._hosted_results[event.id] = event
                kind = self._hosted_calls[event.id].kind
                self._web_calls[kind] += kind in ("web_search", "web_fetch") and not event.is_error
                if not self._open:
                    yield from self._known_results()

    def _cell(self, event: CodeStarted | CodeComplete | CodeFinished) -> Events:
        match event:
            case CodeStarted(key, resumes=resumes):
                self._cell_id = f"{SERVER}{resumes or key}"
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
        yield from self._known_results()
        yield from self._begin({"type": kind, **fields})

    def _begin(self, block: Json) -> Events:
        self._index += 1
        self._open = self._last = block["type"]
        self._has_text |= self._open == "text"
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _close(self) -> Events:
        if self._open == "thinking":
            # Clients send the signature back unread; the proxy ignores it.
            yield self._delta("signature_delta", signature=new_id("sig_"))
        if self._open == "text":
            for page in [*self._cited, *self._pages.cited("".join(self._texts))]:
                yield self._delta("citations_delta", citation=_citation(page))
            self._cited.clear()
            self._texts.clear()
        if self._open:
            yield {"type": "content_block_stop", "index": self._index}
        self._open = ""

    def _delta(self, kind: str, **fields: Any) -> Json:
        delta = {"type": kind, **fields}
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _whole(self, block: Json) -> Events:
        """A block without deltas."""
        yield from self._begin(block)
        yield from self._close()

    def _known_results(self) -> Events:
        """The results that are known, up to the first that is not."""
        while (key := next(iter(self._hosted_calls), "")) in self._hosted_results:
            result = self._hosted_results.pop(key)
            yield from self._whole(result_block(self._hosted_calls.pop(key), result))

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
        counted = _usage(usage)
        if self._summary is not None and self._summary.usage.prompt_tokens:
            counted["iterations"] = [{"type": "compaction", **_usage(self._summary.usage)}]
            counted["iterations"] += [{"type": "message", **_usage(usage)}] * bool(
                usage.prompt_tokens
            )
        if self._web_calls.total():
            names = ("web_search", "web_fetch")
            counted["server_tool_use"] = {f"{n}_requests": self._web_calls[n] for n in names}
        event: Json = {"type": "message_delta", "delta": delta, "usage": counted}
        if self._context_management is not None:
            event["context_management"] = self._context_management
        return event


def _citation(page: PageCited) -> Json:
    place = {"url": page.url, "title": page.title, "encrypted_index": ""}
    return {"type": "web_search_result_location", **place, "cited_text": page.quote[:_MAX_CITED]}


def _container(accepted: UpstreamAccepted) -> Json:
    expires_at = datetime.fromtimestamp(accepted.container_expires_at, UTC)
    return {"id": accepted.container_id, "expires_at": f"{expires_at:%Y-%m-%dT%H:%M:%SZ}"}


def _usage(usage: Usage) -> Json:
    details = usage.details.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    read = cached if isinstance(cached, int) else 0
    details = usage.details.get("completion_tokens_details")
    thinking = details.get("reasoning_tokens") if isinstance(details, dict) else None
    counted = {"output_tokens_details": {"thinking_tokens": thinking}}
    return {
        # In this API, input_tokens does not include the tokens read from a cache.
        "input_tokens": max(usage.prompt_tokens - read, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": read,
        "output_tokens": usage.completion_tokens,
        **(counted if isinstance(thinking, int) else {}),
    }
