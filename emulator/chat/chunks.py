"""Answer events -> ``chat.completion.chunk`` objects -> one ``chat.completion``.

A non-streaming answer is `collect` of the same chunks, so the two modes cannot disagree. The rules of the
chunks (each breaks some client when it is not kept) are those of OpenAI's streaming reference and of the
SDKs' accumulators: role once, a call's id, type and name once, one call in a chunk, dense indices,
``finish_reason`` alone in the last chunk with a choice, usage in a chunk of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from emulator.chat.code_as_text import CodeAsText
from emulator.errors import EmulatorError
from emulator.events import (
    AnswerEvent,
    ArgumentsDelta,
    CallDeltas,
    CallStarted,
    ContentDelta,
    Finish,
    ReasoningDelta,
    RelayedChunk,
    ToolCall,
    UpstreamAccepted,
    Usage,
    new_id,
)
from emulator.upstream.interface import Chunk


class ChunkWriter:
    """Writes the chunks of one answer, of one choice or several.

    ``legacy`` gives calls the shape that they had when requests sent ``functions``; links to files begin
    with ``host``.
    """

    def __init__(self, model: str, *, legacy: bool = False, host: str = "") -> None:
        self._legacy = legacy
        self._host = host
        self._model = model
        self._choices: dict[int, _ChoiceWriter] = {}
        """Those in which the proxy speaks."""

    @cached_property
    def _base(self) -> dict[str, Any]:
        return {
            "id": new_id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": self._model,
        }

    def write(
        self, answers: Iterable[Iterable[AnswerEvent]], *, include_usage: bool
    ) -> Iterator[Chunk | list[Chunk] | UpstreamAccepted]:
        """All choices, one after the other; `UpstreamAccepted` passes through. Chunks that come together stay
        so: those of one event, those that the upstream sent so, and the last ones with the usage."""
        come: list[Chunk] = []
        try:
            for index, events in enumerate(answers):
                if come:
                    yield come
                    come = []
                for event in events:
                    if isinstance(event, UpstreamAccepted):
                        yield event
                        continue
                    if not isinstance(event, RelayedChunk):
                        come += self._choice(index).written(event)
                    elif event.chunk["choices"] or include_usage:
                        come.append(event.chunk)
                    if come and not _more_follows(event):
                        come, chunks = [], come
                        yield chunks
        except EmulatorError:
            if come:
                yield come
            raise
        if include_usage:
            come += self._usage()
        if come:
            yield come

    def _choice(self, index: int) -> _ChoiceWriter:
        choice = self._choices.get(index)
        if choice is None:
            choice = _ChoiceWriter(self._base, index, self._host, legacy=self._legacy)
            self._choices[index] = choice
        return choice

    def _usage(self) -> Iterator[Chunk]:
        """That of all choices; where the upstream's own chunks were passed on, they have it."""
        told = [choice.usage for choice in self._choices.values() if choice.usage is not None]
        if told:
            # The choices of one request share its prompt.
            completion_tokens = sum(usage.completion_tokens for usage in told)
            usage = replace(told[0], completion_tokens=completion_tokens)
            yield {**self._base, "choices": [], "usage": usage.json()}


def _more_follows(event: AnswerEvent) -> bool:
    """Whether the next chunk takes no waiting."""
    return event.more if isinstance(event, RelayedChunk) else isinstance(event, Finish)


