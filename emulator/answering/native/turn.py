"""One reply of an upstream that calls tools itself: its chunks, untouched where a client can use them.

Words leave as they come, but for what may open a call in a model's own markup; a call is held until it is
whole. Sans-IO: `feed` takes a chunk and gives those to pass on, `close` the rest but for the last one, and
`end` the one that finishes the answer.

What goes wrong there, by who reported it: calls stand in ``content`` (vllm-project/vllm#17161, #21571 and
#28297); the reply with calls finishes with "stop" (ollama/ollama#7963, sgl-project/sglang#2877,
BerriAI/litellm#12862); and a reply that is empty, or ends with the promise of a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from emulator import metrics
from emulator.answering.call_policy import CallPolicy
from emulator.answering.native.call_assembly import (
    CallAssembler,
    CallChecker,
    CallFragments,
    UnusableCall,
)
from emulator.answering.program_draft import ProgramDraft
from emulator.answering.prose import Prose
from emulator.answering.reply_reader import ReplyReader
from emulator.answering.verdicts import (
    FinalReply,
    UnusableReply,
    Verdict,
    answer_finish_reason,
    is_truncated,
)
from emulator.events import AnswerEvent, ContentDelta, ReasoningDelta, ToolCall, new_id
from emulator.json_codec import dumps
from emulator.upstream.interface import Chunk


class VerbatimProse(Prose):
    """Words exactly as they came, white space included."""

    def feed(self, text: str) -> str:
        if self._hold:
            self._buffer.append(text)
            return ""
        self.mark_sent(text)
        return text


class MarkupDraft(ProgramDraft):
    """Calls in a model's own markup. A fenced Python block is none: nobody asked this model for Python."""

    _shown = False

    def start_block(
        self, dialect: str, raw: str, *, in_a_row: bool = False
    ) -> Iterator[AnswerEvent]:
        self._shown = dialect == "python" and raw.lstrip().startswith(("```", "~~~"))
        if self._shown:
            yield ContentDelta(raw)
        else:
            yield from super().start_block(dialect, raw, in_a_row=in_a_row)

    def feed(self, text: str, raw: str) -> Iterator[Any]:
        if self._shown:
            yield ContentDelta(raw)
        else:
            yield from super().feed(text, raw)

    def end_block(self, raw: str, *, cut_off: bool) -> Iterator[Any]:
        if self._shown:
            self._shown = False
            yield ContentDelta(raw)
        else:
            yield from super().end_block(raw, cut_off=cut_off)


