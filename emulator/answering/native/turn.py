"""Read one reply of an upstream that calls tools itself; chunks that clients can use pass untouched.

Prose passes as it arrives, except text that may open a call in a model's own markup. A call is buffered
until it is complete; what passes is never taken back.

**Words that came before a call are sent before it**: while it is not known whether such text is words, the
call waits; a call in markup waits for the end of the reply.

Sans-IO: `feed` takes a chunk and yields those to pass on, `close` yields the rest, and `end` returns the
chunk that finishes the answer. The chunk that completes a call has it as `RelayedChunk.call`.

Known faults: calls in ``content`` (vllm-project/vllm#17161, #21571 and #28297); "stop" as the finish reason
of a reply with calls (ollama/ollama#7963, sgl-project/sglang#2877, BerriAI/litellm#12862); and empty
replies.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from emulator.conversation.call_policy import CallPolicy
from emulator.core import metrics
from emulator.core.events import (
    AnswerEvent,
    ContentDelta,
    ReasoningDelta,
    RelayedChunk,
    ToolCall,
    new_id,
)
from emulator.core.json_codec import SORTED, dumps
from emulator.reading.events import BlockEnd, BlockStart, Event, Text
from emulator.reading.reply_splitter import ReplySplitter
from emulator.reply.call_assembly import (
    CallAssembler,
    CallChecker,
    CallFragments,
    UnusableCall,
)
from emulator.reply.extras import FIELDS
from emulator.reply.prose import Prose, StopFilter
from emulator.reply.reply_reader import ReplyReader
from emulator.reply.verdicts import (
    FinalReply,
    UnusableReply,
    Verdict,
    answer_finish_reason,
    is_truncated,
)
from emulator.upstream.interface import Chunk

# Gemma and Gemini write their calls in a fence named tool_code; no other Python is one.
_SHOWN = re.compile(r"\s*(?:```|~~~)(?!`*\s*tool_code\b)")
_OBJECT = re.compile(r"(?:(?:`{3,}|~{3,})\w*\s*)?\{")
"""The start of what may be the arguments of a forced call."""
_NOT_CONTENT = frozenset({"role", "content", "reasoning_content", "reasoning"})
_REPAIRS = metrics.NATIVE_REPAIRS.labels


class VerbatimProse(Prose):
    """Passes text unchanged, including white space; with ``up_to_object`` only up to an object."""

    shows_afterwords = True

    def __init__(self, *, hold: bool, lead: str = "", up_to_object: bool = False) -> None:
        super().__init__(StopFilter(None), hold=hold, lead=lead)
        self._up_to_object = up_to_object

    def feed(self, text: str) -> str:
        passing = "" if self._hold else text
        if self._up_to_object and (found := _OBJECT.search(passing)):
            self._hold, passing = True, text[: found.start()]
        self._buffer.append(text[len(passing) :])
        self.mark_sent(passing)
        return passing


class ShownFences(ReplySplitter):
    """A fenced Python block is prose: the model was not asked for Python."""

    _is_prose = False

    def feed(self, text: str) -> list[Event]:
        return [*map(self._event, super().feed(text))]

    def close(self, *, cut_off: bool = False) -> list[Event]:
        return [*map(self._event, super().close(cut_off=cut_off))]

    def _event(self, event: Event) -> Event:
        if isinstance(event, BlockStart) and event.dialect == "python":
            self._is_prose = bool(_SHOWN.match(event.raw))
        shown = Text(event.raw) if self._is_prose else event
        self._is_prose = self._is_prose and not isinstance(event, BlockEnd)
        return shown


class NativeTurn:
    """``done`` says when to stop feeding; after `close` the ``verdict`` is final."""

    def __init__(self, reply: ReplyReader, checker: CallChecker, choice: CallPolicy) -> None:
        """``reply`` reads the content, with `ShownFences` and `VerbatimProse`."""
        self._reply = reply
        self._checker = checker
        self._call_policy = choice
        self._assembler = CallAssembler()
        self._pending: list[tuple[ToolCall, CallFragments | None, set[str]]] = []
        """Valid calls that wait for words, each with its fragments, if it has any, and what was repaired."""
        self._problems: list[UnusableCall] = []
        self._base: Chunk = {"id": new_id("chatcmpl-")}
        self._end: Chunk | None = None
        self.finish_reason: str | None = None
        """The upstream's finish reason, once it is known."""
        self._accepted: Counter[tuple[bool, str, bytes]] = Counter()
        """How often each call was accepted, in markup or not."""
        self._sent_calls = 0
        self._cut_off = self._dropped_cut_call = self._has_content = False
        self._logprobs: list[Any] = []
        """Of words that are not sent yet."""
        self._extras: list[RelayedChunk] = []
        """What came with such words, and follows them."""

    @property
    def done(self) -> bool:
        return self._reply.done

    @property
    def size(self) -> int:
        return self._reply.size + self._assembler.chars

    @property
    def _has_calls(self) -> bool:
        return bool(self._sent_calls or self._pending)

    @property
    def text(self) -> str:
        """The reply as text for a repair request."""
        calls = [problem.written for problem in self._problems]
        return "\n".join([*filter(str.strip, [self._reply.text]), *calls])

    def feed(self, chunk: Chunk) -> Iterator[RelayedChunk]:
        """``chunk`` has a choice."""
        choice = chunk["choices"][0]
        delta = choice["delta"]
        self._base = {k: v for k, v in chunk.items() if k not in ("choices", "usage")}
        ends = bool(choice.get("finish_reason"))
        if ends:
            self.finish_reason = choice["finish_reason"]
            self._end = chunk if not _has_values(delta) else _with(chunk, delta={})
            if self._end is chunk:
                return
            chunk = _with(chunk, finish_reason=None)
        pieces = delta.get("tool_calls") or ()
        rest = {name: value for name, value in delta.items() if name != "tool_calls"}
        if not pieces or _has_values(rest):
            yield from self._content(chunk, rest, alone=not pieces)
        alone = len(pieces) == 1 and not _has_values(rest) and not ends
        for piece in pieces:
            self._check(self._assembler.feed(piece, chunk if alone else None))
        if not (self._reply.is_undecided or self._reply.draft.has_code):
            yield from self._send_pending()

    def close(self) -> Iterator[RelayedChunk]:
        """The upstream has ended, or the proxy has closed it."""
        self._cut_off = not self.done and is_truncated(self.finish_reason)
        for call in self._assembler.close():
            if self._cut_off and not call.is_complete:
                _REPAIRS("cut").inc()
                self._dropped_cut_call = True
            else:
                self._check([call])
        ended = self._reply.close(cut_off=self._cut_off, has_calls=self._has_calls)
        yield from self._events(ended)
        verdict = self._reply.draft.verdict
        if isinstance(verdict, UnusableReply) and verdict.kind == "asked":  # here nobody asks
            yield from self._events(self._reply.show_rest())
        if self._has_calls and self._call_policy.required and (words := self._reply.prose.close()):
            yield self._chunk({"content": words})
        yield from self._extras
        yield from self._send_pending()

    def end(self, *, length: bool = False) -> RelayedChunk:
        """The last chunk with a choice; ``length`` if the proxy truncated the answer."""
        reason: str = answer_finish_reason(self.finish_reason)
        if self._sent_calls:
            reason = "length" if self._dropped_cut_call else "tool_calls"
        elif length:
            reason = "length"
        if self._end is None:
            return self._chunk({}, reason)
        if self._end["choices"][0].get("finish_reason") == reason:
            return RelayedChunk(self._end)
        if self._sent_calls:
            _REPAIRS("finish_reason").inc()
        return RelayedChunk(_with(self._end, finish_reason=reason))

    @property
    def verdict(self) -> Verdict:
        if self._sent_calls:
            return FinalReply()
        if self._problems:
            return UnusableReply("invalid", {"diagnostics": "\n".join(map(str, self._problems))})
        found = self._reply.verdict
        kind = found.kind if isinstance(found, UnusableReply) else ""
        if kind == "required" or (kind == "invalid" and not (self._cut_off and self.finish_reason)):
            return found
        has_ended = self._has_content or (self._cut_off and self.finish_reason)
        return FinalReply() if has_ended else UnusableReply("empty")

    def _content(
        self, chunk: Chunk, rest: dict[str, Any], *, alone: bool
    ) -> Iterator[RelayedChunk]:
        """Yield the chunk with as much of its content as can pass."""
        content = rest.get("content")
        self._has_content |= any(v for n, v in rest.items() if n not in _NOT_CONTENT)
        if not isinstance(content, str) or not content:
            passing = RelayedChunk(chunk if alone else _with(chunk, delta=rest))
            if self._reply.is_undecided and any(rest.get(name) for name in FIELDS):
                self._extras.append(passing)
            elif not self.done:
                yield passing
            return
        events = [*self._reply.feed(content)]
        texts = [event.text for event in events if isinstance(event, ContentDelta)]
        if alone and len(texts) == len(events) and "".join(texts) == content:
            self._has_content |= bool(content.strip())
            yield RelayedChunk(chunk)
            return
        self._logprobs += (chunk["choices"][0].get("logprobs") or {}).get("content") or ()
        extras = {n: v for n, v in rest.items() if n in FIELDS and v}
        if extras:
            self._extras.append(RelayedChunk(_with(chunk, delta=extras, logprobs=None)))
        others = {n: v for n, v in rest.items() if n != "content" and n not in extras}
        if _has_values(others):
            yield RelayedChunk(_with(chunk, delta=others, logprobs=None))
        yield from self._events(events)

    def _events(self, events: Iterable[AnswerEvent]) -> Iterator[RelayedChunk]:
        for event in events:
            match event:
                case ContentDelta(text):
                    self._has_content |= bool(text.strip())
                    yield self._chunk({"content": text})
                case ReasoningDelta(text):
                    yield self._chunk({"reasoning_content": text})
                case ToolCall() if self._accepts(event, in_markup=True):
                    self._pending.append((event, None, {"markup"}))
            self._logprobs.clear()  # what is no prose has none

    def _check(self, calls: Iterable[CallFragments]) -> None:
        for fragments in calls:
            try:
                call, faults = self._checker.check(fragments)
            except UnusableCall as error:
                _REPAIRS("dropped").inc()
                self._problems.append(error)
                continue
            if self._accepts(call, in_markup=False):
                metrics.TOOL_CALLS.inc()
                self._pending.append((call, fragments, faults))

    def _accepts(self, call: ToolCall, *, in_markup: bool) -> bool:
        """Return False for a second call where the client wants one, and for a call that is in the other
        place too: some servers leave it in both."""
        same = call.name, dumps(call.arguments, option=SORTED)
        here, other_place = (in_markup, *same), (not in_markup, *same)
        is_twin = self._accepted[other_place] > 0
        if is_twin or (self._has_calls and self._call_policy.one_at_a_time):
            self._accepted[other_place] -= is_twin
            _REPAIRS("dropped").inc()
            return False
        self._accepted[here] += 1
        return True

    def _send_pending(self) -> Iterator[RelayedChunk]:
        for call, fragments, faults in self._pending:
            if fragments is not None and fragments.index != self._sent_calls:
                faults.add("index")
            for fault in faults:
                _REPAIRS(fault).inc()
            if fragments is None or faults or not fragments.is_plain:
                yield from self._written(call)
                continue
            self._sent_calls += 1
            *chunks, last = fragments.chunks
            yield from map(RelayedChunk, chunks)
            yield RelayedChunk(last, call=call)
        self._pending = []

    def _written(self, call: ToolCall) -> Iterator[RelayedChunk]:
        """The call in chunks of our own."""
        place = {"index": self._sent_calls}
        function = {"name": call.name, "arguments": ""}
        first = {**place, "id": call.id, "type": "function", "function": function}
        text = {"arguments": dumps(call.arguments).decode()}
        self._sent_calls += 1
        yield self._chunk({"tool_calls": [first]})
        yield self._chunk({"tool_calls": [{**place, "function": text}]}, call=call)

    def _chunk(
        self, delta: dict[str, Any], finish_reason: str | None = None, call: ToolCall | None = None
    ) -> RelayedChunk:
        choice: Chunk = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        if delta.get("content") and self._logprobs:
            choice["logprobs"] = {"content": [*self._logprobs]}
        return RelayedChunk({**self._base, "choices": [choice]}, call=call)


def _with(chunk: Chunk, **changes: Any) -> Chunk:
    return {**chunk, "choices": [{**chunk["choices"][0], **changes}]}


def _has_values(delta: dict[str, Any]) -> bool:
    """Return True if a delta has more than the role."""
    return any(value for name, value in delta.items() if name != "role")
