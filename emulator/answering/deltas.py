"""Read the text of a reply from its chunks. Chunks that arrive together become one delta.

A fast upstream sends many chunks in one network read, and parsing text costs more than joining it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emulator.answering.profiles import Profile
from emulator.answering.usage_counter import UsageCounter
from emulator.errors import UpstreamFailed
from emulator.upstream.interface import UpstreamReply


@dataclass(frozen=True)
class ReplyDelta:
    """Reasoning, followed by content."""

    reasoning: str
    content: str
    finish_reason: str | None = None
    """Set for a chunk that has one; such a chunk is a delta of its own."""


def read_deltas(
    reply: UpstreamReply, profile: Profile, counter: UsageCounter
) -> Iterator[ReplyDelta]:
    """Yield the text of ``reply`` as it arrives; nothing that has arrived waits for more.

    Raises `UpstreamFailed` after everything that arrived before the error.
    """
    reasoning: list[str] = []
    content: list[str] = []

    def pending() -> ReplyDelta:
        delta = ReplyDelta("".join(reasoning), "".join(content))
        reasoning.clear()
        content.clear()
        return delta

    try:
        for chunk in reply:
            counter.count(chunk)
            for choice in chunk.get("choices") or ():
                delta = choice.get("delta") or {}
                thought, words = profile.reasoning(delta), delta.get("content") or ""
                reason = choice.get("finish_reason")
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
