"""Values under keys in a Redis, for several replicas."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from emulator.storage.key_value.interface import Change, StoreFailed

PAUSE_SECONDS = 5.0
"""An unreachable Redis is not used for this long, since every try may cost a time-out."""
_REDIS_SECONDS = 1.0


class RedisStore:
    """A Redis that several replicas share. It expires and evicts values itself.

    The first connection is made with the first value, so Redis may start after the proxy.

        usable ── connection refused or timed out ──► paused for `PAUSE_SECONDS`: all methods fail ──► usable
    """

    def __init__(
        self, url: str, *, ttl_seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises `StoreFailed` if the package is missing or ``url`` is invalid."""
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise StoreFailed("redis:// needs the redis package: pip install redis") from error
        self._ttl = ttl_seconds
        self._now = now
        self._paused_until = 0.0
        self._failure: type[Exception] = redis.RedisError
        self._unreachable = (redis.ConnectionError, redis.TimeoutError)
        try:
            self._redis: Any = redis.Redis.from_url(
                url,
                socket_timeout=_REDIS_SECONDS,
                socket_connect_timeout=_REDIS_SECONDS,
                # One immediate retry: a pooled connection may lead to a server that has restarted since.
                retry=Retry(NoBackoff(), 1),
            )
        except ValueError as error:
            # urllib's message about an invalid URL may quote a part of the password.
            raise StoreFailed("the redis:// address is invalid") from error

    def put(self, values: Mapping[str, bytes], seconds: float | None = None) -> None:
        milliseconds = max(1, int(1000 * (self._ttl if seconds is None else seconds)))
        with self._connected(), self._redis.pipeline() as batch:
            for key, value in values.items():
                batch.set(f"emulator:{key}", value, px=milliseconds)
            batch.execute()

    def change(self, key: str, change: Change, seconds: float | None = None) -> None:
        milliseconds = max(1, int(1000 * (self._ttl if seconds is None else seconds)))
        name = f"emulator:{key}"

        def put(batch: Any) -> None:
            value = batch.get(name)
            changed = change(None if value is None else bytes(value))
            batch.multi()
            batch.set(name, changed, px=milliseconds)

        with self._connected():
            self._redis.transaction(put, name)  # repeated if another process changed it meanwhile

    def get(self, key: str) -> bytes | None:
        with self._connected():
            value = self._redis.get(f"emulator:{key}")
        return bytes(value) if value is not None else None

    def get_many(self, keys: Collection[str]) -> dict[str, bytes]:
        if not keys:
            return {}
        with self._connected():
            values = self._redis.mget([f"emulator:{key}" for key in keys])
        return {k: bytes(v) for k, v in zip(keys, values, strict=True) if v is not None}

    def delete(self, keys: Collection[str]) -> None:
        if keys:
            with self._connected():
                self._redis.delete(*(f"emulator:{key}" for key in keys))

    def close(self) -> None:
        self._redis.close()

    @contextmanager
    def _connected(self) -> Iterator[None]:
        if self._now() < self._paused_until:
            raise StoreFailed(f"Redis was unreachable less than {PAUSE_SECONDS:g} s ago")
        try:
            yield
        except self._failure as error:
            if isinstance(error, self._unreachable):
                self._paused_until = self._now() + PAUSE_SECONDS
            raise StoreFailed(str(error)) from error
