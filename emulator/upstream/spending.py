"""The tokens that a client's requests take of an upstream: as that tells them, else as estimated.

Every turn of the model counts, also one whose reply is of no use, and one whose client left in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator import metrics
from emulator.traces import Turn
from emulator.upstream.body import Body
from emulator.upstream.interface import Chat, Chunk
from emulator.upstream.wrapped import WrappedReply

_CHARS = 4
"""Of a token, about."""
_KEPT = 64 * 1024
_MOST = 10**9
"""Tokens of one turn that are believed."""
_TOTAL = re.compile(rb'"total_tokens"\s*:\s*(\d{1,12})')
_TEXTS = ("json", "text/")

Spend = Callable[[int], None]


@dataclass
class MeteredReply(WrappedReply):
    """A reply whose tokens are counted when it is left: for metrics, its trace and its client's budget."""

    messages: Chat
    spend: Spend | None
    turn: Turn | None
    _deltas: int = 0
    _usage: Mapping[str, Any] = field(default_factory=dict)

    def left(self) -> None:
        prompt, completion = self._tokens()
        metrics.TOKENS.labels("in").inc(prompt)
        metrics.TOKENS.labels("out").inc(completion)
        if self.turn is not None:
            self.turn.prompt_tokens, self.turn.completion_tokens = prompt, completion
        if self.spend is not None:
            self.spend(prompt + completion)

    def __iter__(self) -> Iterator[Chunk]:
        for chunk in self.reply:
            self._deltas += bool(chunk.get("choices"))
            usage = chunk.get("usage")
            self._usage = usage if isinstance(usage, dict) else self._usage
            yield chunk

    def _tokens(self) -> tuple[int, int]:
        """Of the prompt and of the reply; an upstream may tell anything."""
        prompt, completion = (
            told if isinstance(told, int) and 0 <= told <= _MOST else None
            for told in map(self._usage.get, ("prompt_tokens", "completion_tokens"))
        )
        if prompt is None:
            texts = (message.get("content") or "" for message in self.messages)
            prompt = sum(len(text if isinstance(text, str) else str(text)) for text in texts)
            prompt //= _CHARS
        return prompt, self._deltas if completion is None else completion


def metered_body(body: Body, content_type: str, sent: int, spend: Spend) -> Body:
    """The same bytes. What is passed on is not read but for its ``total_tokens``, at either end of it.

    ``sent`` is how many bytes of text the request had.
    """
    head, tail, size = b"", b"", 0

    def pieces() -> Iterator[bytes]:
        nonlocal head, tail, size
        for data in body:
            size += len(data)
            if len(head) < _KEPT:
                head += data[: _KEPT - len(head)]
            tail = (tail + data)[-_KEPT:]
            yield data

    def finish() -> None:
        try:
            body.close()
        finally:
            # Within a text of JSON these quotes would be escaped.
            told = _TOTAL.findall(tail) or _TOTAL.findall(head)
            is_text = any(kind in content_type for kind in _TEXTS)
            spend(
                min(int(told[-1]), _MOST) if told else (sent + (size if is_text else 0)) // _CHARS
            )

    return Body(pieces(), finish)
