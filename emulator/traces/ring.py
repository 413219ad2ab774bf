"""The last requests, oldest first out: bounded by their number, their bytes and their age."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

EACH = 2048
"""Bytes that a request takes besides what was said in it, about."""
PART = 8
"""No request may take more than this part of all bytes: of a larger one only the summary stays."""

Shown = TypeVar("Shown", bound="Listed")
Whole = TypeVar("Whole")


class Listed(Protocol):
    """What a ring asks of a request. A `Row` tells it; so does a `Trace`, whose row is made for who looks."""

    @property
    def id(self) -> str: ...

    @property
    def client(self) -> str: ...

    @property
    def began(self) -> float: ...

    @property
    def seconds(self) -> float | None: ...


@dataclass(frozen=True)
class Entry(Generic[Shown, Whole]):
    row: Shown
    whole: Whole
    size: int = 0


class Ring(Generic[Shown, Whole]):
    """Safe to share between threads."""

    def __init__(
        self, keep: int, keep_bytes: int, keep_seconds: float, now: Callable[[], float]
    ) -> None:
        self._keep = keep
        self._keep_bytes = keep_bytes
        self._keep_seconds = keep_seconds
        self._now = now
        self._kept: OrderedDict[str, Entry[Shown, Whole]] = OrderedDict()
        self._bytes = 0
        self._changed = threading.Condition()
        self.version = 0
        """Rises with each request that begins or ends."""

    def put(self, entry: Entry[Shown, Whole], *, known: bool = False) -> None:
        """Add ``entry``, or put it in the place of what there is of its request; ``known``: only that.

        What has ended is not replaced by what was told of it before.
        """
        with self._changed:
            old = self._kept.get(entry.row.id)
            if (known and old is None) or (
                old is not None and old.row.seconds is not None and entry.row.seconds is None
            ):
                return
            self._kept[entry.row.id] = entry
            self._bytes += entry.size - (old.size if old is not None else 0)
            self._shrink()
            self._tell()

    def all(self, client: str | None = None) -> list[Entry[Shown, Whole]]:
        """The newest first; of one client, or of all with None."""
        with self._changed:
            self._shrink()
            kept = [*reversed(self._kept.values())]
        if client is not None:
            kept = [entry for entry in kept if entry.row.client == client]
        return sorted(kept, key=lambda entry: entry.row.began, reverse=True)

    def get(self, key: str, client: str | None = None) -> Entry[Shown, Whole] | None:
        with self._changed:
            self._shrink()
            entry = self._kept.get(key)
        return entry if entry is not None and client in (None, entry.row.client) else None

    def clear(self, client: str | None = None) -> int:
        """Forget those of ``client``, or all. Returns how many there were."""
        with self._changed:
            gone = [key for key, entry in self._kept.items() if client in (None, entry.row.client)]
            for key in gone:
                self._drop(key)
            self._tell()
        return len(gone)

    def wait(self, version: int, seconds: float) -> int:
        """The version, once it is another than ``version`` or time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self.version != version, seconds)
            return self.version

    @property
    def kept(self) -> tuple[int, int]:
        """How many requests, and about how many bytes."""
        with self._changed:
            return len(self._kept), self._bytes

    def _tell(self) -> None:
        self.version += 1
        self._changed.notify_all()

    def _shrink(self) -> None:
        oldest = self._now() - self._keep_seconds
        while self._kept:
            key, first = next(iter(self._kept.items()))
            fits = len(self._kept) <= self._keep and self._bytes <= self._keep_bytes
            if fits and first.row.began >= oldest:
                return
            self._drop(key)

    def _drop(self, key: str) -> None:
        self._bytes -= self._kept.pop(key).size
