"""State that all processes of one proxy share: rates, tokens, open requests, short-lived records.

`SharedState` calls one of these:

    local_calls    a `LocalState`: the memory of this process. The keeper has one, for all its workers
    keeper_calls   the keeper's `LocalState`
    redis_calls    Redis for the rates and token counts of all replicas, one of the above for the rest

Every count is exact: it changes in one place, under a lock or in a Redis script. If that place is
unavailable, each caller counts for itself in its own memory until it is available again. A keeper that
restarts begins with empty counts.

An open request is a *lease*. It ends when its owner releases it, or when its owner's process is dead, which
is checked whenever a client is at its limit. So a killed worker's requests stop counting immediately.
"""

from __future__ import annotations

import math
import os
import secrets
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from contextvars import Context
from functools import lru_cache, partial
from typing import Any, NamedTuple

import structlog
from limits import RateLimitItemPerMinute
from limits.errors import ConfigurationError, StorageError
from limits.storage import MemoryStorage, Storage, storage_from_string
from limits.strategies import MovingWindowRateLimiter

from emulator.client_disconnect import has_disconnected
from emulator.shared.rpc import Call, Handler, KeeperUnavailable, RpcClient, local_calls

log = structlog.get_logger()

_MAX_RECORDS = 1000
_POLL_SECONDS = (0.001, 0.02)
"""First and longest pause between two attempts to get a slot."""
_REDIS_SCHEMES = {"redis://": "redis://", "rediss://": "rediss://", "unix://": "redis+unix://"}
"""Ours -> those of the ``limits`` library."""


class Rate(NamedTuple):
    """A client's requests in the last 60 seconds, as the answer's headers report them."""

    allowed: bool
    remaining: int
    """Requests that the client may send immediately."""
    seconds: float
    """Until the oldest counted request stops counting."""


class SharedState:
    """Safe to share between threads."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def hit(self, key: str, limit: int) -> Rate:
        """Count a request, unless ``key`` already has ``limit`` requests in the last 60 seconds."""
        return Rate(*self._call("state.hit", key, limit))

    def spend(self, key: str, tokens: int, seconds: int) -> None:
        """Add tokens to ``key``. The first tokens open a window, which ends after ``seconds``."""
        self._call("state.spend", key, tokens, seconds)

    def spent(self, key: str) -> tuple[int, float]:
        """The tokens in the window of ``key``, and the Unix time at which it ends."""
        tokens, until = self._call("state.spent", key)
        return tokens, until

    def acquire(self, key: str, limit: int, owner: int) -> str:
        """A lease for the process ``owner``, or "" while living processes have ``limit`` leases."""
        return str(self._call("state.acquire", key, limit, owner))

    def release(self, key: str, lease: str) -> None:
        """End a lease. An unknown one is ignored."""
        self._call("state.release", key, lease)

    def put(self, key: str, value: str, seconds: float) -> None:
        self._call("state.put", key, value, seconds)

    def get(self, key: str) -> str | None:
        value: str | None = self._call("state.get", key)
        return value

    def delete(self, key: str) -> None:
        self._call("state.delete", key)


class LocalState:
    """The memory of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """Key -> lease -> the owner's process id."""
        self._records: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def acquire(self, key: str, limit: int, owner: int) -> str:
        with self._lock:
            leases = self._leases[key]
            if len(leases) >= limit:
                for lease in [each for each, process in leases.items() if not _is_alive(process)]:
                    del leases[lease]
            if len(leases) >= limit:
                return ""
            lease = secrets.token_hex(8)
            leases[lease] = owner
            return lease

    def release(self, key: str, lease: str) -> None:
        with self._lock:
            leases = self._leases[key]
            leases.pop(lease, None)
            if not leases:
                del self._leases[key]

    def put(self, key: str, value: str, seconds: float) -> None:
        with self._lock:
            self._records[key] = (value, time.monotonic() + seconds)
            while len(self._records) > _MAX_RECORDS:
                self._records.popitem(last=False)

    def get(self, key: str) -> str | None:
        with self._lock:
            value, expires = self._records.get(key, ("", 0.0))
        return value if time.monotonic() < expires else None

    def delete(self, key: str) -> None:
        with self._lock:
            self._records.pop(key, None)

    def handlers(self) -> dict[str, Handler]:
        """The functions that `SharedState` calls."""
        names = ("acquire", "release", "put", "get", "delete")
        own = {f"state.{name}": getattr(self, name) for name in names}
        return own | _counting(MemoryStorage())


