"""Answer events -> the events of a response's stream. The last event holds the whole response.

The events follow the rules that OpenAI's SDKs check: ``response.created`` first, one id, dense sequence
numbers and output indices, each item added before its deltas and done before the next item starts. Only
hosted calls, which run at the same time, and a cell that makes them are done after other items have started.

While the next answer event is awaited, another thread may ask for a ping. Sequence numbers must increase in
the order in which events are written, so a ping is numbered only when all events so far have been written:

    writing   events are numbered by `write`        ── all are written ──►  waiting
    waiting   pings are numbered by `ping_events`   ── the next answer event ──►  writing

The consumer of `write` asks for the next event only when it has written the last one. `pings` has the numbers
that pings have taken; with them a replay gives every other event its original number.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from emulator.core.errors import EmulatorError
from emulator.core.events import (
    AnswerEvent,
    ApprovalRequested,
    ArgumentsDelta,
    CallStarted,
    CodeComplete,
    CodeDelta,
    CodeFinished,
    CodeStarted,
    ContentDelta,
    Finish,
    FinishReason,
    HostedCallFinished,
    HostedCallStarted,
    ModelImage,
    PageCited,
    ProgramFinished,
    ProgramStarted,
    ReasoningDelta,
    RefusalDelta,
    Summary,
    ToolCall,
    ToolsListed,
    UpstreamAccepted,
    Usage,
    with_call_deltas,
)
from emulator.fronts.responses.citations import Citations
from emulator.fronts.responses.hosted_items import SHELL_CALL, item_id
from emulator.fronts.responses.hosted_output import (
    WRITERS,
    ApprovalRequestWriter,
    FoundToolsWriter,
    HostedCallWriter,
    ListedToolsWriter,
    ModelImageWriter,
    ServedCallWriter,
    ShellOutputWriter,
    ToolSearchWriter,
    found_files,
)
from emulator.fronts.responses.item_table import ITEMS
from emulator.fronts.responses.items import MESSAGE_BREAK, Json
from emulator.fronts.responses.output import (
    CallItemWriter,
    ClientToolCallWriter,
    CodeCallWriter,
    CompactionWriter,
    Events,
    ItemWriter,
    MessageItemWriter,
    ReasoningItemWriter,
    RefusalItemWriter,
)
from emulator.fronts.responses.program_output import ProgramWriter
from emulator.fronts.responses.tools import CallForm, container_shell, found_tools, to_chat_tools
from emulator.upstream.failures import CONTEXT_CODE
from emulator.upstream.usage_counter import total_usage

Kind = TypeVar("Kind", bound=ItemWriter)
_OpenItem = (
    MessageItemWriter | RefusalItemWriter | ReasoningItemWriter | CodeCallWriter | CallItemWriter
)
_HostedItem = HostedCallWriter | ServedCallWriter | ToolSearchWriter

_WITHOUT_ECHO: Json = {
    "instructions": None,
    "metadata": {},
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
}
"""What pings have instead of the request's long fields. A ping that does not fit into the connection's buffer
would block the thread that writes the pings of all streams."""

_INCOMPLETE: dict[FinishReason, str] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}


class ResponseWriter:
    """Writes one response; ``response`` is its state before the first item.

    The same response, tools, answer events and ``pings`` always give the same stream, including the ids, but
    without the pings. ``tools`` are the tools that the input added to those of the response.
    """

    def __init__(
        self,
        response: Json,
        tools: Sequence[Json] = (),
        *,
        pings: Iterable[int] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._response = response
        self._tools = [*response["tools"], *tools]
        self._forms = to_chat_tools(self._tools).forms
        self._now = now
        self._numbers = 0
        self.pings = {*pings}
        """The sequence numbers of the pings."""
        self._numbering = threading.Lock()
        self._is_waiting = False
        """For the next answer event; all events so far have been written."""
        self._items = 0
        self._summary_usage = Usage()
        """The number of items that were added, finished or not."""
        self._finished_items: dict[int, Json] = {}
        """Output index -> item."""
        self._open: _OpenItem | None = None
        self._running: dict[str, _HostedItem] = {}
        """Call id -> the item of a hosted call that runs."""
        self._shell_calls: dict[str, HostedCallStarted] = {}
        """Call id -> a shell call whose output is not written yet."""
        self._citations = Citations()

    def write(self, events: Iterable[AnswerEvent]) -> Iterator[Json | UpstreamAccepted]:
        """Write the stream's events; `UpstreamAccepted` passes through."""
        self._is_waiting = True
        for event in with_call_deltas(events):
            with self._numbering:
                self._is_waiting = False
            if isinstance(event, UpstreamAccepted):
                yield event
            if not self._numbers:
                yield from self._numbered(self._start_events())
            yield from self._numbered(self._events_of(event))
            self._is_waiting = not isinstance(event, Finish)

    def ping_events(self) -> list[Json]:
        """Return what a silent stream sends: the event ``in_progress`` again, or the first events if none was
        sent; nothing while another event is being written. Safe to call from another thread.

        Comments do not suffice: Codex's idle timer counts events (openai/codex#31539).
        """
        with self._numbering:
            if not self._is_waiting:
                return []
            if not self._numbers:
                return [*self._numbered(self._start_events())]
            response = {**self._response, **_WITHOUT_ECHO}
            [ping] = self._numbered([{"type": "response.in_progress", "response": response}])
            self.pings.add(ping["sequence_number"])
            return [ping]

    def failure_events(self, error: EmulatorError) -> Events:
        """The events that end a failed stream. If it has not started, the first events precede them, because
        the SDKs accept no other event as the first."""
        if not self._numbers:
            yield from self._numbered(self._start_events())
        yield self.failed(error)

    def failed(self, error: EmulatorError) -> Json:
        """The last event of a failed stream."""
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        if error.code == CONTEXT_CODE:  # not in the schema, but OpenAI sends it and Codex reads it
            code = CONTEXT_CODE
        response = {
            **self._response,
            "status": "failed",
            "error": {"code": code, "message": error.message},
            "output": self._output(),
        }
        [event] = self._numbered([{"type": "response.failed", "response": response}])
        return event

    def _numbered(self, events: Iterable[Json]) -> Events:
        for event in events:
            if event["type"] == "response.output_item.added":
                self._items += 1
            elif event["type"] == "response.output_item.done":
                self._finished_items[event["output_index"]] = event["item"]
            while self._numbers in self.pings:
                self._numbers += 1
            number = self._numbers
            self._numbers += 1
            yield {**event, "sequence_number": number}

    def _output(self) -> list[Json]:
        return [item for _, item in sorted(self._finished_items.items())]

    def _start_events(self) -> Events:
        for name in ("created", "in_progress"):
            yield {"type": f"response.{name}", "response": dict(self._response)}

    def _events_of(self, event: AnswerEvent) -> Events:
        match event:
            case ReasoningDelta(text):
                if not isinstance(self._open, ReasoningItemWriter):
                    yield from self._start(lambda n: ReasoningItemWriter(n, self._id("reasoning")))
                yield from self._open_as(ReasoningItemWriter).feed(text)
            case ContentDelta() | RefusalDelta():
                yield from self._message(event)
            case PageCited() | ModelImage():
                yield from self._extras(event)
            case CallStarted() | ArgumentsDelta() | ToolCall():
                yield from self._call(event)
            case CodeStarted() | CodeDelta() | CodeComplete() | CodeFinished():
                yield from self._cell(event)
            case ProgramStarted() | ProgramFinished() | Summary():
                yield from self._close()
                yield from self._whole_item(event).all_events()
            case HostedCallStarted(kind="shell"):
                yield from self._shell(event)
            case HostedCallFinished(key) if key in self._shell_calls:
                yield from self._shell(event)
            case ToolsListed() | HostedCallStarted() | HostedCallFinished() | ApprovalRequested():
                yield from self._hosted(event)
            case Finish(reason, usage):
                yield from self._last_message(
                    "incomplete" if reason in _INCOMPLETE else "completed"
                )
                yield self._finished(reason, usage)

    def _message(self, event: ContentDelta | RefusalDelta) -> Events:
        writer: type[MessageItemWriter | RefusalItemWriter] = (
            RefusalItemWriter if isinstance(event, RefusalDelta) else MessageItemWriter
        )
        text = event.text
        if not isinstance(self._open, writer):
            yield from self._start(lambda n: writer(n, self._id("message")))
            text = self._separated(text)
        logprobs = event.logprobs if isinstance(event, ContentDelta) else ()
        yield from self._open_as(writer).feed(text, logprobs)

    def _extras(self, event: PageCited | ModelImage) -> Events:
        if isinstance(event, PageCited):
            self._citations.add_cited(event)
            return
        yield from self._close()
        if event.url.startswith("data:"):
            key = self._id("image_generation_call")
            yield from ModelImageWriter(self._items, key, event.url).all_events()
        else:
            yield from self._message(ContentDelta(event.words))

    def _whole_item(
        self, event: ProgramStarted | ProgramFinished | Summary
    ) -> ProgramWriter | CompactionWriter:
        if isinstance(event, Summary):
            self._summary_usage = event.usage
            return CompactionWriter(self._items, self._id("compaction"), event.text)
        return ProgramWriter(self._items, event)

    def _cell(self, event: CodeStarted | CodeDelta | CodeComplete | CodeFinished) -> Events:
        match event:
            case CodeStarted(key, container_id):
                yield from self._start(lambda n: CodeCallWriter(n, key, container_id))
            case CodeDelta(text):
                yield from self._open_as(CodeCallWriter).feed(text)
            case CodeComplete(code):
                yield from self._open_as(CodeCallWriter).run(code)
            case CodeFinished(files=files):
                yield from self._open_as(CodeCallWriter).close(event)
                self._open = None
                self._citations.add_files(files)

    def _hosted(
        self, event: ToolsListed | HostedCallStarted | HostedCallFinished | ApprovalRequested
    ) -> Events:
        if isinstance(event, HostedCallStarted | HostedCallFinished):
            self._citations.pages.note(event)
        if isinstance(event, HostedCallFinished):
            writer = self._running.pop(event.id)
            if writer.item["type"] == "file_search_call":
                self._citations.add_found(found_files(event))
            yield from writer.close(event)
            if isinstance(writer, ToolSearchWriter):
                tools = found_tools(self._tools, event.found)
                yield from FoundToolsWriter(self._items, event.id, tools).all_events()
            return
        if not isinstance(self._open, CodeCallWriter):  # a cell waits for the call
            yield from self._close()
        match event:
            case ToolsListed():
                yield from ListedToolsWriter(self._items, event).all_events()
            case HostedCallStarted(key, kind):
                writer = self._running[key] = WRITERS.get(kind, HostedCallWriter)(
                    self._items, event
                )
                yield from writer.start()
            case ApprovalRequested():
                yield from ApprovalRequestWriter(self._items, event).all_events()

    def _shell(self, event: HostedCallStarted | HostedCallFinished) -> Events:
        if not isinstance(self._open, CodeCallWriter):  # a cell waits for the call
            yield from self._close()
        if isinstance(event, HostedCallStarted):
            self._shell_calls[event.id] = event
            key, tool = item_id(SHELL_CALL, event.id), container_shell(event.container_id)
            yield from ClientToolCallWriter(self._items, key, event, tool).all_events()
        else:
            call = self._shell_calls.pop(event.id)
            yield from ShellOutputWriter(self._items, call, event).all_events()

    def _separated(self, text: str) -> str:
        """Separate text after a cell or a hosted call from text before it, as in chat: the SDK's
        ``output_text`` joins all texts."""
        kinds = [item["type"] for item in self._output()]
        after_text = kinds[kinds.index("message") :] if "message" in kinds else ()
        separate = any(ITEMS[kind].separates for kind in after_text)
        return MESSAGE_BREAK + text.lstrip("\n") if separate else text

    def _call(self, event: CallStarted | ArgumentsDelta | ToolCall) -> Events:
        match event:
            case CallStarted():
                yield from self._last_message()
                form = self._form(event)
                if form.tool is None:
                    yield from self._start(lambda n: CallItemWriter(n, self._id, event, form))
            case ArgumentsDelta(text):
                if isinstance(self._open, CallItemWriter):
                    yield from self._open.feed(text)
            case ToolCall():
                if (tool := self._form(event).tool) is None:
                    yield from self._close()
                else:
                    key = self._id(tool.call_type)
                    writer = ClientToolCallWriter(self._items, key, event, tool)
                    yield from writer.all_events()

    def _form(self, call: CallStarted | ToolCall) -> CallForm:
        return self._forms.get(call.name) or CallForm(call.name)

    def _id(self, kind: str) -> str:
        """The id of the next item, of this type, derived from the response's id and as hard to guess."""
        source = f"{self._response['id']} {self._items}"
        return ITEMS[kind].prefix + hashlib.sha256(source.encode()).hexdigest()[:24]

    def _start(self, make: Callable[[int], _OpenItem]) -> Events:
        yield from self._close()
        self._open = make(self._items)
        yield from self._open.start()

    def _open_as(self, kind: type[Kind]) -> Kind:
        assert isinstance(self._open, kind)
        return self._open

    def _close(self, status: str = "completed", *, last: bool = False) -> Events:
        """End the open item."""
        match self._open:
            case ReasoningItemWriter() as reasoning:
                yield from reasoning.close()
            case CodeCallWriter() as cell:
                yield from cell.close(CodeFinished("incomplete"))
            case CallItemWriter() | RefusalItemWriter() as item:
                yield from item.close(status)
            case MessageItemWriter() as message:
                yield from message.close(status, self._citations.of(message.text, last=last))
        self._open = None

    def _last_message(self, status: str = "completed") -> Events:
        """End the open item. No message follows, so this one cites the files that no message has named."""
        if self._citations.has_uncited_files and not isinstance(self._open, MessageItemWriter):
            yield from self._start(lambda n: MessageItemWriter(n, self._id("message")))
        yield from self._close(status, last=True)

    def _finished(self, reason: FinishReason, usage: Usage) -> Json:
        incomplete = _INCOMPLETE.get(reason)
        status = "incomplete" if incomplete else "completed"
        response = {
            **self._response,
            "status": status,
            "completed_at": None if incomplete else int(self._now()),
            "incomplete_details": {"reason": incomplete} if incomplete else None,
            "output": self._output(),
            "usage": usage_json(total_usage([self._summary_usage, usage])),
        }
        return {"type": f"response.{status}", "response": response}


def usage_json(usage: Usage) -> Json:
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
    """One of the upstream's figures, or 0. The upstream's details are not validated."""
    figures = usage.details.get(details)
    count = figures.get(name) if isinstance(figures, dict) else None
    return count if isinstance(count, int) else 0
