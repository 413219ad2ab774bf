"""What a proxy's own metrics say of the requests that it has had."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.support.raw_http import read_page


def count_requests(url: str, status: str = "...") -> Callable[[], int]:
    """Count from now on the requests for an answer (chat, responses, messages) to the proxy at ``url``.

    ``status`` is a pattern: 101 counts WebSockets, each of whose messages counts as a request, too.
    Proxies of one process share their metrics, so earlier ones have counted too.
    """
    before = _total(url, status)
    return lambda: _total(url, status) - before


def _total(url: str, status: str) -> int:
    page = read_page(f"{url}/metrics")
    path = r'path="[^"]*/(?:chat/completions|responses|messages)"'
    labels = rf'{path},status="{status}"'
    counted = re.findall(rf"^emulator_requests_total\{{{labels}\}} (\S+)$", page, re.MULTILINE)
    return int(sum(map(float, counted)))
