"""The results of a web search: what the model and a program get, and the sources that an answer cites."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from emulator.core.addresses import split_url

MAX_URL = 2048
_MAX_TEXT = 1_000
"""Characters of a title, or of the snippet of one page."""
_URL = re.compile(r"https?://[^\s\"'<>)\]}\\]+")


@dataclass(frozen=True)
class FoundPage:
    url: str
    title: str
    snippet: str


def found_page(url: Any, title: Any, snippet: Any) -> FoundPage | None:
    """A page as a provider reports it; None if its address is not of the web."""
    if (
        not isinstance(url, str)
        or len(url) > MAX_URL
        or split_url(url).scheme not in ("http", "https")
    ):
        return None
    texts = [value[:_MAX_TEXT] if isinstance(value, str) else "" for value in (title, snippet)]
    return FoundPage(url, *texts)


def result_text(pages: Sequence[FoundPage]) -> str:
    """The result of a search, as JSON."""
    return json.dumps([asdict(page) for page in pages], ensure_ascii=False)


def read_pages(content: str | Sequence[Mapping[str, Any]]) -> list[FoundPage]:
    """The pages of a result. In another tool's text they are its addresses, without titles."""
    text = content if isinstance(content, str) else ""
    if not isinstance(content, str):
        text = "\n".join(str(part.get("text") or "") for part in content)
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        rows = None
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        pages = [found_page(r.get("url"), r.get("title"), r.get("snippet")) for r in rows]
    else:
        pages = [found_page(url, "", "") for url in dict.fromkeys(_URL.findall(text))]
    return [page for page in pages if page is not None]


def names_url(text: str, url: str) -> bool:
    """Return True if ``text`` has the URL, perhaps without its scheme or its last slash."""
    written = url.partition("://")[2].rstrip("/").lower()
    return written in text.replace("\\/", "/").lower()


def is_in_domains(url: str, domains: Sequence[str]) -> bool:
    """Return True if the page's host is one of ``domains`` or a subdomain."""
    host = (split_url(url).hostname or "").lower()
    return any(host == one or host.endswith(f".{one}") for one in map(_domain, domains))


def _domain(text: str) -> str:
    return (split_url(text if "//" in text else f"//{text}").hostname or "").lower()
