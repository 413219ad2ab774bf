"""One upstream: builds its requests and reads its responses. Chats are always streamed.

A chat's bytes are read raw and each event is decoded once, into a plain dict: a `Chunk` is the JSON of the
chat completion chunk of the ``openai`` SDK, whose version the User-Agent header names. Knows nothing of
tools.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import chain
from typing import Any, Self
from urllib.parse import urlencode, urljoin, urlsplit

from pydantic import SecretStr
from urllib3.exceptions import HTTPError

from emulator import traces
from emulator.core import addresses, json_codec, metrics
from emulator.core.client_disconnect import stop_on_disconnect
from emulator.core.errors import UpstreamFailed
from emulator.settings.redaction import redactor
from emulator.settings.settings import Settings
from emulator.upstream import loops
from emulator.upstream.chunk import ChunkReader
from emulator.upstream.failures import (
    broken_response,
    connection_failure,
    quote,
    refusal,
    select_headers,
    silence,
)
from emulator.upstream.interface import (
    Chunk,
    Messages,
    ModelRow,
    PassedOnResponse,
    UpstreamBody,
    UpstreamReply,
)
from emulator.upstream.joining import Joiner
from emulator.upstream.pass_through import RETURNED_HEADERS, SENT_HEADERS, PassedOnRequest
from emulator.upstream.sse import EventTooLarge, ReplyDecoder
from emulator.upstream.transport import Transport, UpstreamResponse

_CONNECT_SECONDS = 10.0
_MAX_REFUSAL = 64 * 1024
"""Bytes of a refusal's body that are read; the rest is ignored."""
_MAX_LISTING = 16 * 2**20
"""The largest model list, in bytes."""
_SHORTEST_READ = 0.001


