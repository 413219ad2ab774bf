"""Keep values between requests under keys, for a while. Knows nothing of what they mean.

SQLite by default (a file survives a restart), Redis for several replicas, memory for tests. What is
stored is JSON, never pickle. A store that fails costs a model turn, not an answer.

`interface` says what each of them can do.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from emulator.storage.key_value.interface import (
    MAX_VALUE_BYTES,
    Change,
    KeyValueStore,
    StoreFailed,
)
from emulator.storage.key_value.redis_store import REST_SECONDS, RedisStore
from emulator.storage.key_value.sqlite_store import SQLiteStore

__all__ = [
    "MAX_VALUE_BYTES",
    "REST_SECONDS",
    "Change",
    "KeyValueStore",
    "RedisStore",
    "SQLiteStore",
    "StoreFailed",
    "open_store",
]

log = structlog.get_logger()


def open_store(url: str, ttl_seconds: float) -> KeyValueStore | None:
    """The store that ``url`` names: ``redis://...``, a file, or ``:memory:``; None if it fails.

    Without a store each request asks the model, which is correct, only slower.
    """
    try:
        if url.startswith(("redis://", "rediss://", "unix://")):
            return RedisStore(url, ttl_seconds=ttl_seconds)
        path = url if url == ":memory:" else str(Path(url).expanduser())
        return SQLiteStore(path, ttl_seconds=ttl_seconds)
    except StoreFailed as error:
        log.warning(
            "store off: programs end with their turn, responses are not kept", reason=str(error)
        )
        return None