class _ChoiceWriter:
    """Writes the chunks of one choice in which the proxy speaks."""

    def __init__(self, base: dict[str, Any], index: int, host: str, *, legacy: bool) -> None:
        self._base = base
        self._index = index
        self._legacy = legacy
        self._role: dict[str, Any] = {"role": "assistant"}
        """Until it has been told."""
        self._call_deltas = CallDeltas()
        self._calls = _Calls(legacy=legacy)
        self._code = CodeAsText(host)
        self.usage: Usage | None = None
        """Once it has finished."""

    def written(self, event: AnswerEvent) -> Iterator[Chunk]:
        """The chunks of the next event."""
        for told in self._call_deltas.expand(event):
            match told:
                case UpstreamAccepted() | RelayedChunk():
                    pass  # nothing of the proxy's own
                case ReasoningDelta(text):
                    yield self._chunk({"reasoning_content": text})
                case ContentDelta():
                    yield self._chunk({"content": self._code.words(told).text})
                case CallStarted() | ArgumentsDelta() | ToolCall():
                    for delta in self._calls.deltas(told):
                        yield self._chunk({"content": None, **delta} if self._role else delta)
                case Finish(reason, usage):
                    self.usage = usage
                    for words in self._code.links(told):
                        yield self._chunk({"content": words.text})
                    if self._role:
                        yield self._chunk({"content": ""})
                    legacy_call = self._legacy and reason == "tool_calls"
                    yield self._chunk({}, "function_call" if legacy_call else reason)
                case _:
                    for part in self._code.code(told):
                        yield self._chunk({"reasoning_content": part.text})

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> Chunk:
        choice = {
            "index": self._index,
            "delta": {**self._role, **delta},
            "logprobs": None,
            "finish_reason": finish_reason,
        }
        self._role = {}
        return {**self._base, "choices": [choice]}


class _Calls:
    """The calls of one choice: the delta that announces each, and those with all that it is called with."""

    def __init__(self, *, legacy: bool) -> None:
        self._legacy = legacy
        self._index = -1
        self._call = CallStarted("", "")

    def deltas(self, event: CallStarted | ArgumentsDelta | ToolCall) -> Iterator[dict[str, Any]]:
        match event:
            case CallStarted(key, name, kind):
                self._index += 1
                self._call = event
                called = {"name": name, self._field: ""}
                if self._legacy:
                    yield {"function_call": called}
                else:
                    first = {"index": self._index, "id": key, "type": kind}
                    yield {"tool_calls": [{**first, kind: called}]}
            case ArgumentsDelta(text):
                argued = {self._field: text}
                if self._legacy:
                    yield {"function_call": argued}
                else:
                    yield {"tool_calls": [{"index": self._index, self._call.kind: argued}]}

    @property
    def _field(self) -> str:
        return "input" if self._call.kind == "custom" else "arguments"


def collect(written: Iterable[Chunk | list[Chunk] | UpstreamAccepted]) -> dict[str, Any]:
    """Fold chunks, usage included, into one ``chat.completion``. Any number of choices."""
    completion: dict[str, Any] = {}
    choices: dict[int, _Choice] = {}
    for chunks in written:
        if isinstance(chunks, UpstreamAccepted):
            continue
        for chunk in chunks if isinstance(chunks, list) else (chunks,):
            completion |= {k: v for k, v in chunk.items() if k != "choices" and v is not None}
            for part in chunk["choices"]:
                index = part["index"]
                if index not in choices:
                    choices[index] = _Choice(index)
                choices[index].take(part)
    ordered = [choices[index].whole() for index in sorted(choices)]
    return {**completion, "object": "chat.completion", "choices": ordered}


class _Choice:
    """One choice as its deltas come. Texts are joined at the end: a long one is not copied with each."""

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

    def take(self, part: dict[str, Any]) -> None:
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

    def whole(self) -> dict[str, Any]:
        for key, pieces in self._texts.items():
            if isinstance(self._message[key], str):
                self._message[key] = "".join(pieces)
        for call, texts in self._calls:
            kind = call["type"]
            said = {name: "".join(pieces) for name, pieces in texts.items()}
            self._message["tool_calls"].append({**call, kind: {**call[kind], **said}})
        return self._choice


def _extended(known: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """Log probabilities arrive as lists, a token or more at a time. Those that are known grow."""
    grown = known or {}
    for key, value in more.items():
        if isinstance(value, list):
            if not isinstance(grown.get(key), list):
                grown[key] = []
            grown[key] += value
        else:
            grown[key] = value
    return grown