class OpenAIUpstream:
    """See `interface.Upstream`. Each request is sent once; `GuardedUpstream` tries again."""

    def __init__(
        self,
        settings: Settings,
        headers: Mapping[str, SecretStr] | None = None,
        query: Mapping[str, SecretStr] | None = None,
    ) -> None:
        """``headers`` and ``query`` are added to each request."""
        self._secrets = (settings.api_key, settings.base_url, headers or {}, query or {})
        self._key = settings.api_key.get_secret_value()
        self._headers = {
            "accept": "application/json",
            "content-type": "application/json",
            "user-agent": f"OpenAI/Python {version('openai')}",
            "authorization": f"Bearer {self._key}",
        }
        self._operator_headers = {
            name.lower(): value.get_secret_value() for name, value in (headers or {}).items()
        }
        self._query = {name: value.get_secret_value() for name, value in (query or {}).items()}
        self._query_string = f"?{urlencode(self._query)}" if query else ""
        self._url = addresses.without_userinfo(settings.base_url).rstrip("/")
        parts = urlsplit(self._url)
        self._server = f"{parts.scheme}://{parts.netloc}"
        self._connect_seconds = _CONNECT_SECONDS
        self._read_seconds = settings.upstream_seconds
        self._transport = Transport(settings.base_url, _CONNECT_SECONDS, settings.upstream_seconds)

    def open(
        self,
        messages: Messages,
        fields: Mapping[str, Any],
        until: float = math.inf,
        key: str | None = None,
        first_token_until: float = math.inf,
    ) -> UpstreamReply:
        """See `Upstream.open`."""
        _check_deadline(until)
        body = json_codec.dumps({**fields, "messages": messages, "stream": True})
        traces.record_sent(body)
        url = f"{self._url}/chat/completions"
        endpoint = self._endpoint(url, key)
        headers = self._headers | self._operator_headers | _request_headers(key)
        url = f"{url}{self._query_string}"
        first = min(until, first_token_until)
        seconds = min(self._read_seconds, max(_SHORTEST_READ, first - time.monotonic()))
        response = self._send(endpoint, until, "POST", url, headers, body, seconds)
        waits = first_token_until - time.monotonic()
        response.limit_read(min(self._read_seconds, max(_SHORTEST_READ, waits)))
        reply = _ChatReply(response, until, endpoint, fields.get("n") or 1, self._read_seconds)
        reply.first_token_until = first_token_until
        reply.after_first_output = partial(response.limit_read, self._read_seconds)
        return reply

    def pass_on(
        self, request: PassedOnRequest, until: float = math.inf, key: str | None = None
    ) -> PassedOnResponse:
        """See `Upstream.pass_on`."""
        url = request.url(self._url, self._query)
        upstream = f"The upstream {self._server}, asked for /{request.path},"
        selected = {name: request.headers[name] for name in SENT_HEADERS if name in request.headers}
        headers = {**self._headers, "accept": "*/*", **selected}
        if "content-type" not in selected:
            del headers["content-type"]
        headers |= {**self._operator_headers, **_request_headers(key)}
        endpoint = self._endpoint(self._server, key, upstream, f"{upstream} says: ")
        response = self._send(endpoint, until, request.method, url, headers, request.body)
        body = UpstreamBody(response, upstream)
        return PassedOnResponse(
            response.status, select_headers(response.headers, RETURNED_HEADERS), body
        )

    def models(self, key: str | None = None) -> list[ModelRow]:
        """See `Upstream.models`."""
        endpoint = self._endpoint(f"{self._url}/models", key)
        listing = self._get_json(endpoint, f"{endpoint.url}{self._query_string}", key)
        rows = listing.get("data") if isinstance(listing, dict) else None
        rows = rows if isinstance(rows, list) else []
        models = [_model(row) for row in rows if isinstance(row, dict) and row.get("id")]
        metrics.add_models(model["id"][:100] for model in models)
        return models

    def at_root(self, path: str) -> object:
        """See `Upstream.at_root`."""
        url = urljoin(self._url, path)
        with suppress(UpstreamFailed):
            return self._get_json(self._endpoint(url), url, None)
        return None

    def close(self) -> None:
        self._transport.close()

    def _endpoint(self, url: str, key: str | None = None, *words: str) -> _Endpoint:
        return _Endpoint(url, key or self._key, self._secrets, *words)

    def _get_json(self, endpoint: _Endpoint, url: str, key: str | None) -> Any:
        headers = self._headers | self._operator_headers | _request_headers(key)
        seconds = self._connect_seconds
        response = self._send(endpoint, math.inf, "GET", url, headers, read_seconds=seconds)
        try:
            return json_codec.loads(response.read_at_most(_MAX_LISTING, math.inf))
        except HTTPError as error:
            raise endpoint.annotate(broken_response(error)) from error
        except json_codec.NotJSON as error:
            invalid = UpstreamFailed("The upstream's model list is not valid JSON.")
            raise endpoint.annotate(invalid) from error

    def _send(
        self,
        endpoint: _Endpoint,
        until: float,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        read_seconds: float | None = None,
    ) -> UpstreamResponse:
        """Return the response if its status is 2xx. Raises `UpstreamFailed`."""
        try:
            response = self._transport.send(method, url, headers, body, read_seconds)
        except HTTPError as error:
            raise endpoint.annotate(connection_failure(error, endpoint.upstream)) from error
        if 200 <= response.status < 300:
            return response
        data = b""
        with suppress(HTTPError):  # the status says enough
            data = response.read_at_most(_MAX_REFUSAL, until)
        raise endpoint.annotate(
            refusal(response.status, response.headers, data, endpoint.message_prefix)
        )


