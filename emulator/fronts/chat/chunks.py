"""Answer events -> ``chat.completion.chunk`` objects -> one ``chat.completion``.

A plain answer is `collect` of the same chunks, so the two modes cannot disagree. The chunks follow OpenAI's
streaming reference and the SDKs' accumulators; each rule, if broken, breaks some client: the role once; a
call's id, type and name once; one call per chunk; dense indices; ``finish_reason`` alone in the last chunk
with a choice; usage in its own chunk.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from emulator.core.cached_property import cached_property
from emulator.core.errors import EmulatorError
from emulator.core.events import (
    AnswerEvent,
    ApprovalRequested,
    ArgumentsDelta,
    CallStarted,
    ContentDelta,
    Finish,
    HostedCallFinished,
    HostedCallStarted,
    ModelImage,
    ModelViewReport,
    PageCited,
    ReasoningDelta,
    RefusalDelta,
    RelayedChunk,
    ReplyExtra,
    Summary,
    ToolCall,
    ToolsListed,
    UpstreamAccepted,
    Usage,
    call_deltas,
    new_id,
)
from emulator.fronts.chat.code_as_text import CodeAsText, CodeEvent
from emulator.hosted.citations import FoundPages
from emulator.upstream.interface import Chunk


class ChunkWriter:
    """Writes the chunks of one answer with one or more choices.

    ``legacy`` writes calls as ``function_call``, for requests that sent ``functions``. Links to files start
    with ``origin``.
    """

    def __init__(
        self, model: str, *, legacy: bool = False, origin: str = "", usage_later: bool = False
    ) -> None:
        """``usage_later``: a last chunk has the usage, so that of the others is null."""
        self._legacy = legacy
        self._usage_later = usage_later
        self._origin = origin
        self._model = model
        self._choices: dict[int, _ChoiceWriter] = {}
        """The writers of the choices whose chunks are made here, not relayed."""

    @cached_property
    def _base(self) -> dict[str, Any]:
        return {
            "id": new_id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": self._model,
            **({"usage": None} if self._usage_later else {}),
        }

    def write(
        self, answers: Iterable[Iterable[AnswerEvent]], *, include_usage: bool
    ) -> Iterator[Chunk | list[Chunk] | UpstreamAccepted]:
        """Write all choices, one after the other; `UpstreamAccepted` passes through.

        A list holds chunks that are sent in one write: the chunks of one event, chunks that arrived together
        from the upstream, and the last chunks including the usage.
        """
        pending: list[Chunk] = []
        try:
            for index, events in enumerate(answers):
                if pending:
                    yield pending
                    pending = []
                for event in events:
                    if isinstance(event, UpstreamAccepted):
                        yield event
                        continue
                    if not isinstance(event, RelayedChunk):
                        pending += self._choice(index).chunks(event)
                    elif event.chunk["choices"] or include_usage:
                        later = self._usage_later
                        pending.append({"usage": None, **event.chunk} if later else event.chunk)
                    if pending and not _follows_immediately(event):
                        pending, chunks = [], pending
                        yield chunks
        except EmulatorError:
            if pending:
                yield pending
            raise
        if include_usage:
            pending += self._usage()
        if pending:
            yield pending

    def _choice(self, index: int) -> _ChoiceWriter:
        choice = self._choices.get(index)
        if choice is None:
            choice = _ChoiceWriter(self._base, index, self._origin, legacy=self._legacy)
            self._choices[index] = choice
        return choice

    def _usage(self) -> Iterator[Chunk]:
        """The usage of all choices. Relayed answers contain the upstream's own usage chunk instead."""
        usages = [choice.usage for choice in self._choices.values() if choice.usage is not None]
        if usages:
            # The choices of one request share its prompt.
            completion_tokens = sum(usage.completion_tokens for usage in usages)
            usage = replace(usages[0], completion_tokens=completion_tokens)
            yield {**self._base, "choices": [], "usage": usage.json()}


