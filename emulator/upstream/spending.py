"""Count the tokens that a client's requests use: as the upstream reports them, else estimated.

Every turn counts, including one with an unusable reply and one whose client disconnected.
"""

from __future__ import annotations

import re

from emulator import metrics
from emulator.traces import Turn
from emulator.upstream.interface import Messages, Spend, UpstreamReply
from emulator.upstream.reply import Received, UpstreamBody

_CHARS_PER_TOKEN = 4
_BUFFERED = 64 * 1024
_MAX_TOKENS = 10**9
"""A larger reported number is not believed."""
_TOTAL = re.compile(rb'"total_tokens"\s*:\s*(\d{1,12})')
_TEXT_TYPES = ("json", "text/")


def meter_reply(
    reply: UpstreamReply, messages: Messages, spend: Spend | None, turn: Turn | None
) -> None:
    """When ``reply`` is closed, report its tokens to the metrics, ``turn`` and ``spend``."""

    def close(received: Received) -> None:
        prompt, completion = _tokens(messages, received)
        metrics.TOKENS.labels("in").inc(prompt)
        metrics.TOKENS.labels("out").inc(completion)
        if turn is not None:
            turn.prompt_tokens, turn.completion_tokens = prompt, completion
        if spend is not None:
            spend(prompt + completion)

    reply.on_close(close)


def _tokens(messages: Messages, received: Received) -> tuple[int, int]:
    """Tokens of the prompt and of the reply. An upstream may report anything."""
    prompt, completion = (
        reported if isinstance(reported, int) and 0 <= reported <= _MAX_TOKENS else None
        for reported in map(received.usage.get, ("prompt_tokens", "completion_tokens"))
    )
    if prompt is None:
        texts = (message.get("content") or "" for message in messages)
        prompt = sum(len(text if isinstance(text, str) else str(text)) for text in texts)
        prompt //= _CHARS_PER_TOKEN
    return prompt, received.chunks if completion is None else completion


def meter_body(body: UpstreamBody, content_type: str, request_chars: int, spend: Spend) -> None:
    """When ``body`` is closed, spend the tokens of a passed-on request.

    Only a ``total_tokens`` near either end of the body is read; without one, ``request_chars`` and the body's
    size are the estimate, if it is text.
    """
    head, tail, size = b"", b"", 0

    def look(data: bytes) -> None:
        nonlocal head, tail, size
        size += len(data)
        if len(head) < _BUFFERED:
            head += data[: _BUFFERED - len(head)]
        tail = (tail + data)[-_BUFFERED:]

    def close() -> None:
        # Inside a JSON string the quotes of the pattern would be escaped.
        reported = _TOTAL.findall(tail) or _TOTAL.findall(head)
        is_text = any(kind in content_type for kind in _TEXT_TYPES)
        estimated = (request_chars + (size if is_text else 0)) // _CHARS_PER_TOKEN
        spend(min(int(reported[-1]), _MAX_TOKENS) if reported else estimated)

    body.on_data(look)
    body.on_close(close)
