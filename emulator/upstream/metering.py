"""Record each request to an upstream as a turn of the current trace, and count its tokens.

Tokens are those that the upstream reports, else estimated. Every turn counts, including one with an unusable
reply and one whose client disconnected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from emulator import traces
from emulator.core import json_codec, metrics
from emulator.core.errors import UpstreamFailed
from emulator.traces import Trace, Turn
from emulator.upstream.interface import Messages, PassedOnResponse, Received, UpstreamReply
from emulator.upstream.prompt_ceilings import PromptCeilings

Spend = Callable[[int], None]
"""Charges a client for a number of tokens."""

_CHARS_PER_TOKEN = 4
_IMAGE_TOKENS = 1_600
"""Of an image or a file, whatever its bytes: the most that Anthropic counts for an image ("Vision")."""
_CEILINGS = PromptCeilings()
_MIN_CEILING = 4 * 1024
"""Characters: no server has a shorter context."""
_BUFFERED = 64 * 1024
_MAX_TOKENS = 10**9
"""A larger reported number is not believed."""
_REPORTED = re.compile(rb'"(total|completion|output)_tokens"\s*:\s*(\d{1,12})')
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
        _count_tokens(turn, messages, received)
        _charge(trace, turn, spend)

    reply.on_first_output = first_output
    reply.on_close(close)
    return reply


def _charge(trace: Trace, turn: Turn, spend: Spend | None) -> None:
    """Add the turn's tokens to the metrics and to what its client has used."""
    model = metrics.model_label(str(turn.fields.get("model") or ""))
    metrics.TOKENS.labels("in", model, trace.client_name).inc(turn.prompt_tokens)
    metrics.TOKENS.labels("out", model, trace.client_name).inc(turn.completion_tokens)
    if spend is not None:
        spend(turn.prompt_tokens + turn.completion_tokens)


def _count_tokens(turn: Turn, messages: Messages, received: Received) -> None:
    """An upstream may report anything. No prompt and no words have 0 tokens: then it has not counted."""
    usage = received.usage
    prompt, completion = (
        _count(usage, name) or None for name in ("prompt_tokens", "completion_tokens")
    )
    tools = turn.fields.get("tools") or ()
    turn.prompt_tokens = estimate_tokens(messages, tools) if prompt is None else prompt
    if prompt is not None and len(turn.sent) > _CHARS_PER_TOKEN * prompt > _MIN_CEILING:
        _note_cut(turn, prompt, estimate_tokens(messages, tools))
    written = tokens_of(received.characters)
    turn.completion_tokens = written if completion is None else completion
    # Some servers report usage with each chunk: before the end it is what they had counted so far.
    turn.is_estimated = prompt is None or completion is None or not received.has_finish
    prompt_details = usage.get("prompt_tokens_details") or {}
    turn.cached_tokens = _count(prompt_details, "cached_tokens") or 0
    completion_details = usage.get("completion_tokens_details") or {}
    turn.reasoning_tokens = _count(completion_details, "reasoning_tokens") or 0


def _note_cut(turn: Turn, reported: int, estimated: int) -> None:
    model = str(turn.fields.get("model") or "")
    if _CEILINGS.is_cut(turn.upstream, model, reported, estimated):
        prompt = f"a prompt of about {estimated:,}"
        words = f"The server read {reported:,} tokens of {prompt}: its context is full."
        traces.note(
            "prompt-cut", words, "a larger context of the server (Ollama: OLLAMA_CONTEXT_LENGTH)"
        )


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) and 0 <= value <= _MAX_TOKENS else None


def tokens_of(characters: int) -> int:
    """Estimate the tokens of a text without a tokenizer."""
    return math.ceil(characters / _CHARS_PER_TOKEN)


def estimate_tokens(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    image_tokens: int = _IMAGE_TOKENS,
) -> int:
    """Estimate the length of a prompt. The model reads calls and ``tools`` as JSON or something as long."""
    contents = (message.get("content") or "" for message in messages)
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    texts = (json_codec.dumps(one.get("function") or one) for one in (*calls, *tools))
    image = _CHARS_PER_TOKEN * image_tokens
    return tokens_of(sum(_characters(one, image) for one in contents) + sum(map(len, texts)))


def _characters(content: Any, image: int) -> int:
    if isinstance(content, str):
        return len(content)
    return sum(len(str(part["text"])) if "text" in part else image for part in content)


def pass_on_metered(
    upstream: str,
    path: str,
    model: str | None,
    request_chars: int,
    spend: Spend | None,
    send: Callable[[], PassedOnResponse],
) -> PassedOnResponse:
    """Send a passed-on request; its bodies are not recorded. Raises `UpstreamFailed` as ``send`` does.

    Only the numbers of tokens near either end of a response that is text are read. Without a total,
    ``request_chars`` and the response's size are the estimate.
    """
    trace = _current_trace()
    trace.mode, trace.upstream, trace.model = "passed", upstream, model or ""
    turn = trace.begin_turn(upstream, (), {"model": model} if model else {})
    turn.operation = path
    with _opening(trace, turn):
        response = send()
    body = response.body
    response_type = response.headers.get("content-type", "")
    is_text = any(kind in response_type for kind in _TEXT_TYPES)
    head, tail, size = b"", b"", 0

    def look(data: bytes) -> None:
        nonlocal head, tail, size
        if not size:
            turn.first_output = trace.first_output = trace.now()
        size += len(data)
        if is_text:
            if len(head) < _BUFFERED:
                head += data[: _BUFFERED - len(head)]
            tail = (tail + data)[-_BUFFERED:]

    def close() -> None:
        turn.ended = trace.now()
        if body.error is not None:
            turn.error = body.error.message
            trace.set_error(body.error.message, body.error.code)
        # Inside a JSON string the quotes of the pattern would be escaped.
        found = dict(_REPORTED.findall(tail) or _REPORTED.findall(head))
        reported = {name: min(int(number), _MAX_TOKENS) for name, number in found.items()}
        if (total := reported.get(b"total")) is not None:
            output = reported.get(b"completion", reported.get(b"output", 0))
            turn.prompt_tokens, turn.completion_tokens = max(total - output, 0), output
        else:
            turn.prompt_tokens = request_chars // _CHARS_PER_TOKEN
            turn.completion_tokens = size // _CHARS_PER_TOKEN if is_text else 0
            turn.is_estimated = True
        _charge(trace, turn, spend)

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
