"""Send requests to one upstream and read its responses, over connections that are kept alive (urllib3).

Chats, model lists, probes and passed-on requests all use a `Transport`. Where the environment names a proxy
(HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, but not for a host in NO_PROXY) requests go through it. Knows nothing of
what requests and responses mean. All failures are urllib3's `HTTPError`; see `failures`. For the life of a
connection see `connections`.
"""

from __future__ import annotations

import http.client
import queue
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, ProtocolError, ReadTimeoutError
from urllib3.util import parse_url

from emulator.core.addresses import shown_url
from emulator.core.errors import UpstreamFailed
from emulator.upstream.connections import (
    READ_SIZE,
    SecureConnection,
    UpstreamConnection,
)

_MAX_IDLE = 256
_END_SECONDS = 0.05
"""How long `UpstreamResponse.read_end` waits."""


class UpstreamResponse:
    """An open response of any status. Must be closed; a body that was read to its end is closed already."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        """Names match in any case."""
        self._response = response
        self._connection = response.connection
        self._raw = (
            self._connection.reading if isinstance(self._connection, UpstreamConnection) else None
        )
        self._is_encoded = "content-encoding" in response.headers

    def read(self) -> bytes:
        """Return the bytes that have arrived, after waiting for some; b"" at the end. Raises `HTTPError`."""
        raw = self._raw
        if raw is None or self._is_encoded or not raw.chunked or raw.isclosed():
            return self._response.read1(READ_SIZE, decode_content=self._is_encoded)
        # Fast path for streams of events: urllib3's own layers take a fifth of a chat's CPU.
        try:
            data = raw.read1(READ_SIZE)
        except (OSError, http.client.HTTPException) as error:
            self.shut_down()
            self.close()
            if isinstance(error, TimeoutError):
                raise ReadTimeoutError(None, None, "Read timed out.") from error  # type: ignore[arg-type]
            raise ProtocolError(f"Connection broken: {error!r}", error) from error
        if raw.isclosed():
            self._response.release_conn()
        return data

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.read, b"")

    def read_at_most(self, size: int, until: float) -> bytes:
        """Read and close. Stops at ``until`` (monotonic), or when at least ``size`` bytes have arrived.

        Raises `HTTPError`.
        """
        data = b""
        with closing(self):
            while len(data) < size and (remaining := until - time.monotonic()) > 0:
                self._limit_read(remaining)
                try:
                    piece = self.read()
                except ReadTimeoutError:
                    if time.monotonic() < until:
                        raise
                    break
                if not piece:
                    break
                data += piece
        return data

    def read_end(self) -> None:
        """Read what follows the last event, so that the connection can serve the next request.

        Does not wait if the end is late: then only the connection is lost.
        """
        with suppress(HTTPError):
            self._limit_read(_END_SECONDS)
            self.read()

    def limit_read(self, seconds: float) -> None:
        """Set how long each further read may wait."""
        if self._raw is not None and not self._raw.isclosed():
            self._raw.socket.settimeout(seconds)

    def _limit_read(self, seconds: float) -> None:
        # A raw response that is closed no longer owns the connection.
        if self._raw is not None and not self._raw.isclosed():
            limit = self._raw.socket.gettimeout()
            self._raw.socket.settimeout(seconds if limit is None else min(seconds, limit))

    def shut_down(self) -> None:
        """End the connection, from any thread: a waiting `read` returns or raises immediately."""
        if isinstance(self._connection, UpstreamConnection):
            self._connection.shut_down(self._raw)

    def close(self) -> None:
        self._response.close()


class Transport:
    """Sends requests to the server of ``base_url``. Safe to share between threads."""

    def __init__(self, base_url: str, connect_seconds: float, read_seconds: float) -> None:
        """``read_seconds`` limits each read. A name and password in ``base_url`` go with each request."""
        self._timeout = urllib3.Timeout(connect=connect_seconds, read=read_seconds)
        self._manager = _manager(base_url)
        self._authorization = urllib3.make_headers(basic_auth=_name_and_password(base_url))

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        read_seconds: float | None = None,
    ) -> UpstreamResponse:
        """Return the response once its head has arrived. Redirections are not followed.

        ``url`` must not contain a password. Raises `HTTPError`.
        """
        timeout = self._timeout
        if read_seconds is not None:
            timeout = urllib3.Timeout(connect=timeout.connect_timeout, read=read_seconds)
        sent = {**headers, **self._authorization}
        if self._manager.proxy is not None:
            # ProxyManager adds these under its own spelling, next to any other.
            for name in {"accept", "host"} & sent.keys():
                sent[name.title()] = sent.pop(name)
        response = self._manager.urlopen(
            method,
            url,
            redirect=False,
            body=body or None,
            headers=sent,
            retries=False,
            timeout=timeout,
            preload_content=False,
        )
        return UpstreamResponse(response)

    def close(self) -> None:
        """Close the idle connections."""
        pools = self._manager.pools
        for key in pools.keys():  # noqa: SIM118 - it cannot be iterated itself
            if (pool := pools.get(key)) is not None:
                pool.close()
        self._manager.clear()


class _IdleConnections(queue.LifoQueue[Any]):
    """The queue of a pool. It fills itself with None at first."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if isinstance(item, UpstreamConnection):
            item.set_idle()
        super().put(item, block, timeout)


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = UpstreamConnection
    QueueCls = _IdleConnections


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = SecureConnection
    QueueCls = _IdleConnections


def _manager(base_url: str) -> urllib3.PoolManager:
    """Pools of connections, through the proxy if the environment names one for this host."""
    options: dict[str, Any] = {"maxsize": _MAX_IDLE}
    proxy = _proxy_url(base_url)
    if base_url.startswith("https:") or proxy.startswith("https:"):
        import httpx2

        try:
            options["ssl_context"] = httpx2.create_ssl_context()
        except OSError as error:
            raise UpstreamFailed(
                f"The certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read: {error}."
            ) from error
    if not proxy:
        manager = urllib3.PoolManager(**options)
    elif _is_http(proxy):
        manager = urllib3.ProxyManager(
            proxy,
            proxy_headers=urllib3.make_headers(proxy_basic_auth=_name_and_password(proxy)),
            proxy_ssl_context=options.get("ssl_context"),
            **options,
        )
    else:
        raise UpstreamFailed(
            f"The proxy {shown_url(proxy)} that the environment names for "
            f"{shown_url(base_url)} is not supported: its URL must begin with http:// or https://."
        )
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
    return manager


def _is_http(url: str) -> bool:
    try:
        return parse_url(url).scheme in ("http", "https")
    except LocationParseError:
        return False


def _proxy_url(base_url: str) -> str:
    """The URL of the proxy for the host of ``base_url``; "" if there is none."""
    parts = urlsplit(base_url)
    if any(map(proxy_bypass, (parts.netloc.rpartition("@")[2], parts.hostname or ""))):
        return ""
    proxies = getproxies()
    url = proxies.get(parts.scheme) or proxies.get("all") or ""
    return url if not url or "://" in url else f"http://{url}"


def _name_and_password(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.username is None:
        return None
    return f"{unquote(parts.username)}:{unquote(parts.password or '')}"
