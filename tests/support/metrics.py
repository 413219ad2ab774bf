"""What a proxy's own metrics say of the requests that it has had."""

from __future__ import annotations

import re

from tests.support.raw_http import read_page


def requests_so_far(url: str) -> int:
    """Requests for an answer (chat completions, responses, messages) to the proxy at ``url``."""
    page = read_page(f"{url}/metrics")
    path = r'path="[^"]*/(?:chat/completions|responses|messages)"'
    counted = re.findall(rf"^emulator_requests_total\{{{path},.*\}} (\S+)$", page, re.MULTILINE)
    return int(sum(map(float, counted)))