class _ChatReply(UpstreamReply):
    def __init__(
        self,
        response: UpstreamResponse,
        until: float,
        endpoint: _Endpoint,
        choices: int,
        silent_seconds: float,
    ) -> None:
        super().__init__()
        self._choices = choices
        self._silent_seconds = silent_seconds
        self.first_token_until = math.inf
        self.after_first_output: Callable[[], None] = lambda: None
        self.headers = select_headers(response.headers, ("x-ratelimit-",))
        self._endpoint = endpoint
        self._response = response
        self._until = until
        self._stopping = stop_on_disconnect(response.shut_down)

    def __enter__(self) -> Self:
        self._stopping.__enter__()
        return self

    def close(self) -> None:
        """See the base class."""
        self._stopping.__exit__(None, None, None)
        self._response.close()

    def __iter__(self) -> Iterator[Chunk]:
        """Yield the chunks. Raises `UpstreamFailed` if the answer is broken, malformed or unfinished."""
        decoder, received, record = ReplyDecoder(), self.received, traces.event_recorder()
        reader, has_output = ChunkReader(received, self._choices), False
        joiner = Joiner()
        try:
            for read in self._events(decoder):
                if record is not None and read:
                    record(read)
                events = joiner.join(read)
                # [DONE] may be late, so the chunk before it does not wait for it.
                last = len(events) - 1 - (events[-1:] == [b"[DONE]"])
                for index, event in enumerate(events):
                    if event.strip() == b"[DONE]":
                        self._stopping.__exit__(None, None, None)
                        self._response.read_end()
                        return
                    if not event:
                        continue
                    try:
                        chunk = reader.read(event)
                    except UpstreamFailed as error:
                        raise self._endpoint.annotate(error) from error
                    if received.has_output and not has_output:
                        has_output, self.first_token_until = True, math.inf
                        self.after_first_output()
                        self.on_first_output()
                    self.more_arrived = index < last
                    yield chunk
        except (HTTPError, EventTooLarge) as error:
            raise self._endpoint.annotate(broken_response(error)) from error
        if not received.has_finish:
            end = "without a finish_reason"
            if not decoder.has_events:
                end += f" and sent no events, but: {quote(decoder.beginning)}"
            raise self._endpoint.annotate(UpstreamFailed(f"The upstream ended its answer {end}."))

    def _events(self, decoder: ReplyDecoder) -> Iterator[list[bytes]]:
        """The events of each read, and at the end. Comments and events without output are silence.

        Raises `UpstreamFailed` if the events take too long.
        """
        received, silent_since = self.received, time.monotonic()
        for data in chain(self._response, [b""]):
            _check_deadline(self._until)
            now = time.monotonic()
            if now > self.first_token_until:
                problem = "The upstream was silent for first_token_seconds."
                raise self._endpoint.annotate(UpstreamFailed(problem, status=504))
            before = (received.characters, received.has_finish, received.usage)
            yield decoder.feed(data) if data else decoder.close()
            if before != (received.characters, received.has_finish, received.usage):
                silent_since = now
            elif now - silent_since > self._silent_seconds:
                raise self._endpoint.annotate(silence())


_MODELS = "GET /v1/models lists the models"


@dataclass(frozen=True)
class _Endpoint:
    """The URL, key and further secrets of a request that was sent."""

    url: str
    key: str
    secrets: tuple[object, ...]
    upstream: str = "The upstream"
    """Begins the message if the upstream cannot be reached."""
    message_prefix: str = ""
    """Precedes the message of a refusal."""

    def annotate(self, error: UpstreamFailed) -> UpstreamFailed:
        """Return the error as clients see it: without secrets, which some upstreams quote; with the URL, if
        that, its key or the server is at fault."""
        hide = redactor(*self.secrets, SecretStr(self.key))
        error = replace(error, message=hide(error.message))
        # A 404 with a code means an unknown model; without a code the URL may lack its /v1.
        no_path = error.status in (404, 405) and not error.code
        # The proxy has keys of its own clients, too.
        at_fault = error.status >= 500 or error.status in (401, 403) or no_path
        notes = [self.url] if at_fault and self.url not in error.message else []
        if error.status == 404:
            hint = addresses.missing_path(self.url) if notes else ""
            names_model = self.url.endswith("/chat/completions") and _MODELS not in error.message
            notes += [hint or _MODELS] if hint or names_model else []
        noted = "; ".join(notes)
        return replace(error, message=f"{error.message} ({noted})") if noted else error


def _model(row: dict[str, Any]) -> ModelRow:
    owner, created = row.get("owned_by"), row.get("created")
    return {
        **row,
        "id": str(row["id"]),
        "owned_by": owner if isinstance(owner, str) else None,
        "created": created if type(created) is int else 0,  # OpenAI's schema requires it
    }


def _request_headers(key: str | None) -> dict[str, str]:
    """Return the headers that differ between requests."""
    bearer = {} if key is None else {"authorization": f"Bearer {key}"}
    return {**bearer, **loops.headers(), **traces.propagated_headers()}


def _check_deadline(until: float) -> None:
    if time.monotonic() > until:
        raise UpstreamFailed(
            "The upstream took longer than an answer may take (setting answer_seconds).",
            code="answer_timeout",
            headers={"x-should-retry": "false"},
            status=504,
        )
