"""The tokens that a client's requests take of an upstream: as that tells them, else as estimated.

Every turn of the model counts, also one whose reply is of no use, and one whose client left in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from emulator import metrics
from emulator.traces import Turn
from emulator.upstream.body import Body
from emulator.upstream.interface import Chat, Reply
from emulator.upstream.reply import Heard

_CHARS = 4
"""Of a token, about."""
_KEPT = 64 * 1024
_MOST = 10**9
"""Tokens of one turn that are believed."""
_TOTAL = re.compile(rb'"total_tokens"\s*:\s*(\d{1,12})')
_TEXTS = ("json", "text/")

Spend = Callable[[int], None]


def metered(reply: Reply, messages: Chat, spend: Spend | None, turn: Turn | None) -> Reply:
    """The same reply, whose tokens are counted when it is left: for metrics, ``turn`` and ``spend``."""

    def left(heard: Heard) -> None:
        prompt, completion = _tokens(messages, heard)
        metrics.TOKENS.labels("in").inc(prompt)
        metrics.TOKENS.labels("out").inc(completion)
        if turn is not None:
            turn.prompt_tokens, turn.completion_tokens = prompt, completion
        if spend is not None:
            spend(prompt + completion)

    reply.on_left(left)
    return reply


def _tokens(messages: Chat, heard: Heard) -> tuple[int, int]:
    """Of the prompt and of the reply; an upstream may tell anything."""
    prompt, completion = (
        told if isinstance(told, int) and 0 <= told <= _MOST else None
        for told in map(heard.usage.get, ("prompt_tokens", "completion_tokens"))
    )
    if prompt is None:
        texts = (message.get("content") or "" for message in messages)
        prompt = sum(len(text if isinstance(text, str) else str(text)) for text in texts)
        prompt //= _CHARS
    return prompt, heard.chunks if completion is None else completion


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
