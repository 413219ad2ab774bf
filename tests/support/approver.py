"""A person who approves hosted calls in the inspector."""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tests.support.processes import wait_until
from tests.support.raw_http import fetch, send

PAGE = "/inspector/containers"
CALLS = re.compile(r'data-json="(/inspector/calls/[^/"]*)/approve"')
"""The addresses of the calls on the page, without the verb."""


class Approver:
    """A person at the inspector of the proxy at ``url``, and the requests of a client."""

    def __init__(self, url: str, **headers: str) -> None:
        self.url = url
        self._headers = headers
        self._pool = ThreadPoolExecutor(4)

    def ask(self, path: str, body: Any) -> Future[tuple[int, dict[str, str], bytes]]:
        """Status, headers and body of a request whose call may wait."""
        return self._pool.submit(fetch, f"{self.url}{path}", body, self._headers)

    def page(self) -> str:
        status, _, raw = fetch(f"{self.url}{PAGE}", headers=self._headers)
        assert status == 200
        return raw.decode()

    def waiting(self) -> list[str]:
        """The addresses of the calls that the inspector shows, without the verb."""
        return CALLS.findall(self.page())

    def decide(self, verb: str, **form: str) -> None:
        wait_until(self.waiting)
        assert self.post(f"{self.waiting()[0]}/{verb}", **form) == 200

    def post(self, path: str, **form: str) -> int:
        return send(f"{self.url}{path}", form, self._headers)[0]
