"""Record each request to an upstream as a turn of the current trace, and count its tokens.

Tokens are those that the upstream reports, else estimated. Every turn counts, including one with an unusable
reply and one whose client disconnected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from emulator import metrics, traces
from emulator.errors import UpstreamFailed
from emulator.traces import Trace, Turn
from emulator.upstream.interface import Messages, PassedOnResponse, Received, UpstreamReply

Spend = Callable[[int], None]
"""Charges a client for a number of tokens."""

_CHARS_PER_TOKEN = 4
_BUFFERED = 64 * 1024
_MAX_TOKENS = 10**9
"""A larger reported number is not believed."""
_TOTAL = re.compile(rb'"total_tokens"\s*:\s*(\d{1,12})')
_TEXT_TYPES = ("json", "text/")


def open_metered(
    upstream: str,
    messages: Messages,
    fields: Mapping[str, Any],
    spend: Spend | None,
    open_reply: Callable[[], UpstreamReply],
) -> UpstreamReply:
    """Open a reply. When it is closed, its tokens go to the metrics, its turn and ``spend``.

    Raises `UpstreamFailed` as ``open_reply`` does.
    """
    trace = _current_trace()
    turn = trace.begin_turn(upstream, messages, fields)
    with _opening(trace, turn):
        reply = open_reply()

    def first_output() -> None:
        turn.first_output = trace.now()

    def close() -> None:
        received = reply.received
        turn.ended = trace.now()
        turn.error = received.error.message if received.error else ""
        turn.prompt_tokens, turn.completion_tokens = _tokens(messages, received)
        model = metrics.model_label(str(fields.get("model") or ""))
        metrics.TOKENS.labels("in", model, trace.client_name).inc(turn.prompt_tokens)
        metrics.TOKENS.labels("out", model, trace.client_name).inc(turn.completion_tokens)
        if spend is not None:
            spend(turn.prompt_tokens + turn.completion_tokens)

    reply.on_first_output = first_output
    reply.on_close(close)
    return reply


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


def pass_on_metered(
    upstream: str,
    path: str,
    model: str | None,
    request_chars: int,
    spend: Spend | None,
    send: Callable[[], PassedOnResponse],
) -> PassedOnResponse:
    """Send a passed-on request; its bodies are not recorded. Raises `UpstreamFailed` as ``send`` does.

    Only a ``total_tokens`` near either end of the response is read; without one, ``request_chars`` and the
    response's size are the estimate, if it is text.
    """
    trace = _current_trace()
    trace.mode, trace.upstream, trace.model = "passed", upstream, model or ""
    turn = trace.begin_turn(upstream, (), {"model": model} if model else {})
    turn.operation = path
    with _opening(trace, turn):
        response = send()
    body = response.body
    head, tail, size = b"", b"", 0

    def look(data: bytes) -> None:
        nonlocal head, tail, size
        if not size:
            turn.first_output = trace.first_output = trace.now()
        size += len(data)
        if spend is not None:
            if len(head) < _BUFFERED:
                head += data[: _BUFFERED - len(head)]
            tail = (tail + data)[-_BUFFERED:]

    def close() -> None:
        turn.ended = trace.now()
        if body.error is not None:
            turn.error = body.error.message
            trace.set_error(body.error.message, body.error.code)
        if spend is not None:
            # Inside a JSON string the quotes of the pattern would be escaped.
            reported = _TOTAL.findall(tail) or _TOTAL.findall(head)
            response_type = response.headers.get("content-type", "")
            is_text = any(kind in response_type for kind in _TEXT_TYPES)
            estimated = (request_chars + (size if is_text else 0)) // _CHARS_PER_TOKEN
            spend(min(int(reported[-1]), _MAX_TOKENS) if reported else estimated)

    body.on_data = look
    body.on_close(close)
    return response


def _current_trace() -> Trace:
    """The current trace, or one that nobody reads."""
    return traces.current.get() or Trace("", "", "")


@contextmanager
def _opening(trace: Trace, turn: Turn) -> Iterator[None]:
    try:
        yield
    except UpstreamFailed as error:
        turn.ended, turn.error = trace.now(), error.message
        raise
    turn.opened = trace.now()
