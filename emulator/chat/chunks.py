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
from typing import Any

from emulator.chat.code_as_text import CodeAsText
from emulator.events import (
    AnswerEvent,
    ArgumentsDelta,
    CallBegun,
    ContentDelta,
    Finish,
    Opened,
    ReasoningDelta,
    Relayed,
    ToolCall,
    Usage,
    in_deltas,
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
        self._base = {
            "id": new_id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }

    def write(
        self, answers: Iterable[Iterable[AnswerEvent]], *, include_usage: bool
    ) -> Iterator[Chunk | Opened]:
        """All choices, one after the other; `Opened` passes through."""
        usages = []
        for index, events in enumerate(answers):
            for event in self._choice(index, events):
                match event:
                    case Usage():
                        usages.append(event)
                    case Relayed(chunk):
                        if chunk["choices"] or include_usage:
                            yield chunk
                    case _:
                        yield event
        if include_usage and usages:
            # The choices of one request share its prompt.
            completion_tokens = sum(usage.completion_tokens for usage in usages)
            usage = replace(usages[0], completion_tokens=completion_tokens)
            yield {**self._base, "choices": [], "usage": usage.json()}

    def _choice(
        self, index: int, events: Iterable[AnswerEvent]
    ) -> Iterator[Chunk | Opened | Relayed | Usage]:
        role: dict[str, Any] = {"role": "assistant"}
        calls = _Calls(legacy=self._legacy)
        code = CodeAsText(self._host)

        def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> Chunk:
            choice = {
                "index": index,
                "delta": delta,
                "logprobs": None,
                "finish_reason": finish_reason,
            }
            return {**self._base, "choices": [choice]}

        for event in in_deltas(events):
            match event:
                case Opened() | Relayed():
                    yield event
                    continue
                case ReasoningDelta(text):
                    yield chunk({**role, "reasoning_content": text})
                case ContentDelta():
                    yield chunk({**role, "content": code.words(event).text})
                case CallBegun() | ArgumentsDelta() | ToolCall():
                    for delta in calls.deltas(event):
                        yield chunk({**role, **({"content": None} if role else {}), **delta})
                        role = {}
                    continue
                case Finish(reason, usage):
                    for words in code.links(event):
                        yield chunk({**role, "content": words.text})
                        role = {}
                    if role:
                        yield chunk({**role, "content": ""})
                    legacy_call = self._legacy and reason == "tool_calls"
                    yield chunk({}, "function_call" if legacy_call else reason)
                    yield usage
                case _:
                    for part in code.code(event):
                        yield chunk({**role, "reasoning_content": part.text})
                        role = {}
                    continue
            role = {}


class _Calls:
    """The calls of one choice: the delta that announces each, and those with all that it is called with."""

    def __init__(self, *, legacy: bool) -> None:
        self._legacy = legacy
        self._index = -1
        self._call = CallBegun("", "")

    def deltas(self, event: CallBegun | ArgumentsDelta | ToolCall) -> Iterator[dict[str, Any]]:
        match event:
            case CallBegun(key, name, kind):
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


def collect(chunks: Iterable[Chunk | Opened]) -> dict[str, Any]:
    """Fold chunks, usage included, into one ``chat.completion``. Any number of choices."""
    completion: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        if isinstance(chunk, Opened):
            continue
        completion |= {k: v for k, v in chunk.items() if k != "choices" and v is not None}
        for part in chunk["choices"]:
            choice = choices.setdefault(part["index"], _new_choice(part["index"]))
            _fold(choice["message"], part.get("delta") or {})
            choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
            if logprobs := part.get("logprobs"):
                choice["logprobs"] = _extended(choice["logprobs"], logprobs)
    ordered = [choices[index] for index in sorted(choices)]
    return {**completion, "object": "chat.completion", "choices": ordered}


def _new_choice(index: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "refusal": None}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": "stop"}


def _fold(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            for part in value or ():
                _fold_call(message.setdefault("tool_calls", []), part)
        elif key == "role" or value is None:
            continue
        elif key == "function_call":
            known = message.setdefault(key, {"name": "", "arguments": ""})
            message[key] = {part: known[part] + value.get(part, "") for part in known}
        elif isinstance(value, str) and isinstance(message.get(key), str):
            message[key] += value
        else:
            message[key] = value


def _fold_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> None:
    part = dict(part)
    if part.pop("index") == len(calls):
        calls.append(part)
        return
    kind = calls[-1]["type"]
    for name, text in part[kind].items():
        calls[-1][kind][name] += text


def _extended(known: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """Log probabilities arrive as lists, a token or more at a time."""
    return {
        key: [*((known or {}).get(key) or []), *value] if isinstance(value, list) else value
        for key, value in more.items()
    }