def keeper_calls(keeper: RpcClient) -> Call:
    """Calls of the keeper. While the keeper is unavailable, this worker counts for itself."""
    own = local_calls(LocalState().handlers())

    def call(name: str, *arguments: Any) -> Any:
        if name == "state.release":
            own(name, *arguments)  # it may have been acquired while the keeper was unavailable
        try:
            # In an empty context, since a client that disconnects must not interrupt the call: the keeper
            # would grant a lease that nobody releases.
            return Context().run(keeper.call, name, *arguments)
        except KeeperUnavailable as error:
            log.warning("the keeper is unavailable: this worker counts alone", reason=str(error))
            return own(name, *arguments)

    return call


def redis_calls(redis: Storage, machine: Call) -> Call:
    """Redis counts for all replicas, while it is available; ``machine`` has the rest."""
    counting = _counting(redis)

    def call(name: str, *arguments: Any) -> Any:
        if name in counting:
            try:
                return counting[name](*arguments)
            except StorageError as error:
                log.warning("Redis is unavailable: this replica counts alone", reason=str(error))
        return machine(name, *arguments)

    return call


def _counting(storage: Storage) -> dict[str, Handler]:
    """The rates and tokens in a storage of the ``limits`` library. Raise ``StorageError`` if it fails."""
    limiter = MovingWindowRateLimiter(storage)

    def hit(key: str, limit: int) -> Rate:
        item = _per_minute(limit)
        allowed = limiter.hit(item, key)
        window = limiter.get_window_stats(item, key)
        return Rate(allowed, window.remaining, max(0.0, window.reset_time - time.time()))

    return {
        "state.hit": hit,
        "state.spend": lambda key, tokens, seconds: storage.incr(key, seconds, tokens),
        "state.spent": lambda key: (storage.get(key), storage.get_expiry(key)),
    }


@lru_cache(maxsize=64)
def _per_minute(limit: int) -> RateLimitItemPerMinute:
    return RateLimitItemPerMinute(limit, namespace="emulator")


def open_state(store: str, keeper: RpcClient | None = None) -> SharedState:
    """The state in the Redis that ``store`` names; else in the ``keeper``, or in this process."""
    machine = local_calls(LocalState().handlers()) if keeper is None else keeper_calls(keeper)
    for scheme, limits_scheme in _REDIS_SCHEMES.items():
        if store.startswith(scheme):
            url = limits_scheme + store.removeprefix(scheme)
            options = {"socket_timeout": 1, "socket_connect_timeout": 1}
            try:
                storage = storage_from_string(url, wrap_exceptions=True, **options)
            except ConfigurationError as error:
                log.warning("limits are counted by this replica alone", reason=str(error))
                break
            assert isinstance(storage, Storage)
            return SharedState(redis_calls(storage, machine))
    return SharedState(machine)


def acquire_slot(
    state: SharedState, key: str, limit: int, seconds: float
) -> Callable[[], None] | None:
    """Wait for a lease of this process. Returns the function that releases it, or None."""
    lease = poll(lambda: state.acquire(key, limit, os.getpid()), seconds)
    return partial(state.release, key, lease) if lease else None


def poll(attempt: Callable[[], Any], seconds: float = math.inf) -> Any:
    """Repeat ``attempt`` until its value is true, for ``seconds``, or until the client disconnects.

    Returns the last value.
    """
    until = time.monotonic() + seconds
    pause, longest = _POLL_SECONDS
    while not (value := attempt()):
        if time.monotonic() >= until or has_disconnected():
            break
        time.sleep(pause)
        pause = min(2 * pause, longest)
    return value


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
