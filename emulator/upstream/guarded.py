"""One upstream and its protection: a limit of concurrent requests, a circuit breaker, and retries.

A request takes a slot, then asks the breaker, and is then sent, again as `Retries` decides:

    waiting for a slot -> breaker -> sent -> accepted -> reply closed, slot released
                             ^          |
                             +- pause <-+ refused or unreachable

The slot is held during pauses and until the reply is closed; every way out releases it exactly once. Nothing
is sent again after the upstream has accepted. Knows nothing of HTTP.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from emulator.core.client_disconnect import acquire_for_client, has_disconnected, stop_on_disconnect
from emulator.core.errors import UpstreamFailed
from emulator.settings.settings import Settings
from emulator.upstream.breaker import Breaker, Breakers
from emulator.upstream.failures import count_failure
from emulator.upstream.interface import Messages, PassedOnResponse, Upstream, UpstreamReply
from emulator.upstream.pass_through import PassedOnRequest
from emulator.upstream.retries import MAX_WAIT, Retries

_MAX_WAIT_WITH_FALLBACKS = 2.0
"""Seconds to wait for an upstream whose requests can go elsewhere."""

TakeSlot = Callable[[str, int, float], Callable[[], None] | None]
"""(name, number of slots, seconds) -> a callback that releases the slot, or None after the timeout."""

_NO_SIGN_OF_HEALTH = ("answer_timeout", "upstream_redirects")
"""Codes of failures that do not show whether the server is up."""

T = TypeVar("T")


class GuardedUpstream:
    """Safe to share between threads."""

    def __init__(
        self,
        upstream: Upstream,
        settings: Settings,
        name: str,
        take_slot: TakeSlot | None,
    ) -> None:
        """``take_slot`` takes a slot that all processes share."""
        self.upstream = upstream
        self._name = name
        self._max_wait = _MAX_WAIT_WITH_FALLBACKS if settings.fallbacks else MAX_WAIT
        self._retries = Retries(settings.upstream_retries, self._max_wait)
        self._breakers = Breakers(settings.breaker_failures)
        self._max_requests = settings.upstream_requests
        self._take_shared_slot = take_slot
        self._slots = threading.BoundedSemaphore(self._max_requests) if self._max_requests else None

    def open(
        self,
        messages: Messages,
        fields: Mapping[str, Any],
        until: float = math.inf,
        key: str | None = None,
        first_token_until: float = math.inf,
    ) -> UpstreamReply:
        """As `Upstream.open`."""
        send = partial(self.upstream.open, messages, fields, until, key, first_token_until)
        breaker = self._breakers.of(str(fields.get("model")), key)
        first = min(until, first_token_until)
        reply, release = self._send(send, breaker, first, lambda _: True)

        def close() -> None:
            if reply.received.error is not None:
                count_failure(self._name, reply.received.error, "broken")
            release()

        reply.on_close(close)
        return reply

    def pass_on(self, request: PassedOnRequest, until: float, key: str | None) -> PassedOnResponse:
        """As `Upstream.pass_on`. The request holds its slot until the response's body is closed."""
        send = partial(self.upstream.pass_on, request, until, key)
        breaker = self._breakers.of(request.path, key)
        response, release = self._send(send, breaker, until, request.may_repeat)
        response.body.on_close(release)
        return response

    def _send(
        self,
        send: Callable[[], T],
        breaker: Breaker,
        until: float,
        may_repeat: Callable[[UpstreamFailed], bool],
    ) -> tuple[T, Callable[[], None]]:
        """Return the result of ``send`` and a callback that releases its slot. Raises `UpstreamFailed`."""
        release = self._take_slot(until)
        try:
            return self._send_with_retries(send, breaker, until, may_repeat), release
        except BaseException:
            release()
            raise

    def _send_with_retries(
        self,
        send: Callable[[], T],
        breaker: Breaker,
        until: float,
        may_repeat: Callable[[UpstreamFailed], bool],
    ) -> T:
        attempt = 0
        while True:
            _check_client()
            breaker.check()
            try:
                response = send()
            except UpstreamFailed as error:
                count_failure(self._name, error)
                _check_client()  # its own disconnecting ended the request: the upstream did not fail
                if error.code not in _NO_SIGN_OF_HEALTH:
                    breaker.failed(error)
                pause = self._retries.pause(attempt, error) if may_repeat(error) else None
                if pause is None or time.monotonic() + pause > until:
                    # The client need not repeat the retries.
                    headers = {"x-should-retry": "false", **error.headers}
                    raise replace(error, headers=headers) from error
                _sleep(pause)
                attempt += 1
                continue
            breaker.succeeded()
            return response

    def _take_slot(self, until: float) -> Callable[[], None]:
        if self._slots is None:
            return lambda: None
        end = min(until, time.monotonic() + self._max_wait)
        if not acquire_for_client(self._slots, max(0.0, end - time.monotonic())):
            raise self._at_limit()
        release = self._slots.release
        if self._take_shared_slot is not None:
            name, remaining = f"upstream {self._name}", max(0.0, end - time.monotonic())
            release_shared = self._take_shared_slot(name, self._max_requests, remaining)
            if release_shared is None:
                release()
                raise self._at_limit()

            def release_both() -> None:
                release_shared()
                release()

            return release_both
        return release

    def _at_limit(self) -> UpstreamFailed:
        return UpstreamFailed(
            "The upstream is at its limit of concurrent requests (setting upstream_requests).",
            code="overloaded",
            headers={"retry-after": "1", "x-should-retry": "true"},
            status=503,
        )


def _sleep(seconds: float) -> None:
    """Raises `UpstreamFailed` as soon as the client disconnects."""
    disconnected = threading.Event()
    with stop_on_disconnect(disconnected.set):
        disconnected.wait(seconds)
    _check_client()


def _check_client() -> None:
    if has_disconnected():
        raise UpstreamFailed("The client disconnected.")
