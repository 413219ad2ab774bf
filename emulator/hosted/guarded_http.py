"""Requests to the addresses that a login is led to. A server names them, so they may be hostile:

* only https, or http on this machine;
* the address is checked when a connection opens. After a request to a public address none goes to a private
  one, after one to a private network none to this machine, and never one to link-local or reserved addresses;
* redirects are not followed, and an answer is no larger than `MAX_BYTES`, uncompressed and in time.
"""

from __future__ import annotations

import socket
from enum import IntEnum
from ipaddress import IPv6Address, ip_address

import anyio
import httpx2

from emulator.hosted.address import ServerFailed

MAX_BYTES = 64 * 1024
SECONDS = 30
"""The deadline of one request, with its answer."""
_CONNECT_SECONDS = 5


class Reach(IntEnum):
    """Who can connect to an address."""

    EVERYONE = 0
    NETWORK = 1
    MACHINE = 2


def reach(address: str) -> Reach | None:
    """Who reaches an IP address; None for one that no server of a login has."""
    ip = ip_address(address)
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback:
        return Reach.MACHINE
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip.is_reserved:
        return None
    return Reach.EVERYONE if ip.is_global else Reach.NETWORK


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """``reach`` is that of the most public address so far; no later request goes to a less public one."""

    def __init__(self, reach: Reach) -> None:
        # A connection belongs to one name, and the pool knows only addresses.
        super().__init__(limits=httpx2.Limits(max_keepalive_connections=0))
        self.reach = reach

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `ServerFailed` for what is refused."""
        try:
            with anyio.fail_after(SECONDS):
                return await self._answer(request)
        except TimeoutError:
            raise ServerFailed(f"{request.url.host} did not answer within {SECONDS} s") from None

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        problem: Exception = ServerFailed(f"{request.url.host} has no address")
        for address in await self.addresses(request.url):
            sent = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions=request.extensions
                | {"sni_hostname": request.url.raw_host.decode("ascii")},
            )
            try:
                response = await super().handle_async_request(sent)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                problem = error
                continue
            self.reach = min(self.reach, reach(address) or Reach.EVERYONE)
            try:
                return await _bounded(response, request.url.host)
            finally:
                await response.aclose()
        raise problem

    async def addresses(self, url: httpx2.URL) -> list[str]:
        """The addresses to which a request for ``url`` may go. Raises `ServerFailed` if there are none."""
        try:
            found = await anyio.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except OSError:
            raise ServerFailed(f"the host {url.host} cannot be resolved") from None
        reaches = {str(one[4][0]): reach(str(one[4][0])) for one in found}
        allowed = [one for one, who in reaches.items() if who is not None and who <= self.reach]
        if not allowed:
            raise ServerFailed(f"it leads to {url.host}, which is a private or reserved address")
        if url.scheme != "https" and any(reaches[one] != Reach.MACHINE for one in allowed):
            raise ServerFailed(f"{url.scheme}://{url.host} is no https")
        return allowed


def guarded_client(transport: GuardedTransport) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(SECONDS, connect=_CONNECT_SECONDS),
        transport=transport,
        trust_env=False,
    )


async def _bounded(response: httpx2.Response, host: str) -> httpx2.Response:
    """Read an answer, without the place that it redirects to. Raises `ServerFailed`."""
    headers = httpx2.Headers(response.headers)
    headers.pop("location", None)
    if headers.get("content-encoding", "identity") != "identity":
        raise ServerFailed(f"the answer of {host} is compressed")
    body = b""
    if "text/event-stream" not in headers.get("content-type", ""):  # which has no end
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_BYTES:
                raise ServerFailed(f"the answer of {host} is larger than {MAX_BYTES} bytes")
    return httpx2.Response(response.status_code, headers=headers, content=body)
