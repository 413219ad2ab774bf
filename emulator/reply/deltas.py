"""Read the text of a reply from its chunks. Chunks that arrive together become one delta.

A fast upstream sends many chunks in one network read, and parsing text costs more than joining it.

Some servers find calls in a model's words although the request offers no tools (Ollama with gpt-oss). Such a
call becomes text again, in a form that the reader knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.conversation.profiles import Profile
from emulator.core.errors import UpstreamFailed
from emulator.core.events import ReplyExtra
from emulator.reply.call_assembly import CallAssembler, CallFragments
from emulator.reply.extras import reply_extras
from emulator.upstream.interface import UpstreamReply
from emulator.upstream.usage_counter import UsageCounter

_MAX_COMPARED = 100_000


@dataclass(frozen=True)
class ReplyDelta:
    """Reasoning, followed by content."""

    reasoning: str
    content: str
    finish_reason: str | None = None
    """Set for a chunk that has one; such a chunk is a delta of its own."""


def read_deltas(
    reply: UpstreamReply, profile: Profile, counter: UsageCounter, extras: list[ReplyExtra]
) -> Iterator[ReplyDelta]:
    """Yield the text of ``reply`` as it arrives; nothing that has arrived waits for more. What it has
    besides is added to ``extras``.

    Raises `UpstreamFailed` after everything that arrived before the error.
    """
    reasoning: list[str] = []
    content: list[str] = []
    calls = _CallsAsText()

    def pending() -> ReplyDelta:
        delta = ReplyDelta("".join(reasoning), "".join(content))
        reasoning.clear()
        content.clear()
        return delta

    try:
        for chunk in reply:
            counter.count(chunk)
            for choice in chunk["choices"]:
                delta, reason = choice["delta"], choice.get("finish_reason")
                thought = profile.reasoning(delta)
                extras += reply_extras(delta)
                words = delta.get("content") or ""
                words += calls.feed(words, delta.get("tool_calls") or (), ends=bool(reason))
                if (reason or (thought and content)) and (reasoning or content):
                    yield pending()
                if reason:
                    yield ReplyDelta(thought, words, reason)
                    continue
                if thought:
                    reasoning.append(thought)
                if words:
                    content.append(words)
            if (reasoning or content) and not reply.more_arrived:
                yield pending()
    except UpstreamFailed:
        if reasoning or content:
            yield pending()
        raise
    if reasoning or content:  # more was announced, but the reply ended
        yield pending()


class _CallsAsText:
    """Writes the upstream's tool calls as the text that the model may have written."""

    def __init__(self) -> None:
        self._assembler = CallAssembler()
        self._words = ""

    def feed(self, words: str, pieces: Iterable[Mapping[str, Any]], *, ends: bool) -> str:
        """Return the text of the calls that ``pieces`` complete; with ``ends`` also of an incomplete one."""
        if len(self._words) < _MAX_COMPARED:
            self._words += words
        calls = [call for piece in pieces for call in self._assembler.feed(piece)]
        if ends:
            calls += self._assembler.close()
        return "".join(self._text(call) for call in calls)

    def _text(self, call: CallFragments) -> str:
        if call.name and call.name in self._words and call.arguments.strip("{} ") in self._words:
            return ""  # the server has left the call in the content too
        opening = f'\n<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": '
        if not call.is_complete and call.arguments:
            return opening + call.arguments
        return f"{opening}{call.arguments or '{}'}}}\n</tool_call>\n"
