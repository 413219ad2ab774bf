"""One upstream. Always streams; yields chunks as plain dicts.

What is asked again and again is made once: the official SDK says with which headers, and what a refusal
means, and makes the plain calls; a chat's bytes go past it (`posts`), and each event is decoded once. Only
this module imports the SDK. Knows nothing of tools.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Self, cast

import httpx2
import openai

from emulator import json_codec, traces
from emulator.client_disconnect import stop_on_disconnect
from emulator.errors import UpstreamFailed
from emulator.settings import Settings
from emulator.upstream import loops, transport
from emulator.upstream.answers import Answer
from emulator.upstream.chunk import read_chunk
from emulator.upstream.failures import headers_told, message_of, shown
from emulator.upstream.interface import Chat, Chunk
from emulator.upstream.posts import posts
from emulator.upstream.reply import Reply
from emulator.upstream.sse import EventTooLarge, SSEDecoder

_SHORTEST_KEY = 8
_UNREACHED = (502, 504)
_NO_SUCH_PATH = (404, 405)
_MOST_ERROR = 64 * 1024
"""Bytes of a refusal that are read."""
_UNSENT = {
    f"X-Stainless-{name}": openai.Omit()
    for name in ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")
}
_UNSENT_EACH = {f"X-Stainless-{name}": openai.Omit() for name in ("Retry-Count", "Read-Timeout")}
"""What the SDK tells of the machine that it runs on: an upstream has no use for it."""
_Tell = Callable[[UpstreamFailed], UpstreamFailed]
PASSED_BACK = ("retry-after", "retry-after-ms", "x-should-retry")


class OpenAIUpstream:
    """One upstream behind the official client; each request is sent once. Safe to share between threads."""

    def __init__(
        self,
        settings: Settings,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> None:
        """``headers`` and ``query`` go with each request."""
        timeout = openai.Timeout(
            settings.upstream_seconds, connect=settings.upstream_connect_seconds
        )
        self._client = _SDK(
            api_key=settings.api_key.get_secret_value(),
            base_url=settings.base_url,
            default_headers=cast("Mapping[str, str]", {**_UNSENT, **(headers or {})}),
            default_query=query,
            max_retries=0,  # `Guarded` tries again
            timeout=timeout,
            http_client=transport.client(timeout),
        )
        base = self._client.base_url
        url = base.copy_with(raw_path=base.raw_path + b"chat/completions")
        self._posts = posts(url.copy_merge_params(query) if query else url, timeout)
        self._headers = self._client.own_headers()
        self._connect_seconds = settings.upstream_connect_seconds
        self._url = shown(settings.base_url)
        self._key = settings.api_key.get_secret_value()

    def open(
        self,
        messages: Chat,
        fields: Mapping[str, Any],
        until: float = math.inf,
        key: str | None = None,
    ) -> Reply:
        """As `OneUpstream.open`."""
        _check(until)
        body = json_codec.dumps({**fields, "messages": messages, "stream": True})
        told = partial(_told, key or self._key, f"{self._url}/chat/completions")
        try:
            answer = self._posts.send({**self._headers, **_sent(key)}, body)
            if not 200 <= answer.status < 300:
                raise told(_failure(self._client.refusal(answer, until)))
        except httpx2.HTTPError as error:
            raise told(_failure(error)) from error
        return _RawReply(answer, until, told)

    def models(self, key: str | None = None) -> list[dict[str, Any]]:
        """As `OneUpstream.models`."""
        told = partial(_told, key or self._key, f"{self._url}/models")
        try:
            listed = json_codec.loads(
                self._client.models.with_raw_response.list(
                    extra_headers={**_UNSENT_EACH, **_sent(key)}, timeout=self._connect_seconds
                ).content
            )
        except openai.OpenAIError as error:
            raise told(_failure(error)) from error
        except json_codec.NotJSON as error:
            raise told(UpstreamFailed("The upstream's model list is not valid JSON.")) from error
        data = listed.get("data") if isinstance(listed, dict) else None
        return [model for model in data or () if isinstance(model, dict)]

    def at_root(self, path: str) -> object:
        """As `OneUpstream.at_root`."""
        url = httpx2.URL(self._url).copy_with(path=path, query=None)
        try:
            answer = self._client.get(
                str(url), cast_to=httpx2.Response, options={"timeout": self._connect_seconds}
            )
            return json_codec.loads(answer.content)
        except (openai.OpenAIError, json_codec.NotJSON):
            return None

    def close(self) -> None:
        self._client.close()
        self._posts.close()


class _SDK(openai.OpenAI):
    """The official client, asked for what it would send and for what it would raise."""

    def own_headers(self) -> dict[str, str]:
        """Those of each request."""
        headers = {**self.auth_headers, **self.default_headers}
        return {name.lower(): value for name, value in headers.items() if isinstance(value, str)}

    def refusal(self, answer: Answer, until: float) -> openai.APIStatusError:
        """What ``answer`` means, of which not all need be read. Raises httpx2's `HTTPError`."""
        said = b""
        with closing(answer):
            while len(said) < _MOST_ERROR and time.monotonic() < until and (data := answer.more()):
                said += data
        request = httpx2.Request("POST", self.base_url)
        headers = {
            name: value
            for name, value in answer.headers.items()
            if not name.lower().startswith(("content-", "transfer-"))
        }
        response = httpx2.Response(answer.status, headers=headers, content=said, request=request)
        return self._make_status_error_from_response(response)


