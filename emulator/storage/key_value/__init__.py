"""Values under keys that expire, for the time between requests. Knows nothing of what they mean.

SQLite by default (a file survives a restart), Redis for several replicas, memory for tests. Values are
JSON, never pickle. A store that fails costs a turn of the model, not an answer. `interface` has the
protocol, `leases` exclusive leases that work with any store.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from emulator.storage.key_value.interface import (
    MAX_VALUE_BYTES,
    Change,
    KeyValueStore,
    StoreFailed,
    store_failures,
)
from emulator.storage.key_value.records import Records
from emulator.storage.key_value.redis_store import PAUSE_SECONDS, RedisStore
from emulator.storage.key_value.sqlite_store import SQLiteStore

__all__ = [
    "MAX_VALUE_BYTES",
    "PAUSE_SECONDS",
    "Change",
    "KeyValueStore",
    "Records",
    "RedisStore",
    "SQLiteStore",
    "StoreFailed",
    "open_store",
    "store_failures",
    "store_works",
]

log = structlog.get_logger()


def open_store(url: str, ttl_seconds: float) -> KeyValueStore | None:
    """The store that ``url`` names (``redis://``, a file, ``:memory:``), or None if it fails.

    Without a store every request is a turn of the model, which is correct but slower.
    """
    try:
        if url.startswith(("redis://", "rediss://", "unix://")):
            return RedisStore(url, ttl_seconds=ttl_seconds)
        path = url if url == ":memory:" else str(Path(url).expanduser())
        return SQLiteStore(path, ttl_seconds=ttl_seconds)
    except StoreFailed as error:
        log.warning(
            "store off: programs end with their turn, responses are not stored", reason=str(error)
        )
        return None


def store_works(store: KeyValueStore | None) -> bool:
    """Return True if ``store`` takes a value. If not, the reason has been logged."""
    try:
        if store is not None:
            store.put({"start": b""}, 1.0)
    except StoreFailed as error:
        log.warning("the store does not work yet: programs end with their turn", reason=str(error))
        return False
    return store is not None
