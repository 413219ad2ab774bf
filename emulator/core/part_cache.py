"""Parts of requests that came before: the same JSON from the same client is read once.

A client sends its conversation again with each request. A message that it sent before is the same object, and
what was made of it (`Memos`) stays with it.

* A part is looked up by its own bytes in the table of its client: nothing of one client reaches another.
* The bytes are those of the part after the whole body was parsed, so equal bytes are equal values.
* The tables are bounded by the memory that they hold, memos included, in all and not for each client. The
  least recently used part leaves first, of the client that has asked for nothing the longest.

Knows nothing of messages or items.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from sys import getsizeof
from typing import Any

import orjson
from pydantic import BaseModel

_FEWEST = 16
"""Parts of a conversation that is worth the lookups."""
_ENTRY = 512
"""Bytes of an entry of a table, without its key and its part."""


class Memos:
    """What was made of a value that does not change: the last result of each name, with its key."""

    def __init__(self) -> None:
        self.slots: dict[str, tuple[Any, Any]] = {}
        self.total_bytes = 0
        """Bytes of memory."""

    def store(self, name: str, key: object, result: Any) -> tuple[Any, Any]:
        self.slots[name] = slot = (key, result)
        self.total_bytes = sum(map(held_bytes, [*self.slots.values()]))
        return slot


@dataclass
class _Entry:
    part: Any
    size: int
    """Bytes of memory, without memos."""
    memos: Memos | None
    memo_size: int = 0
    """The size of the memos when the part was last used."""


class PartCache:
    """The tables of all clients. Safe to share between threads."""

    def __init__(self, max_bytes: int = 16 * 2**20) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, OrderedDict[bytes, _Entry]] = OrderedDict()
        self.total_bytes = 0
        """Bytes of memory of all tables."""

    def look_up(self, client: str, kind: str, parts: Sequence[Any]) -> PartLookup:
        """Look up the parts of one conversation, which are JSON values; ``kind`` says how they are read."""
        if len(parts) < _FEWEST:
            return PartLookup(parts)
        prefix = kind.encode()
        keys = [_key(prefix, part) for part in parts]
        found = self._find(client, keys)
        known = [found.get(key, part) for key, part in zip(keys, parts, strict=True)]
        return PartLookup(known, self, client, [key if key not in found else b"" for key in keys])

    def _find(self, client: str, keys: Iterable[bytes]) -> dict[bytes, Any]:
        found: dict[bytes, Any] = {}
        with self._lock:
            table = self._tables.get(client)
            if table is None:
                return found
            self._tables.move_to_end(client)
            for key in keys:
                entry = table.get(key)
                if entry is not None:
                    table.move_to_end(key)
                    found[key] = entry.part
                    if entry.memos is not None and entry.memos.total_bytes != entry.memo_size:
                        self.total_bytes += entry.memos.total_bytes - entry.memo_size
                        entry.memo_size = entry.memos.total_bytes
            self._remove_oldest()
        return found

    def add(self, client: str, new: Iterable[tuple[bytes, Any]]) -> None:
        entries = {
            key: _Entry(
                part, _ENTRY + getsizeof(key) + held_bytes(part), getattr(part, "memos", None)
            )
            for key, part in new
        }
        with self._lock:
            table = self._tables.setdefault(client, OrderedDict())
            self._tables.move_to_end(client)
            for key in entries.keys() - table.keys():
                self.total_bytes += entries[key].size
            table |= {key: table.get(key, entry) for key, entry in entries.items()}
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        while self.total_bytes > self._max_bytes:
            client, table = next((name, one) for name, one in self._tables.items() if one)
            _, entry = table.popitem(last=False)
            self.total_bytes -= entry.size + entry.memo_size
            if not table:
                del self._tables[client]


@dataclass(frozen=True)
class PartLookup:
    """``parts``: what the same client sent before is replaced by what was read from it."""

    parts: Sequence[Any]
    _cache: PartCache | None = None
    _client: str = ""
    _new: Sequence[bytes] = ()
    """For each part its key, if it is new."""

    def store(self, read: Sequence[Any]) -> None:
        """Keep what was ``read`` from the parts, each of which is in its place."""
        if self._cache is not None and any(self._new):
            new = zip(self._new, read, strict=True)
            self._cache.add(self._client, [(key, part) for key, part in new if key])


def _key(kind: bytes, part: Any) -> bytes:
    """b"" for a part that only Python's ``json`` can write, with a number of more than 64 bits."""
    try:
        return kind + orjson.dumps(part)
    except TypeError:
        return b""


def held_bytes(value: Any) -> int:
    """The bytes of memory that a JSON value, or a model of one, holds. Of a model the names do not count."""
    size, rest = 0, [value]
    while rest:
        one = rest.pop()
        size += getsizeof(one)
        kind = type(one)
        if kind is str or kind is bytes:
            continue
        if kind is dict:
            rest += chain(one, one.values())
        elif kind is list or kind is tuple:
            rest += one
        elif isinstance(one, BaseModel):
            names, fields = one.model_fields_set, vars(one)
            size += getsizeof(names) + getsizeof(fields)
            rest += [field for name in names if (field := fields.get(name)) is not None]
            rest.append(one.model_extra)
    return size