class _RawReply(Reply):
    def __init__(self, answer: Answer, until: float, told: _Tell) -> None:
        super().__init__()
        self.headers = headers_told(answer.headers, ("x-ratelimit-",))
        self._told = told
        self._answer = answer
        self._until = until
        self._stopping = stop_on_disconnect(answer.shut_down)

    def __enter__(self) -> Self:
        self._stopping.__enter__()
        return self

    def close(self) -> None:
        """As the base class."""
        self._stopping.__exit__(None, None, None)
        self._answer.close()

    def __iter__(self) -> Iterator[Chunk]:
        """The chunks. Raises `UpstreamFailed` on a broken, malformed or unfinished answer."""
        read, feed, heard = self._answer.more, SSEDecoder().feed, self.heard
        record = traces.wire()
        try:
            while data := read():
                _check(self._until)  # also while nothing but comments comes
                events = feed(data)
                if record is not None and events:
                    record(events)
                # Nothing follows at once where only the end does, which may be waited for.
                last = len(events) - 1 - (events[-1:] == [b"[DONE]"])
                for place, event in enumerate(events):
                    if event == b"[DONE]":
                        self._stopping.__exit__(None, None, None)
                        self._answer.finish()
                        return
                    try:
                        chunk = read_chunk(event, heard)
                    except UpstreamFailed as error:
                        raise self._told(error) from error
                    if heard.says and self._begun is not None:
                        self._tell_begun()
                    self.more = place < last
                    yield chunk
        except httpx2.TimeoutException as error:
            raise self._told(UpstreamFailed("The upstream fell silent.", status=504)) from error
        except (httpx2.HTTPError, EventTooLarge) as error:
            broken = UpstreamFailed(f"The upstream broke off its answer: {error}")
            raise self._told(broken) from error
        if not heard.finishes:
            raise self._told(
                UpstreamFailed("The upstream ended its answer without a finish_reason.")
            )


def _sent(key: str | None) -> dict[str, str]:
    bearer = {} if key is None else {"authorization": f"Bearer {key}"}
    return {**bearer, **loops.headers(), **traces.propagated()}


def _check(until: float) -> None:
    if time.monotonic() > until:
        raise UpstreamFailed(
            "The upstream took longer than an answer may (setting answer_seconds).",
            code="answer_timeout",
            headers={"x-should-retry": "false"},
            status=504,
        )


def _told(key: str, url: str, error: UpstreamFailed) -> UpstreamFailed:
    """The error as clients get it: with the URL that failed, without the key, which some upstreams quote."""
    message = error.message
    if len(key) >= _SHORTEST_KEY:  # else it is a word like any other
        message = message.replace(key, "[the upstream's key]")
    # A 404 with a code is of a model that there is not; one without may be of a URL that lacks its /v1.
    wrong_url = error.status in _NO_SUCH_PATH and not error.code
    if (error.status in _UNREACHED or wrong_url) and url not in message:
        message = f"{message} ({url})"
    return replace(error, message=message)


def _failure(error: openai.OpenAIError | httpx2.HTTPError) -> UpstreamFailed:
    """What to tell the client: the upstream's own status, message and retry advice, where it sent any."""
    if isinstance(error, openai.APIStatusError):
        message = message_of(error.body) or error.response.text[:500] or error.message
        headers = headers_told(error.response.headers, (*PASSED_BACK, "x-ratelimit-"))
        return UpstreamFailed(
            str(message),
            param=error.param,
            code=error.code,
            headers=headers,
            status=error.status_code,
            type=error.type or "upstream_error",
        )
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return UpstreamFailed("The upstream did not answer in time.", status=504)
    if isinstance(error, openai.APIConnectionError | httpx2.HTTPError):
        reason = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
        return UpstreamFailed(f"The upstream cannot be reached: {reason}", code="upstream_down")
    return UpstreamFailed(str(error))
