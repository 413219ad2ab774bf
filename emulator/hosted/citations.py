"""Where an answer names pages that its searches found. Each front writes the places in its own form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from emulator.core.events import HostedCallFinished, HostedCallStarted, PageCited
from emulator.hosted.search_results import FoundPage, read_pages

MAX_PLACES = 16
"""Of one page or file: a reply may repeat a name endlessly."""


class FoundPages:
    """The pages that the searches of one answer found."""

    def __init__(self) -> None:
        self._searches: set[str] = set()
        """The ids of the searches that run."""
        self._pages: dict[str, FoundPage] = {}

    def note(self, event: HostedCallStarted | HostedCallFinished) -> None:
        if isinstance(event, HostedCallStarted):
            self._searches |= {event.id} if event.kind == "web_search" else set()
        elif event.id in self._searches and not event.is_error:
            self._pages |= {page.url: page for page in read_pages(event.content)}

    def cited(self, text: str) -> Iterator[PageCited]:
        """The places in ``text`` that name a page by its URL; a Markdown link counts as a whole."""
        for url, page in self._pages.items():
            for found in islice(_links(url, text), MAX_PLACES):
                yield PageCited(url, page.title or url, page.snippet, *found.span())


def _links(url: str, text: str) -> Iterator[re.Match[str]]:
    address = re.escape(url)
    return re.finditer(rf"\[[^\[\]\n]{{0,300}}\]\({address}\)|{address}(?![\w/?&=#%-])", text)
