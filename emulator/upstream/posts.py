"""Requests for chats, as bytes, and the bytes of their answers: the path of all that is streamed.

urllib3 sends them; where a proxy stands between (the variable HTTPS_PROXY and the like), httpx2 does, which
knows how to ask one. Errors are those of httpx2 either way. Knows nothing of what is said.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import httpx2
import urllib3
from urllib3.exceptions import HTTPError

from emulator.upstream import transport
from emulator.upstream.answers import Answer, StraightAnswer, as_httpx
from emulator.upstream.connections import new_pool


class Posts(ABC):
    """To one URL. Safe to share between threads."""

    @abstractmethod
    def send(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """An answer of whatever status. Raises httpx2's `HTTPError`."""

    @abstractmethod
    def close(self) -> None: ...


def posts(url: httpx2.URL, timeout: httpx2.Timeout) -> Posts:
    return _Through(url, timeout) if transport.proxied() else _Straight(url, timeout)


class _Straight(Posts):
    def __init__(self, url: httpx2.URL, timeout: httpx2.Timeout) -> None:
        self._pool = new_pool(url.scheme, url.host, url.port)
        self._target = url.raw_path.decode("ascii")
        named = f"{url.username}:{url.password}" if url.userinfo else None
        self._own = {"host": url.netloc.decode("ascii"), **urllib3.make_headers(basic_auth=named)}
        """These go before what is given: a name and password in the URL are meant for this server."""
        self._timeout = urllib3.Timeout(connect=timeout.connect, read=timeout.read)

    def send(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """As the base class."""
        try:
            answer = self._pool.urlopen(
                "POST",
                self._target,
                body,
                {**headers, **self._own},
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=self._timeout,
                preload_content=False,
            )
        except HTTPError as error:
            raise as_httpx(error) from error
        return StraightAnswer(answer)

    def close(self) -> None:
        self._pool.close()


class _Through(Posts):
    def __init__(self, url: httpx2.URL, timeout: httpx2.Timeout) -> None:
        self._url = url
        self._client = transport.client(timeout)

    def send(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """As the base class."""
        request = self._client.build_request("POST", self._url, headers=headers, content=body)
        return _AnswerThrough(self._client.send(request, stream=True))

    def close(self) -> None:
        self._client.close()


class _AnswerThrough(Answer):
    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self._response = response
        self._pieces = response.iter_bytes()

    def more(self) -> bytes:
        return next(filter(None, self._pieces), b"")

    def finish(self) -> None:
        """httpx2 does not tell what is left to read, so nothing is: this costs the connection."""

    def shut_down(self) -> None:
        transport.shut_down(self._response)

    def close(self) -> None:
        self._response.close()