def _follows_immediately(event: AnswerEvent) -> bool:
    """Return True if the chunk after ``event`` is available without waiting."""
    return event.more if isinstance(event, RelayedChunk) else isinstance(event, Finish)


class _ChoiceWriter:
    """Writes the chunks of one choice that is not relayed."""

    def __init__(self, base: dict[str, Any], index: int, origin: str, *, legacy: bool) -> None:
        self._base = base
        self._index = index
        self._legacy = legacy
        self._role: dict[str, Any] = {"role": "assistant"}
        """Empty after the first chunk."""
        self._calls = _CallWriter(legacy=legacy)
        self._code = CodeAsText(origin)
        self._pages = FoundPages()
        self._texts: list[str] = []
        self.usage: Usage | None = None
        """Set when the choice has finished."""

    def chunks(self, event: AnswerEvent) -> Iterator[Chunk]:
        """The chunks of the next event."""
        for part in call_deltas(event):
            match part:
                case UpstreamAccepted() | RelayedChunk() | ModelViewReport():
                    pass  # `ChunkWriter.write` and `HostedCalls` handle these
                case ToolsListed() | ApprovalRequested() | Summary():
                    pass  # chat completions have no place for lists, approval requests and summaries
                case ContentDelta(text):
                    yield self._content(self._code.separated(text))
                case ReasoningDelta() | RefusalDelta() | PageCited() | ModelImage():
                    yield self._chunk(_delta(part))
                case CallStarted() | ArgumentsDelta() | ToolCall():
                    for delta in self._calls.deltas(part):
                        yield self._chunk({"content": None, **delta} if self._role else delta)
                case Finish(reason, usage):
                    self.usage = usage
                    yield from self._last_content(links=reason != "tool_calls")
                    legacy_call = self._legacy and reason == "tool_calls"
                    yield self._chunk({}, "function_call" if legacy_call else reason)
                case _:
                    yield from self._shown(part)

    def _shown(self, event: CodeEvent) -> Iterator[Chunk]:
        if isinstance(event, HostedCallStarted | HostedCallFinished):
            self._pages.note(event)
        for reasoning in self._code.as_reasoning(event):
            yield self._chunk({"reasoning_content": reasoning})

    def _last_content(self, *, links: bool) -> Iterator[Chunk]:
        if links and (text := self._code.links()):
            yield self._content(text)
        for page in self._pages.cited("".join(self._texts)):
            yield self._chunk(_delta(page))
        if self._role:
            yield self._chunk({"content": ""})

    def _content(self, text: str) -> Chunk:
        self._texts.append(text)
        return self._chunk({"content": text})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> Chunk:
        choice = {
            "index": self._index,
            "delta": {**self._role, **delta},
            "logprobs": None,
            "finish_reason": finish_reason,
        }
        self._role = {}
        return {**self._base, "choices": [choice]}


def _delta(event: ReasoningDelta | ReplyExtra) -> dict[str, Any]:
    match event:
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case RefusalDelta(text):
            return {"refusal": text}
        case ModelImage(url):
            return {"images": [{"type": "image_url", "image_url": {"url": url}}]}
        case PageCited(url, title, quote, start, end):
            page = {"url": url, "title": title, "content": quote}
            cited = {**page, "start_index": start, "end_index": end}
            return {"annotations": [{"type": "url_citation", "url_citation": cited}]}


class _CallWriter:
    """Writes the calls of one choice: a delta with the id and name of each, then deltas with its
    arguments."""

    def __init__(self, *, legacy: bool) -> None:
        self._legacy = legacy
        self._index = -1
        self._call = CallStarted("", "")

    def deltas(self, event: CallStarted | ArgumentsDelta | ToolCall) -> Iterator[dict[str, Any]]:
        match event:
            case CallStarted(key, name, kind):
                self._index += 1
                self._call = event
                function = {"name": name, self._field: ""}
                if self._legacy:
                    yield {"function_call": function}
                else:
                    first = {"index": self._index, "id": key, "type": kind}
                    yield {"tool_calls": [{**first, kind: function}]}
            case ArgumentsDelta(text):
                arguments = {self._field: text}
                if self._legacy:
                    yield {"function_call": arguments}
                else:
                    yield {"tool_calls": [{"index": self._index, self._call.kind: arguments}]}

    @property
    def _field(self) -> str:
        return "input" if self._call.kind == "custom" else "arguments"


