"""The most recent requests, limited in number, bytes and age. The oldest are removed first.

`Traces` stores the whole traces of one process, and `remote.TraceStore` the serialized ones of several.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from emulator.traces.listing import MAX_OF_CONTAINER, TracePage, select_page
from emulator.traces.related import RelatedRequests, find_related
from emulator.traces.summary import TraceSummary

BASE_BYTES = 2048
"""About the size of a request without its contents."""
MAX_PART = 8
"""A request that takes more than this part of all bytes is reduced to its summary."""

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    id: str
    client: str
    began: float
    has_ended: bool
    value: T
    size: int = BASE_BYTES


class Ring(ABC, Generic[T]):
    """With None as ``client``, methods concern the requests of all clients. Safe to share between threads."""

    def __init__(
        self, max_entries: int, max_bytes: int, max_seconds: float, now: Callable[[], float]
    ) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._now = now
        self._entries: OrderedDict[str, Entry[T]] = OrderedDict()
        self._bytes = 0
        self._changed = threading.Condition()
        self.version = 0
        """Rises with each change."""

    @abstractmethod
    def summary(self, value: T) -> TraceSummary: ...

    def put(self, entry: Entry[T], *, only_replace: bool = False) -> None:
        """Add ``entry`` or replace the one with its id; ``only_replace``: ignore it if there is none.

        A request that has ended is not replaced by an earlier report of it.
        """
        with self._changed:
            old = self._entries.get(entry.id)
            is_outdated = old is not None and old.has_ended and not entry.has_ended
            if is_outdated or (only_replace and old is None):
                return
            self._entries[entry.id] = entry
            self._bytes += entry.size - (old.size if old is not None else 0)
            self._shrink()
            self._report_change()

    def all(self, client: str | None = None) -> list[T]:
        """The newest first."""
        with self._changed:
            self._shrink()
            entries = [*reversed(self._entries.values())]
        if client is not None:
            entries = [entry for entry in entries if entry.client == client]
        entries.sort(key=lambda entry: entry.began, reverse=True)
        return [entry.value for entry in entries]

    def get(self, key: str, client: str | None = None) -> T | None:
        with self._changed:
            self._shrink()
            entry = self._entries.get(key)
        return entry.value if entry is not None and client in (None, entry.client) else None

    def page(self, parameters: Mapping[str, str], client: str | None) -> TracePage:
        """For ``parameters`` see `select_page`."""
        return select_page(self._summaries_of(client), parameters)

    def related_to(self, own: TraceSummary, first_prompt: Sequence[int]) -> RelatedRequests:
        """For ``first_prompt`` see `find_related`."""
        return find_related(own, first_prompt, self._summaries_of(own.client))

    def in_container(self, container: str, client: str | None) -> list[T]:
        """The requests that ran cells in a container, the newest first."""
        found = [value for value in self.all(client) if self.summary(value).container == container]
        return found[:MAX_OF_CONTAINER]

    def clear(self, client: str | None = None) -> int:
        """Remove them. Returns their number."""
        with self._changed:
            keys = [key for key, entry in self._entries.items() if client in (None, entry.client)]
            for key in keys:
                self._remove(key)
            self._report_change()
        return len(keys)

    def wait(self, version: int, seconds: float) -> int:
        """Wait until the version differs from ``version``, at most ``seconds``. Returns the version."""
        with self._changed:
            self._changed.wait_for(lambda: self.version != version, seconds)
            return self.version

    @property
    def count_and_bytes(self) -> tuple[int, int]:
        """The number of requests, and about their size."""
        with self._changed:
            return len(self._entries), self._bytes

    def _summaries_of(self, client: str | None) -> list[TraceSummary]:
        return [self.summary(value) for value in self.all(client)]

    def _report_change(self) -> None:
        self.version += 1
        self._changed.notify_all()

    def _shrink(self) -> None:
        oldest = self._now() - self._max_seconds
        while self._entries:
            key, first = next(iter(self._entries.items()))
            fits = len(self._entries) <= self._max_entries and self._bytes <= self._max_bytes
            if fits and first.began >= oldest:
                return
            self._remove(key)

    def _remove(self, key: str) -> None:
        self._bytes -= self._entries.pop(key).size