class NativeTurn:
    """After `close`, ``verdict`` says what came of the reply; ``done`` when to stop reading."""

    def __init__(self, reply: ReplyReader, judge: CallChecker, choice: CallPolicy) -> None:
        """``reply`` reads the words, with a `MarkupDraft` and `VerbatimProse` prose."""
        self._reply = reply
        self._judge = judge
        self._call_policy = choice
        self._assembler = CallAssembler()
        self._chunks: list[Chunk | None] = []
        """Those of the open call; None for one that cannot leave as it is."""
        self._problems: list[UnusableCall] = []
        self._base: Chunk = {"id": new_id("chatcmpl-")}
        self._end: Chunk | None = None
        self._finish_reason: str | None = None
        self._left = 0
        self._said = False

    def record(self) -> None:
        """Let the trace of the request have the words, as they come."""
        self._reply.record()

    @property
    def finish_reason(self) -> str | None:
        """The upstream's, as far as it has told."""
        return self._finish_reason

    @property
    def done(self) -> bool:
        return self._reply.done

    @property
    def size(self) -> int:
        return self._reply.size + self._assembler.chars

    @property
    def called(self) -> bool:
        return bool(self._left)

    @property
    def text(self) -> str:
        """The reply as far as a model can be shown it again."""
        calls = [problem.written for problem in self._problems]
        return "\n".join([*filter(str.strip, [self._reply.text]), *calls]) or "..."

    def feed(self, chunk: Chunk) -> Iterator[Chunk]:
        """``chunk`` has a choice."""
        choice = chunk["choices"][0]
        delta = choice.get("delta") or {}
        self._base = {k: v for k, v in chunk.items() if k not in ("choices", "usage")}
        if finish_reason := choice.get("finish_reason"):
            self._finish_reason = finish_reason
            bare = {**choice, "delta": {}}
            self._end = chunk if not _says(delta) else {**chunk, "choices": [bare]}
            if not _says(delta):
                return
            chunk = {**chunk, "choices": [{**choice, "finish_reason": None}]}
        pieces = delta.get("tool_calls") or ()
        rest = {name: value for name, value in delta.items() if name != "tool_calls"}
        if not pieces or _says(rest):
            yield from self._words(chunk, rest, alone=not pieces)
        alone = len(pieces) == 1 and not _says(rest) and not finish_reason
        for piece in pieces if isinstance(pieces, list) else ():
            yield from self._leave(self._assembler.feed(piece))
            self._chunks.append(chunk if alone else None)

    def close(self) -> Iterator[Chunk]:
        """The upstream has ended, or was left."""
        cut_off = not self.done and is_truncated(self._finish_reason)
        for call in self._assembler.close():
            if cut_off and not call.is_whole:
                metrics.NATIVE_REPAIRS.labels("cut").inc()
            else:
                yield from self._leave([call])
        yield from self._events(self._reply.close(cut_off=cut_off))

    def end(self, *, length: bool = False) -> Chunk:
        """The last chunk with a choice; ``length`` where the answer was cut off here."""
        reason: str = answer_finish_reason(self._finish_reason)
        if self._left:
            reason = "tool_calls"
        elif length:
            reason = "length"
        if self._end is None:
            return self._chunk({}, reason)
        [choice, *_] = self._end["choices"]
        if choice.get("finish_reason") == reason:
            return self._end
        if self._left:
            metrics.NATIVE_REPAIRS.labels("finish_reason").inc()
        return {**self._end, "choices": [{**choice, "finish_reason": reason}]}

    @property
    def verdict(self) -> Verdict:
        if self._left:
            return FinalReply()
        if self._problems:
            return UnusableReply("invalid", {"diagnostics": "\n".join(map(str, self._problems))})
        found = self._reply.verdict
        if isinstance(found, UnusableReply) and found.kind == "required":
            return found
        if is_truncated(self._finish_reason) and not self.done:
            return FinalReply()
        if isinstance(found, UnusableReply) and found.kind in ("invalid", "promised"):
            return found
        return FinalReply() if self._said else UnusableReply("empty")

    def _words(self, chunk: Chunk, rest: dict[str, Any], *, alone: bool) -> Iterator[Chunk]:
        """The chunk with as much of its words as can be told."""
        content = rest.get("content")
        self._said = self._said or any(v for n, v in rest.items() if n not in _NO_ANSWER)
        if not isinstance(content, str) or not content:
            if not self.done:
                yield chunk if alone else self._with(chunk, rest)
            return
        events = [*self._reply.feed(content)]
        words = [event.text for event in events if isinstance(event, ContentDelta)]
        if alone and len(words) == len(events) and "".join(words) == content:
            self._said = self._said or bool(content.strip())
            yield chunk
            return
        others = {n: v for n, v in rest.items() if n != "content"}
        if _says(others):
            yield self._with(chunk, others)
        yield from self._events(events)

    def _events(self, events: Iterable[AnswerEvent]) -> Iterator[Chunk]:
        for event in events:
            match event:
                case ContentDelta(text):
                    self._said = self._said or bool(text.strip())
                    yield self._chunk({"content": text})
                case ReasoningDelta(text):
                    yield self._chunk({"reasoning_content": text})
                case ToolCall():
                    metrics.NATIVE_REPAIRS.labels("markup").inc()
                    yield from self._written(event.id, event.name, event.arguments)

    def _leave(self, calls: Iterable[CallFragments]) -> Iterator[Chunk]:
        for call in calls:
            chunks, self._chunks = self._chunks, []
            if self._left and self._call_policy.one_at_a_time:
                metrics.NATIVE_REPAIRS.labels("dropped").inc()
                continue
            judged = self._judge.judge(call)
            if isinstance(judged, UnusableCall):
                metrics.NATIVE_REPAIRS.labels("dropped").inc()
                self._problems.append(judged)
                continue
            metrics.TOOL_CALLS.inc()
            faults = judged.faults | ({"index"} if call.index != self._left else set())
            whole = [chunk for chunk in chunks if chunk is not None]
            if judged.plain and not faults and len(whole) == len(chunks):
                self._left += 1
                yield from whole
                continue
            for fault in faults:
                metrics.NATIVE_REPAIRS.labels(fault).inc()
            yield from self._written(judged.id, judged.name, judged.arguments)

    def _written(self, key: str, name: str, arguments: dict[str, Any]) -> Iterator[Chunk]:
        function = {"name": name, "arguments": ""}
        first = {"index": self._left, "id": key, "type": "function", "function": function}
        text = {"arguments": dumps(arguments).decode()}
        yield self._chunk({"tool_calls": [first]})
        yield self._chunk({"tool_calls": [{"index": self._left, "function": text}]})
        self._left += 1

    def _with(self, chunk: Chunk, delta: dict[str, Any]) -> Chunk:
        return {**chunk, "choices": [{**chunk["choices"][0], "delta": delta}]}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> Chunk:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {**self._base, "choices": [choice]}


_NO_ANSWER = frozenset({"role", "content", "reasoning_content", "reasoning"})


def _says(delta: dict[str, Any]) -> bool:
    """Whether a delta has more than the role."""
    return any(value for name, value in delta.items() if name != "role")
