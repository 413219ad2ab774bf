"""Find where an answer names files that its code wrote (``container_file_citation`` annotations) or that a
search found (``file_citation``), and write the pages that it cites (``url_citation``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from emulator.core.events import CreatedFile, PageCited
from emulator.fronts.responses.items import Json
from emulator.hosted.citations import MAX_PLACES, FoundPages


class Citations:
    """What the messages of one answer may cite."""

    def __init__(self) -> None:
        self._files: dict[str, CreatedFile] = {}
        self._uncited: dict[str, CreatedFile] = {}
        self.pages = FoundPages()
        self._found: dict[str, str] = {}
        """The id of each file that a search found, by its name."""
        self._cited: list[PageCited] = []
        """What the model's server says of the next message that ends."""

    def add_files(self, files: Iterable[CreatedFile]) -> None:
        """A cell has written or changed these files."""
        for file in files:
            self._files[file.file_id] = self._uncited[file.file_id] = file

    def add_found(self, hits: Iterable[Mapping[str, Any]]) -> None:
        """A file search has found passages of these files."""
        self._found |= {
            str(hit["filename"]): str(hit["file_id"]) for hit in hits if hit["filename"]
        }

    def add_cited(self, page: PageCited) -> None:
        self._cited.append(page)

    @property
    def has_uncited_files(self) -> bool:
        return bool(self._uncited)

    def of(self, text: str, *, last: bool) -> list[Json]:
        """The annotations of a message; the ``last`` one cites all files that no message has named, at its
        end."""
        places = _places(text, [*self._files.values()])
        for file, _, _ in places:
            self._uncited.pop(file.file_id, None)
        if last:
            places += [(file, len(text), len(text)) for file in self._uncited.values()]
            self._uncited.clear()
        cited = [_citation(*place) for place in places] + _file_citations(text, self._found)
        pages, self._cited = [*self._cited, *self.pages.cited(text)], []
        return cited + [_cited_page(page, len(text)) for page in pages]


def _places(text: str, files: Sequence[CreatedFile]) -> list[tuple[CreatedFile, int, int]]:
    """Return the places, in order, where ``text`` names one of ``files`` by its path.

    A place is a file with start and end in characters; a client may replace ``text[start:end]``, which
    includes ``sandbox:``, with a link.
    """
    places = [
        (file, *found.span())
        for file in files
        for found in islice(_mentions(file.path, text), MAX_PLACES)
    ]
    return sorted(places, key=lambda place: place[1:])


def _citation(file: CreatedFile, start: int, end: int) -> Json:
    return {
        "type": "container_file_citation",
        "container_id": file.container_id,
        "file_id": file.file_id,
        "filename": PurePosixPath(file.path).name,
        "start_index": start,
        "end_index": end,
    }


def _file_citations(text: str, found: Mapping[str, str]) -> list[Json]:
    """The annotations of the files that ``text`` names, each after its name."""
    return [
        {"type": "file_citation", "file_id": key, "filename": name, "index": mention.end()}
        for name, key in found.items()
        for mention in islice(_mentions(name, text), MAX_PLACES)
    ]


def _cited_page(page: PageCited, length: int) -> Json:
    places = {"start_index": min(page.start, length), "end_index": min(page.end, length)}
    return {"type": "url_citation", "url": page.url, "title": page.title, **places}


def _mentions(path: str, text: str) -> Iterator[re.Match[str]]:
    spellings = "|".join(re.escape(spelling) for spelling in dict.fromkeys((path, quote(path))))
    # A longer path, or the same path with another suffix, is a different file. A full stop may follow.
    return re.finditer(rf"(?<![\w/])(?:sandbox:)?(?:{spellings})(?![\w/-])(?!\.\w)", text)
