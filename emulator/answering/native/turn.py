"""Read one reply of an upstream that calls tools itself; chunks that clients can use pass untouched.

Prose passes as it arrives, except text that may open a call in a model's own markup. A call is buffered
until it is complete; what passes is never taken back. Sans-IO: `feed` takes a chunk and yields chunks to
pass on, `close` yields the rest, and `end` returns the chunk that finishes the answer.

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
from emulator.core.events import AnswerEvent, ContentDelta, ReasoningDelta, ToolCall, new_id
from emulator.core.json_codec import SORTED, dumps
from emulator.reply.call_assembly import (
    CallAssembler,
    CallChecker,
    CallFragments,
    UnusableCall,
)
from emulator.reply.draft import Draft
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


class VerbatimProse(Prose):
    """Passes text unchanged, including white space; with ``up_to_object`` only up to an object."""

    def __init__(
        self, stops: StopFilter, *, hold: bool, lead: str = "", up_to_object: bool = False
    ) -> None:
        super().__init__(stops, hold=hold, lead=lead)
        self._up_to_object = up_to_object

    def feed(self, text: str) -> str:
        passing = "" if self._hold else text
        if self._up_to_object and (found := _OBJECT.search(passing)):
            self._hold, passing = True, text[: found.start()]
        self._buffer.append(text[len(passing) :])
        self.mark_sent(passing)
        return passing


class MarkupDraft(Draft):
    """Finds calls in a model's own markup. A fenced Python block is prose: the model was not asked for
    Python."""

    _is_prose = False
    _fenced: list[str] = []  # noqa: RUF012 - replaced, never changed
    """The last such block."""

    def start_block(
        self, dialect: str, raw: str, *, in_a_row: bool = False
    ) -> Iterator[AnswerEvent]:
        self._is_prose = dialect == "python" and bool(_SHOWN.match(raw))
        if self._is_prose:
            self._fenced = []
            yield ContentDelta(raw)
        else:
            yield from super().start_block(dialect, raw, in_a_row=in_a_row)

    def feed(self, text: str, raw: str) -> Iterator[Any]:
        if self._is_prose:
            self._fenced.append(raw)
            yield ContentDelta(raw)
        else:
            yield from super().feed(text, raw)

    def end_block(self, raw: str, *, cut_off: bool) -> Iterator[Any]:
        if self._is_prose:
            self._is_prose = False
            yield ContentDelta(raw)
        else:
            yield from super().end_block(raw, cut_off=cut_off)

    def read_object(self, prose: str) -> Iterator[AnswerEvent]:
        yield from super().read_object("".join([*self._fenced, prose]))


class NativeTurn:
    """``done`` says when to stop feeding; after `close` the ``verdict`` is final."""

    def __init__(self, reply: ReplyReader, checker: CallChecker, choice: CallPolicy) -> None:
        """``reply`` reads the content, with a `MarkupDraft` and `VerbatimProse`."""
        self._reply = reply
        self._checker = checker
        self._call_policy = choice
        self._assembler = CallAssembler()
        self._problems: list[UnusableCall] = []
        self._base: Chunk = {"id": new_id("chatcmpl-")}
        self._end: Chunk | None = None
        self._finish_reason: str | None = None
        self._sent_calls = 0
        self._cut_off = self._dropped_cut_call = False
        self._sent_from: Counter[tuple[str, str, bytes]] = Counter()
        """How often each call was sent from each place."""
        self._has_content = False

    def record(self) -> None:
        """Show the growing reply in the request's trace."""
        self._reply.record()

    @property
    def finish_reason(self) -> str | None:
        """The upstream's finish reason, once it is known."""
        return self._finish_reason

    @property
    def done(self) -> bool:
        return self._reply.done

    @property
    def size(self) -> int:
        return self._reply.size + self._assembler.chars

    @property
    def called(self) -> bool:
        return bool(self._sent_calls)

    @property
    def text(self) -> str:
        """The reply as text for a repair request."""
        calls = [problem.written for problem in self._problems]
        return "\n".join([*filter(str.strip, [self._reply.text]), *calls]) or "..."

    def feed(self, chunk: Chunk) -> Iterator[Chunk]:
        """``chunk`` has a choice."""
        choice = chunk["choices"][0]
        delta = choice["delta"]
        self._base = {k: v for k, v in chunk.items() if k not in ("choices", "usage")}
        if finish_reason := choice.get("finish_reason"):
            self._finish_reason = finish_reason
            bare = {**choice, "delta": {}}
            self._end = chunk if not _has_values(delta) else {**chunk, "choices": [bare]}
            if not _has_values(delta):
                return
            chunk = {**chunk, "choices": [{**choice, "finish_reason": None}]}
        pieces = delta.get("tool_calls") or ()
        rest = {name: value for name, value in delta.items() if name != "tool_calls"}
        if not pieces or _has_values(rest):
            yield from self._content(chunk, rest, alone=not pieces)
        alone = len(pieces) == 1 and not _has_values(rest) and not finish_reason
        for piece in pieces:
            yield from self._send(self._assembler.feed(piece, chunk if alone else None))

    def close(self) -> Iterator[Chunk]:
        """The upstream has ended, or the proxy has closed it."""
        self._cut_off = not self.done and is_truncated(self._finish_reason)
        for call in self._assembler.close():
            if self._cut_off and not call.is_complete:
                metrics.NATIVE_REPAIRS.labels("cut").inc()
                self._dropped_cut_call = True
            else:
                yield from self._send([call])
        called = bool(self._sent_calls)
        yield from self._events(self._reply.close(cut_off=self._cut_off, has_calls=called))
        verdict = self._reply.draft.verdict
        if isinstance(verdict, UnusableReply) and verdict.kind == "asked":  # here nobody asks
            yield from self._events(self._reply.show_rest())
        if called and self._call_policy.required and (words := self._reply.prose.close()):
            yield self._chunk({"content": words})

    def end(self, *, length: bool = False) -> Chunk:
        """The last chunk with a choice; ``length`` if the proxy truncated the answer."""
        reason: str = answer_finish_reason(self._finish_reason)
        if self._sent_calls:
            reason = "length" if self._dropped_cut_call else "tool_calls"
        elif length:
            reason = "length"
        if self._end is None:
            return self._chunk({}, reason)
        [choice, *_] = self._end["choices"]
        if choice.get("finish_reason") == reason:
            return self._end
        if self._sent_calls:
            metrics.NATIVE_REPAIRS.labels("finish_reason").inc()
        return {**self._end, "choices": [{**choice, "finish_reason": reason}]}

    @property
    def verdict(self) -> Verdict:
        if self._sent_calls:
            return FinalReply()
        if self._problems:
            return UnusableReply("invalid", {"diagnostics": "\n".join(map(str, self._problems))})
        found = self._reply.verdict
        if isinstance(found, UnusableReply) and found.kind == "required":
            return found
        if self._cut_off and self._finish_reason:
            return FinalReply()
        if isinstance(found, UnusableReply) and found.kind == "invalid":
            return found
        return FinalReply() if self._has_content else UnusableReply("empty")

    def _content(self, chunk: Chunk, rest: dict[str, Any], *, alone: bool) -> Iterator[Chunk]:
        """Yield the chunk with as much of its content as can pass."""
        content = rest.get("content")
        self._has_content = self._has_content or any(
            v for n, v in rest.items() if n not in _NOT_CONTENT
        )
        if not isinstance(content, str) or not content:
            if not self.done:
                yield chunk if alone else self._with(chunk, rest)
            return
        events = [*self._reply.feed(content)]
        texts = [event.text for event in events if isinstance(event, ContentDelta)]
        if alone and len(texts) == len(events) and "".join(texts) == content:
            self._has_content = self._has_content or bool(content.strip())
            yield chunk
            return
        others = {n: v for n, v in rest.items() if n != "content"}
        if _has_values(others):
            yield self._with(chunk, others)
        yield from self._events(events)

    def _events(self, events: Iterable[AnswerEvent]) -> Iterator[Chunk]:
        for event in events:
            match event:
                case ContentDelta(text):
                    self._has_content = self._has_content or bool(text.strip())
                    yield self._chunk({"content": text})
                case ReasoningDelta(text):
                    yield self._chunk({"reasoning_content": text})
                case ToolCall() if self._is_twin("content", event.name, event.arguments):
                    metrics.NATIVE_REPAIRS.labels("dropped").inc()
                case ToolCall():
                    metrics.NATIVE_REPAIRS.labels("markup").inc()
                    yield from self._new_chunks(event.id, event.name, event.arguments)

    def _send(self, calls: Iterable[CallFragments]) -> Iterator[Chunk]:
        for call in calls:
            if self._sent_calls and self._call_policy.one_at_a_time:
                metrics.NATIVE_REPAIRS.labels("dropped").inc()
                continue
            checked = self._checker.check(call)
            if isinstance(checked, UnusableCall):
                metrics.NATIVE_REPAIRS.labels("dropped").inc()
                self._problems.append(checked)
                continue
            if self._is_twin("tool_calls", checked.name, checked.arguments):
                metrics.NATIVE_REPAIRS.labels("dropped").inc()
                continue
            metrics.TOOL_CALLS.inc()
            faults = checked.faults | ({"index"} if call.index != self._sent_calls else set())
            unchanged = [chunk for chunk in call.chunks if chunk is not None]
            if checked.plain and not faults and len(unchanged) == len(call.chunks):
                self._sent_calls += 1
                yield from unchanged
                continue
            for fault in faults:
                metrics.NATIVE_REPAIRS.labels(fault).inc()
            yield from self._new_chunks(checked.id, checked.name, checked.arguments)

    def _is_twin(self, place: str, name: str, arguments: dict[str, Any]) -> bool:
        """Return True if the other place has sent this call already: some servers leave it in both."""
        call = name, dumps(arguments, option=SORTED)
        other = "content" if place == "tool_calls" else "tool_calls"
        if self._sent_from[other, *call]:
            self._sent_from[other, *call] -= 1
            return True
        self._sent_from[place, *call] += 1
        return False

    def _new_chunks(self, key: str, name: str, arguments: dict[str, Any]) -> Iterator[Chunk]:
        function = {"name": name, "arguments": ""}
        first = {"index": self._sent_calls, "id": key, "type": "function", "function": function}
        text = {"arguments": dumps(arguments).decode()}
        yield self._chunk({"tool_calls": [first]})
        yield self._chunk({"tool_calls": [{"index": self._sent_calls, "function": text}]})
        self._sent_calls += 1

    def _with(self, chunk: Chunk, delta: dict[str, Any]) -> Chunk:
        return {**chunk, "choices": [{**chunk["choices"][0], "delta": delta}]}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> Chunk:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {**self._base, "choices": [choice]}


_NOT_CONTENT = frozenset({"role", "content", "reasoning_content", "reasoning"})


def _has_values(delta: dict[str, Any]) -> bool:
    """Return True if a delta has more than the role."""
    return any(value for name, value in delta.items() if name != "role")
