"""Values under keys in a Redis, for several replicas."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from emulator.storage.key_value.interface import Change, StoreFailed, portions

# A Redis that cannot be reached is left alone for so long: each try may cost a time-out.
REST_SECONDS = 5.0
_REDIS_SECONDS = 1.0


class RedisStore:
    """A Redis that several replicas share; it expires and evicts by itself.

    Nothing is asked of it before the first value, so it may start after the proxy. After a failed try it
    is left alone for `REST_SECONDS`.
    """

    def __init__(
        self, url: str, *, ttl_seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises `StoreFailed` without the package or with a URL that is none."""
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as error:
            raise StoreFailed("redis:// needs the redis package: pip install redis") from error
        self._ttl = ttl_seconds
        self._now = now
        self._rests_until = 0.0
        self._failure: type[Exception] = redis.RedisError
        self._unreachable = (redis.ConnectionError, redis.TimeoutError)
        try:
            self._redis: Any = redis.Redis.from_url(
                url,
                socket_timeout=_REDIS_SECONDS,
                socket_connect_timeout=_REDIS_SECONDS,
                # Once, at once: a pooled connection may be one to a server that has restarted.
                retry=Retry(NoBackoff(), 1),
            )
        except ValueError as error:
            # What urllib says of a bad URL may quote a piece of the password.
            raise StoreFailed("the redis:// address cannot be read") from error

    def put(self, values: Mapping[str, bytes], seconds: float | None = None) -> None:
        milliseconds = max(1, int(1000 * (self._ttl if seconds is None else seconds)))
        with self._asking(), self._redis.pipeline() as batch:
            for key, value in values.items():
                batch.set(f"emulator:{key}", value, px=milliseconds)
            batch.execute()

    def change(self, key: str, change: Change, seconds: float | None = None) -> None:
        milliseconds = max(1, int(1000 * (self._ttl if seconds is None else seconds)))
        name = f"emulator:{key}"

        def put(batch: Any) -> None:
            value = batch.get(name)
            made = change(None if value is None else bytes(value))
            batch.multi()
            batch.set(name, made, px=milliseconds)

        with self._asking():
            self._redis.transaction(put, name)  # again, if another has changed it meanwhile

    def get(self, key: str) -> bytes | None:
        with self._asking():
            value = self._redis.get(f"emulator:{key}")
        return bytes(value) if value is not None else None

    def get_many(self, keys: Collection[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for some in portions(keys):
            with self._asking():
                values = self._redis.mget([f"emulator:{key}" for key in some])
            found |= {k: bytes(v) for k, v in zip(some, values, strict=True) if v is not None}
        return found

    def delete(self, keys: Collection[str]) -> None:
        if keys:
            with self._asking():
                self._redis.delete(*(f"emulator:{key}" for key in keys))

    def close(self) -> None:
        self._redis.close()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        if self._now() < self._rests_until:
            raise StoreFailed(f"Redis could not be reached less than {REST_SECONDS:g} s ago")
        try:
            yield
        except self._failure as error:
            if isinstance(error, self._unreachable):
                self._rests_until = self._now() + REST_SECONDS
            raise StoreFailed(str(error)) from error
