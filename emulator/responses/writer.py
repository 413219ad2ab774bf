"""Answer events -> the events of a response's stream; the whole response is what the last one holds.

The rules of the events are those that OpenAI's SDKs check: ``response.created`` first, one id, dense
sequence numbers and output indices, each item added before its deltas, and done before the next begins.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from emulator.errors import EmulatorError
from emulator.events import (
    AnswerEvent,
    ArgumentsDelta,
    CallStarted,
    CodeComplete,
    CodeDelta,
    CodeFinished,
    CodeStarted,
    ContentDelta,
    CreatedFile,
    Finish,
    FinishReason,
    ReasoningDelta,
    ToolCall,
    UpstreamAccepted,
    Usage,
    with_call_deltas,
)
from emulator.responses import citations
from emulator.responses.items import MESSAGE_BREAK, Json
from emulator.responses.output import (
    CallItem,
    ClientToolItem,
    CodeItem,
    Events,
    MessageItem,
    OutputItem,
    ReasoningItem,
    call_item,
)
from emulator.responses.tools import CallForm, offer

Kind = TypeVar("Kind", bound=OutputItem)
_Item = MessageItem | ReasoningItem | CodeItem | CallItem

_INCOMPLETE: dict[FinishReason, str] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}


class ResponseWriter:
    """Writes one response; ``response`` is what it is in front of its first item.

    The same response, tools and answer events give the same stream, ids included. ``tools`` are those that
    the input brought along, besides those of the response.
    """

    def __init__(
        self, response: Json, tools: Sequence[Json] = (), *, now: Callable[[], float] = time.time
    ) -> None:
        self._response = response
        self._forms = offer([*response["tools"], *tools]).forms
        self._now = now
        self._numbers = 0
        self._output: list[Json] = []
        self._open: _Item | None = None
        self._files: dict[str, CreatedFile] = {}
        self._uncited: dict[str, CreatedFile] = {}

    def write(self, events: Iterable[AnswerEvent]) -> Iterator[Json | UpstreamAccepted]:
        """The stream's events; `UpstreamAccepted` passes through. The last one holds the whole response."""
        for event in with_call_deltas(events):
            if isinstance(event, UpstreamAccepted):
                yield event
            if not self._numbers:
                yield from self._numbered(self._begun())
            yield from self._numbered(self._events_of(event))

    def broken_off(self, error: EmulatorError) -> Events:
        """How a stream ends that broke off; where it had not begun, its first events too: the SDKs take no
        other for the first."""
        if not self._numbers:
            yield from self._numbered(self._begun())
        yield self.failed(error)

    def failed(self, error: EmulatorError) -> Json:
        """The last event of a stream that broke off."""
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        shown_error = {"code": code, "message": error.message}
        response = {
            **self._response,
            "status": "failed",
            "error": shown_error,
            "output": self._output,
        }
        [event] = self._numbered([{"type": "response.failed", "response": response}])
        return event

    def _numbered(self, events: Iterable[Json]) -> Events:
        for event in events:
            if event["type"] == "response.output_item.done":
                self._output.append(event["item"])
            yield {**event, "sequence_number": self._numbers}
            self._numbers += 1

    def _begun(self) -> Events:
        for name in ("created", "in_progress"):
            yield {"type": f"response.{name}", "response": dict(self._response)}

    def _events_of(self, event: AnswerEvent) -> Events:
        match event:
            case ReasoningDelta(text):
                if not isinstance(self._open, ReasoningItem):
                    yield from self._begin(lambda n: ReasoningItem(n, self._id("rs_")))
                yield from self._open_as(ReasoningItem).feed(text)
            case ContentDelta(text):
                if not isinstance(self._open, MessageItem):
                    yield from self._begin(lambda n: MessageItem(n, self._id("msg_")))
                    text = self._parted(text)
                yield from self._open_as(MessageItem).feed(text)
            case CallStarted() | ArgumentsDelta() | ToolCall():
                yield from self._call(event)
            case CodeStarted(key, container_id):
                yield from self._begin(lambda n: CodeItem(n, key, container_id))
            case CodeDelta(text):
                yield from self._open_as(CodeItem).feed(text)
            case CodeComplete(code):
                yield from self._open_as(CodeItem).run(code)
            case CodeFinished(files=files):
                yield from self._open_as(CodeItem).close(event)
                self._open = None
                for file in files:
                    self._files[file.file_id] = self._uncited[file.file_id] = file
            case Finish(reason, usage):
                yield from self._last_message(
                    "incomplete" if reason in _INCOMPLETE else "completed"
                )
                yield self._finished(reason, usage)

    def _parted(self, text: str) -> str:
        """Words behind code are parted from those before it, as in chat: ``output_text`` joins them all."""
        kinds = [item["type"] for item in self._output]
        spoke = "message" in kinds and "code_interpreter_call" in kinds[kinds.index("message") :]
        return MESSAGE_BREAK + text.lstrip("\n") if spoke else text

    def _call(self, event: CallStarted | ArgumentsDelta | ToolCall) -> Events:
        match event:
            case CallStarted():
                yield from self._last_message()
                form = self._form(event)
                if form.tool is None:
                    yield from self._begin(lambda n: call_item(n, self._id, event, form))
            case ArgumentsDelta(text):
                if isinstance(self._open, CallItem):
                    yield from self._open.feed(text)
            case ToolCall():
                if (tool := self._form(event).tool) is None:
                    yield from self._close()
                else:
                    key = self._id(tool.prefix)
                    yield from ClientToolItem(len(self._output), key, event, tool).whole()

    def _form(self, call: CallStarted | ToolCall) -> CallForm:
        return self._forms.get(call.name) or CallForm(call.name)

    def _id(self, prefix: str) -> str:
        """The id of the next item: as hard to guess as the response's own."""
        source = f"{self._response['id']} {len(self._output)}"
        return prefix + hashlib.sha256(source.encode()).hexdigest()[:24]

    def _begin(self, make: Callable[[int], _Item]) -> Events:
        yield from self._close()
        self._open = make(len(self._output))
        yield from self._open.begin()

    def _open_as(self, kind: type[Kind]) -> Kind:
        assert isinstance(self._open, kind)
        return self._open

    def _close(self, status: str = "completed", *, last: bool = False) -> Events:
        """End the item that is open."""
        match self._open:
            case ReasoningItem() as reasoning:
                yield from reasoning.close()
            case CodeItem() as cell:
                yield from cell.close(CodeFinished("incomplete"))
            case CallItem() as call:
                yield from call.close(status)
            case MessageItem() as message:
                yield from message.close(status, self._cited(message.text, last=last))
        self._open = None

    def _last_message(self, status: str = "completed") -> Events:
        """End the item that is open; no message follows, so this one cites the files that none named."""
        if self._uncited and not isinstance(self._open, MessageItem):
            yield from self._begin(lambda n: MessageItem(n, self._id("msg_")))
        yield from self._close(status, last=True)

    def _cited(self, text: str, *, last: bool) -> list[Json]:
        places = citations.named(text, [*self._files.values()])
        for file, _, _ in places:
            self._uncited.pop(file.file_id, None)
        if last:
            places += [(file, len(text), len(text)) for file in self._uncited.values()]
            self._uncited.clear()
        return [citations.citation(*place) for place in places]

    def _finished(self, reason: FinishReason, usage: Usage) -> Json:
        why = _INCOMPLETE.get(reason)
        status = "incomplete" if why else "completed"
        response = {
            **self._response,
            "status": status,
            "completed_at": None if why else int(self._now()),
            "incomplete_details": {"reason": why} if why else None,
            "output": self._output,
            "usage": usage_told(usage),
        }
        return {"type": f"response.{status}", "response": response}


def usage_told(usage: Usage) -> Json:
    cached = _count(usage, "prompt_tokens_details", "cached_tokens")
    reasoning = _count(usage, "completion_tokens_details", "reasoning_tokens")
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _count(usage: Usage, details: str, name: str) -> int:
    """One of the upstream's figures, if it told any: nobody has checked what it sent."""
    shown_error = usage.details.get(details)
    count = shown_error.get(name) if isinstance(shown_error, dict) else None
    return count if isinstance(count, int) else 0