def collect(stream: Iterable[Chunk | list[Chunk] | UpstreamAccepted]) -> dict[str, Any]:
    """Fold chunks, including the usage, into one ``chat.completion`` with any number of choices."""
    completion: dict[str, Any] = {}
    choices: dict[int, _ChoiceFold] = {}
    for chunks in stream:
        if isinstance(chunks, UpstreamAccepted):
            continue
        for chunk in chunks if isinstance(chunks, list) else (chunks,):
            completion |= {k: v for k, v in chunk.items() if k != "choices" and v is not None}
            for part in chunk["choices"]:
                index = part["index"]
                if index not in choices:
                    choices[index] = _ChoiceFold(index)
                choices[index].add(part)
    ordered = [choices[index].close() for index in sorted(choices)]
    return {**completion, "object": "chat.completion", "choices": ordered}


class _ChoiceFold:
    """Folds the deltas of one choice. Joins texts at the end, so that a long text is copied only once."""

    def __init__(self, index: int) -> None:
        message = {"role": "assistant", "content": None, "refusal": None}
        self._message: dict[str, Any] = message
        self._choice: dict[str, Any] = {
            "index": index,
            "message": message,
            "logprobs": None,
            "finish_reason": "stop",
        }
        self._texts: dict[str, list[str]] = {}
        self._calls: list[tuple[dict[str, Any], dict[str, list[str]]]] = []

    def add(self, part: dict[str, Any]) -> None:
        choice = self._choice
        for key, value in (part.get("delta") or {}).items():
            if value is not None and key != "role":
                self._fold(key, value)
        choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
        if logprobs := part.get("logprobs"):
            choice["logprobs"] = _extended(choice["logprobs"], logprobs)

    def _fold(self, key: str, value: Any) -> None:
        message = self._message
        if key == "tool_calls":
            message.setdefault(key, [])
            for part in value:
                self._fold_call(part)
        elif key == "function_call":
            known = message.setdefault(key, {"name": "", "arguments": ""})
            message[key] = {part: known[part] + value.get(part, "") for part in known}
        elif isinstance(value, str):
            if isinstance(message.get(key), str):
                self._texts[key].append(value)
            else:
                message[key] = value
                self._texts[key] = [value]
        elif isinstance(value, list) and isinstance(message.get(key), list):
            message[key] = message[key] + value
        else:
            message[key] = value

    def _fold_call(self, part: dict[str, Any]) -> None:
        part = dict(part)
        if part.pop("index") == len(self._calls):
            self._calls.append((part, {}))
            return
        call, texts = self._calls[-1]
        kind = call["type"]
        for name, text in part[kind].items():
            texts.setdefault(name, [call[kind][name]]).append(text)

    def close(self) -> dict[str, Any]:
        for key, pieces in self._texts.items():
            if isinstance(self._message[key], str):
                self._message[key] = "".join(pieces)
        for call, texts in self._calls:
            kind = call["type"]
            joined = {name: "".join(pieces) for name, pieces in texts.items()}
            self._message["tool_calls"].append({**call, kind: {**call[kind], **joined}})
        return self._choice


def _extended(known: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """Append log probabilities, which arrive as lists of one token or more, to the ``known`` ones."""
    logprobs = known or {}
    for key, value in more.items():
        if isinstance(value, list):
            if not isinstance(logprobs.get(key), list):
                logprobs[key] = []
            logprobs[key] += value
        else:
            logprobs[key] = value
    return logprobs
