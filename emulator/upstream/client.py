"""The only place that calls the ``openai`` client. Always streams; yields chunks as plain dicts.

The SDK opens the request (its retries, timeouts and error mapping), but its chunk objects are not built:
the SSE bytes are read raw and each event is decoded once. Knows nothing of tools.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import httpx2
import openai

from emulator import json_codec
from emulator.errors import UpstreamFailed
from emulator.settings import Settings
from emulator.upstream.failures import headers_told, message_of
from emulator.upstream.interface import Chat, Chunk, UpstreamReply
from emulator.upstream.sse import EventTooLarge, SSEDecoder

_SHORTEST_KEY = 8
PASSED_BACK = ("retry-after", "retry-after-ms", "x-should-retry")


class OpenAIUpstream:
    """One upstream behind the official client. Safe to share between threads."""

    def __init__(self, settings: Settings) -> None:
        self._client = openai.OpenAI(
            api_key=settings.api_key.get_secret_value(),
            base_url=settings.base_url,
            max_retries=settings.upstream_retries,
            timeout=openai.Timeout(
                settings.upstream_seconds, connect=settings.upstream_connect_seconds
            ),
        )
        self._answer_seconds = settings.answer_seconds
        self._key = settings.api_key.get_secret_value()

    def for_one_answer(self) -> _OneAnswer:
        return _OneAnswer(self, time.monotonic() + self._answer_seconds)

    def open(
        self, messages: Chat, fields: Mapping[str, Any], until: float = math.inf
    ) -> UpstreamReply:
        """Send a chat completion request; returns once the upstream has answered with a status.

        ``fields`` are the request's other fields as JSON, ``model`` among them. Raises
        `UpstreamFailed`.
        """
        _check(until)
        extra = {name: value for name, value in fields.items() if name != "model"}
        opened = self._client.chat.completions.with_streaming_response.create(
            model=fields["model"],
            messages=messages,  # type: ignore[arg-type]  # JSON from the client, kept as it came
            stream=True,
            extra_body=extra,
        )
        try:
            response = opened.__enter__()
        except openai.OpenAIError as error:
            raise _without(self._key, _failure(error)) from error
        return _RawReply(opened, response.http_response, until, self._key)

    def models(self) -> list[dict[str, Any]]:
        """The upstream's model list. Raises `UpstreamFailed`."""
        try:
            listed = json_codec.loads(self._client.models.with_raw_response.list().content)
        except openai.OpenAIError as error:
            raise _without(self._key, _failure(error)) from error
        except json_codec.NotJSON as error:
            raise UpstreamFailed("The upstream's model list is not valid JSON.") from error
        data = listed.get("data") if isinstance(listed, dict) else None
        return [model for model in data or () if isinstance(model, dict)]

    def close(self) -> None:
        self._client.close()


@dataclass(frozen=True)
class _OneAnswer:
    upstream: OpenAIUpstream
    until: float

    def open(self, messages: Chat, fields: Mapping[str, Any]) -> UpstreamReply:
        return self.upstream.open(messages, fields, self.until)


class _RawReply:
    def __init__(self, opened: Any, response: httpx2.Response, until: float, key: str) -> None:
        self._key = key
        self._opened = opened
        self._response = response
        self._until = until

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._opened.__exit__(None, None, None)

    def abort(self) -> None:
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(connection, socket.socket):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def headers(self) -> Mapping[str, str]:
        return headers_told(self._response.headers, ("x-ratelimit-",))

    def __iter__(self) -> Iterator[Chunk]:
        """The chunks. Raises `UpstreamFailed` on a broken, malformed or unfinished answer."""
        decoder = SSEDecoder()
        finished = False
        try:
            for data in self._response.iter_bytes():
                _check(self._until)  # also while nothing but comments comes
                for event in decoder.feed(data):
                    if event == b"[DONE]":
                        return
                    try:
                        chunk = _chunk(event)
                    except UpstreamFailed as error:
                        raise _without(self._key, error) from error
                    finished = finished or _finishes(chunk)
                    yield chunk
        except httpx2.TimeoutException as error:
            raise UpstreamFailed("The upstream fell silent.", status=504) from error
        except (httpx2.HTTPError, EventTooLarge) as error:
            raise UpstreamFailed(f"The upstream broke off its answer: {error}") from error
        if not finished:
            raise UpstreamFailed("The upstream ended its answer without a finish_reason.")


def _check(until: float) -> None:
    if time.monotonic() > until:
        raise UpstreamFailed(
            "The upstream took longer than an answer may (setting answer_seconds).",
            code="answer_timeout",
            headers={"x-should-retry": "false"},
            status=504,
        )


def _chunk(event: bytes) -> Chunk:
    try:
        chunk = json_codec.loads(event)
    except json_codec.NotJSON as error:
        raise UpstreamFailed(f"The upstream sent an event that is not JSON: {error}") from error
    if not isinstance(chunk, dict):
        raise UpstreamFailed("The upstream sent an event that is not a JSON object.")
    if reported := chunk.get("error"):
        message = reported.get("message") if isinstance(reported, dict) else reported
        raise UpstreamFailed(f"The upstream reported an error: {message}")
    _check_shape(chunk)
    return chunk


def _without(key: str, error: UpstreamFailed) -> UpstreamFailed:
    """The error without the operator's key, which some upstreams quote: clients and logs get the rest."""
    if len(key) < _SHORTEST_KEY:
        return error  # a word like any other
    return replace(error, message=error.message.replace(key, "[the upstream's key]"))


def _check_shape(chunk: Chunk) -> None:
    """What is read of a chunk anywhere must be of its type: garbage is the upstream's fault, not ours."""
    choices, usage = chunk.get("choices") or [], chunk.get("usage")
    fits = isinstance(choices, list) and isinstance(usage, dict | None)
    for choice in choices if fits else ():
        delta = (choice.get("delta") or {}) if isinstance(choice, dict) else None
        fits = (
            fits and isinstance(delta, dict) and isinstance(choice.get("finish_reason"), str | None)
        )
        if fits and delta:
            said = (delta.get(name) for name in ("content", "reasoning_content", "reasoning"))
            fits = all(isinstance(text, str | None) for text in said)
    counted = ("prompt_tokens", "completion_tokens")
    if not fits or any(type((usage or {}).get(name) or 0) is not int for name in counted):
        raise UpstreamFailed("The upstream sent an event that is no chat.completion.chunk.")


def _finishes(chunk: Chunk) -> bool:
    return any(choice.get("finish_reason") for choice in chunk.get("choices") or ())


def _failure(error: openai.OpenAIError) -> UpstreamFailed:
    """What to tell the client: the upstream's own status, message and retry advice, where it sent any."""
    if isinstance(error, openai.APIStatusError):
        message = message_of(error.body) or error.response.text[:500] or error.message
        headers = headers_told(error.response.headers, (*PASSED_BACK, "x-ratelimit-"))
        # The SDK under us has already tried again where that made sense.
        return UpstreamFailed(
            str(message),
            param=error.param,
            code=error.code,
            headers={"x-should-retry": "false", **headers},
            status=error.status_code,
            type=error.type or "upstream_error",
        )
    if isinstance(error, openai.APITimeoutError):
        return UpstreamFailed("The upstream did not answer in time.", status=504)
    if isinstance(error, openai.APIConnectionError):
        reason = error.__cause__ or error
        return UpstreamFailed(f"The upstream cannot be reached: {reason}", code="upstream_down")
    return UpstreamFailed(str(error))
