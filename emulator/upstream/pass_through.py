"""Requests that are the upstream's own affair (embeddings, speech, pictures): sent on as they are.

Bodies are bytes here, of whatever type. Knows nothing of chats, models or Flask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from urllib.parse import urlsplit

import httpx2
import orjson

from emulator import traces
from emulator.client_disconnect import stop_on_disconnect
from emulator.errors import BadRequest, UpstreamFailed
from emulator.settings import Settings
from emulator.upstream import loops, transport
from emulator.upstream.body import Body
from emulator.upstream.failures import headers_told, message_of

_SENT = ("accept", "content-type")
_TOLD = (
    "cache-control",
    "content-disposition",
    "content-type",
    "openai-",
    "retry-after",
    "x-accel-buffering",
    "x-ratelimit-",
)
_MAX_ERROR_BYTES = 64 * 1024

# What is no plain path below the upstream's base URL: `..` would leave it, with the operator's key.
_PATH = re.compile(r"[\w.~:@+,=-]+(?:/[\w.~:@+,=-]+)*", re.ASCII)
_DOTS = re.compile(r"(?:^|/)\.\.?(?:/|$)")


@dataclass(frozen=True)
class PassedOn:
    """The upstream's answer; `body` is to be read to its end, or closed."""

    status: int
    headers: Mapping[str, str]
    body: Body


class PassThrough:
    """Sends requests on to one upstream. Safe to share between threads."""

    def __init__(
        self,
        settings: Settings,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> None:
        """``headers`` and ``query`` go with each request."""
        self._settings = settings
        self._headers = dict(headers or {})
        self._query = dict(query or {})
        self._url = settings.base_url.rstrip("/")
        parts = urlsplit(self._url)
        self._shown = f"{parts.scheme}://{parts.hostname}" + (
            f":{parts.port}" if parts.port else ""
        )

    @cached_property
    def _client(self) -> httpx2.Client:
        seconds, connect = self._settings.upstream_seconds, self._settings.upstream_connect_seconds
        return transport.client(httpx2.Timeout(seconds, connect=connect))

    def send(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: Mapping[str, str],
        body: bytes,
        key: str | None = None,
    ) -> PassedOn:
        """``path`` is that below the base URL, ``key`` the client's own where that is to be sent.

        Raises `BadRequest`, or an `UpstreamFailed` that says which upstream was asked.
        """
        if not _PATH.fullmatch(path) or _DOTS.search(path):
            raise BadRequest("This path cannot be passed on to the upstream.")
        sent = {name: headers[name] for name in _SENT if name in headers}
        key = key or self._settings.api_key.get_secret_value()
        sent |= {
            "authorization": f"Bearer {key}",
            **self._headers,
            **loops.headers(),
            **traces.propagated(),
        }
        url = httpx2.URL(f"{self._url}/{path}", query=query or None)
        if self._query:
            url = url.copy_merge_params(self._query)
        try:
            request = self._client.build_request(method, url, headers=sent, content=body or None)
            answer = self._client.send(request, stream=True)
            if answer.status_code >= 300:
                raise self._refusal(answer, path)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            message = f"The upstream {self._shown}, asked for /{path}, cannot be reached: {error}"
            raise UpstreamFailed(message, code="upstream_down") from error
        except httpx2.TimeoutException as error:
            raise UpstreamFailed(
                f"The upstream {self._shown}, asked for /{path}, did not answer in time.",
                status=504,
            ) from error
        except httpx2.HTTPError as error:
            message = f"The upstream {self._shown}, asked for /{path}, broke off: {error}"
            raise UpstreamFailed(message) from error
        # Read when this has returned: whose answer it is must be known by then.
        left = ExitStack()
        left.callback(answer.close)
        left.enter_context(stop_on_disconnect(partial(transport.shut_down, answer)))
        chunks = Body(answer.iter_bytes(), left.close)
        return PassedOn(answer.status_code, headers_told(answer.headers, _TOLD), chunks)

    def close(self) -> None:
        if "_client" in self.__dict__:
            self._client.close()

    def _refusal(self, answer: httpx2.Response, path: str) -> UpstreamFailed:
        with closing(answer):
            data = b""
            for piece in answer.iter_bytes():
                data += piece
                if len(data) > _MAX_ERROR_BYTES:
                    break
        body: object = None
        with suppress(orjson.JSONDecodeError):
            body = orjson.loads(data)
        error = body.get("error", body) if isinstance(body, dict) else body
        said = message_of(error) or data[:500].decode(errors="replace").strip() or "nothing"
        fields = error if isinstance(error, dict) else {}
        texts = {name: str(fields[name]) for name in ("param", "code") if fields.get(name)}
        return UpstreamFailed(
            f"The upstream {self._shown}, asked for /{path}, says: {said}",
            headers=headers_told(answer.headers, ("retry-after", "x-should-retry", "x-ratelimit-")),
            # A redirection would lead the operator's key elsewhere.
            status=answer.status_code if answer.status_code >= 400 else 502,
            type=str(fields.get("type") or "upstream_error"),
            param=texts.get("param"),
            code=texts.get("code") or ("upstream_redirects" if answer.status_code < 400 else None),
        )


def may_repeat(method: str, error: UpstreamFailed) -> bool:
    """Whether a request can be sent again: one that changes something only if it surely was not taken.

    Then there was no connection, or the upstream says when it will take it (RFC 9110, 9.2.2 and 10.2.3).
    """
    if method == "GET" or error.code == "upstream_down":
        return True
    advised = not {"retry-after", "retry-after-ms"}.isdisjoint(error.headers)
    return error.status in (429, 503) and advised
