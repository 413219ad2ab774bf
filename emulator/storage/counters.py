"""Where requests and tokens are counted: in memory, or in the Redis that the setting ``store`` names.

Replicas share that. Several workers without it count requests in memory that they share
(`emulator.shared.rates`), and have their keeper count tokens (`emulator.shared.tokens`). Counted by the
``limits`` library. A Redis that fails is done without: each replica counts for itself then.
"""

from __future__ import annotations

from limits.storage import Storage, storage_from_string

_REDIS = {"redis://": "redis://", "rediss://": "rediss://", "unix://": "redis+unix://"}


def shared_counters(store: str) -> Storage | None:
    """The Redis that the proxy keeps its programs in, if it does."""
    for ours, theirs in _REDIS.items():
        if store.startswith(ours):
            url = theirs + store.removeprefix(ours)
            options = {"socket_timeout": 1, "socket_connect_timeout": 1}
            storage = storage_from_string(url, wrap_exceptions=True, **options)
            assert isinstance(storage, Storage)
            return storage
    return None
