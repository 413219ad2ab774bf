"""The results of a web search: what the model and a program get, and the sources that an answer cites."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from posixpath import normpath
from typing import Any
from urllib.parse import SplitResult, unquote

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


@dataclass(frozen=True)
class Domain:
    """A domain with its subdomains, or the pages below a path of it."""

    host: str
    path: re.Pattern[str]

    @classmethod
    def parsed(cls, text: str) -> Domain:
        """A domain, and perhaps a path with one wildcard: the rules of Anthropic's web search and web fetch.

        Raises ValueError.
        """
        parts = split_url(text if "//" in text else f"//{text}")
        if "*" in parts.netloc:
            raise ValueError("a wildcard is only for the path; subdomains are included")
        if parts.path.count("*") > 1:
            raise ValueError("only one wildcard is allowed")
        if parts.query or parts.fragment:
            raise ValueError("is a domain, and perhaps a path")
        path = ".*".join(map(re.escape, unquote(parts.path).rstrip("/").split("*")))
        return cls(_host(parts), re.compile(f"{path}(?:/.*)?", re.DOTALL))

    def has(self, url: str) -> bool:
        parts = split_url(url)
        host = _host(parts)
        is_inside = host == self.host or host.endswith(f".{self.host}")
        return is_inside and self.path.fullmatch(_path(parts)) is not None


def _host(parts: SplitResult) -> str:
    return (parts.hostname or "").lower().rstrip(".")


def _path(parts: SplitResult) -> str:
    """The path as a server reads it: a URL may have ``/blog/../secret``."""
    path = unquote(parts.path).replace("\\", "/")
    normal = normpath(f"/{path.lstrip('/')}")
    return f"{normal}/" if path.endswith("/") and normal != "/" else normal
