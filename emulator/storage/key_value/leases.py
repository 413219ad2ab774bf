"""Exclusive leases in a key-value store: at most one process has a name, and a dead process loses it.

    free ── take ──► held ── release ──► free
                      │ renewed every `_RENEW_SECONDS` └ not renewed for `LEASE_SECONDS` (the holder is
                      dead, or cannot reach the store) ──► free

A holder that could not renew in time must assume that another process has the name: `Lease.is_held` is then
False, `LEASE_SECONDS` after the last renewal by the holder's own clock, which is before the store frees the
name.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic

import structlog

from emulator.client_disconnect import has_disconnected
from emulator.storage.key_value.interface import KeyValueStore, StoreFailed

log = structlog.get_logger()

LEASE_SECONDS = 10.0
_RENEW_SECONDS = 2.5
_RETRY_SECONDS = 0.05


class LeaseTaken(Exception):
    """Another process has the lease."""


class Lease:
    def __init__(self) -> None:
        self.renewed = monotonic()
        self.ended = Event()

    def is_held(self) -> bool:
        """Return False once another process may have the lease."""
        return monotonic() - self.renewed < LEASE_SECONDS


@contextmanager
def exclusive_lease(store: KeyValueStore, name: str, seconds: float) -> Iterator[Lease]:
    """The name, for the block alone.

    Raises `LeaseTaken` after ``seconds``, or if the client disconnects meanwhile; `StoreFailed`.
    """
    holder = secrets.token_hex(16).encode()
    until = monotonic() + seconds
    while not _hold(store, name, holder):
        if monotonic() > until or has_disconnected():
            raise LeaseTaken
        Event().wait(_RETRY_SECONDS)
    lease = Lease()
    renewing = Thread(target=_renew, args=(store, name, holder, lease), daemon=True)
    renewing.start()
    try:
        yield lease
    finally:
        lease.ended.set()
        renewing.join()
        with suppress(StoreFailed):  # then it expires
            _hold(store, name, holder, 0.0)


def _renew(store: KeyValueStore, name: str, holder: bytes, lease: Lease) -> None:
    while not lease.ended.wait(_RENEW_SECONDS):
        sent_at = monotonic()
        try:
            if _hold(store, name, holder):
                lease.renewed = sent_at
                continue
            lease.renewed = -LEASE_SECONDS
            log.warning("a lease was lost", lease=name)
            return
        except StoreFailed as error:
            log.warning("a lease was not renewed", lease=name, reason=str(error))


def _hold(store: KeyValueStore, name: str, holder: bytes, seconds: float = LEASE_SECONDS) -> bool:
    def take(value: bytes | None) -> bytes:
        if value not in (None, holder):
            raise LeaseTaken
        return holder

    try:
        store.change(name, take, seconds)
    except LeaseTaken:
        return False
    return True
