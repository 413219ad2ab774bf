"""One upstream with what keeps it and its clients from harm: a limit, a breaker, and retries.

In this order: a request first needs a place among those that the upstream gets at once, then the breaker's
leave, and then it is sent, as often as `Retries` says. Knows nothing of HTTP.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from emulator.client_disconnect import stop_on_disconnect
from emulator.errors import UpstreamFailed
from emulator.settings import Settings
from emulator.upstream.body import Body
from emulator.upstream.breaker import Breaker
from emulator.upstream.failures import count, counting
from emulator.upstream.interface import Chat, OneUpstream, Reply
from emulator.upstream.reply import Heard
from emulator.upstream.retries import LONGEST_WAIT, Retries

if TYPE_CHECKING:
    from emulator.upstream.pass_through import PassedOn

_SOON = 2.0
"""Seconds to wait for an upstream whose requests can go elsewhere."""

TakePlace = Callable[[str, int, float], Callable[[], None] | None]
"""Waits so many seconds for one of so many places, and gives what leaves it; None if there was none."""


def place_name(upstream: str) -> str:
    """Of the places of an upstream's requests."""
    return f"upstream:{upstream}"


_NO_SIGN_OF_LIFE = ("answer_timeout", "upstream_redirects")
"""Failures that are not the server's, which say nothing of whether it is up."""

T = TypeVar("T")


class Guarded:
    """Safe to share between threads."""

    def __init__(
        self,
        upstream: OneUpstream,
        settings: Settings,
        sleep: Callable[[float], None] | None = None,
        name: str = "upstream",
        take_place: TakePlace | None = None,
        breaker_state: memoryview[int] | None = None,
    ) -> None:
        """``take_place`` gives the places that several workers have together; see `Breaker` for its state."""
        self.upstream = upstream
        self._name = name
        self._longest = _SOON if settings.fallbacks else LONGEST_WAIT
        self._retries = Retries(settings.upstream_retries, self._longest)
        self._breaker = Breaker(
            settings.breaker_failures, settings.breaker_seconds, state=breaker_state
        )
        limit = settings.upstream_requests
        self._most = limit
        self._take_place = take_place
        self._places = threading.BoundedSemaphore(limit) if limit else None
        self._sleep = sleep or _wait

    def open(
        self,
        messages: Chat,
        fields: Mapping[str, Any],
        until: float = math.inf,
        key: str | None = None,
    ) -> Reply:
        """As `OneUpstream.open`."""
        leave = self._enter(until)
        try:
            send = partial(self.upstream.open, messages, fields, until, key)
            reply = self._tried(send, until)
        except BaseException:
            leave()
            raise
        reply.on_left(partial(_left, self._name, leave))
        return reply

    def pass_on(
        self,
        send: Callable[[], PassedOn],
        until: float,
        may_repeat: Callable[[UpstreamFailed], bool],
    ) -> PassedOn:
        """What a request gives that is no chat. It has its place until its body is read or closed."""
        leave = self._enter(until)
        try:
            answer = self._tried(send, until, may_repeat)
        except BaseException:
            leave()
            raise

        def finish() -> None:
            try:
                answer.body.close()
            finally:
                leave()

        return replace(answer, body=Body(answer.body, finish))

    def _tried(
        self,
        send: Callable[[], T],
        until: float = math.inf,
        may_repeat: Callable[[UpstreamFailed], bool] = lambda _: True,
    ) -> T:
        """What a request gives, which is sent with the breaker's leave, and again where that `may_repeat`.

        Raises `UpstreamFailed`.
        """
        attempt = 0
        while True:
            self._breaker.check()
            try:
                with counting(self._name):
                    answer = send()
            except UpstreamFailed as error:
                if error.code not in _NO_SIGN_OF_LIFE:
                    self._breaker.failed(error)
                pause = self._retries.pause(attempt, error) if may_repeat(error) else None
                if pause is None or time.monotonic() + pause > until:
                    raise self._retries.final(error) from error
                self._sleep(pause)
                attempt += 1
                continue
            self._breaker.succeeded()
            return answer

    def _enter(self, until: float) -> Callable[[], None]:
        if self._places is None:
            return lambda: None
        longest = max(0.0, min(until - time.monotonic(), self._longest))
        leave: Callable[[], None] | None
        if self._take_place is not None:
            leave = self._take_place(place_name(self._name), self._most, longest)
        else:
            leave = self._places.release if self._places.acquire(timeout=longest) else None
        if leave is None:
            raise UpstreamFailed(
                "The upstream has as many requests as it may get (setting upstream_requests).",
                code="overloaded",
                headers={"retry-after": "1", "x-should-retry": "true"},
                status=503,
            )
        return leave


def _wait(seconds: float) -> None:
    """A client that leaves is not waited for. Raises `UpstreamFailed` then."""
    left = threading.Event()
    with stop_on_disconnect(left.set):
        if left.wait(seconds):
            raise UpstreamFailed("The client has left.")


def _left(upstream: str, leave: Callable[[], None], heard: Heard) -> None:
    if heard.error is not None:
        count(upstream, heard.error, "broken")
    leave()
