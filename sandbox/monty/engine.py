"""Run programs in pydantic-monty: a Rust Python subset in worker processes, about 0.3 ms a program.

Stops: files, network, environment, processes, and imports other than Monty's own modules (the interpreter
has no code for them; requests for them are refused here); running time, memory, recursion, output and
calls beyond the limits of a session; a crash of a worker (only its session is lost).

Does not stop: a bug in the Monty interpreter, whose worker is an ordinary process of this user. A program
that catches the error of a missing Monty feature (`try: "a".translate(t) except Exception: ...`)
continues in Monty, and no other engine runs it.
"""

import datetime as dt
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import pydantic_monty as pm

from sandbox.engine import Limits, Session
from sandbox.errors import (
    SandboxBusy,
    SandboxDied,
    SandboxUnavailable,
)
from sandbox.monty.session import MontySession

_SHIMS = """
_round = round
def round(number, ndigits=None):
    if type(number) is float and type(ndigits) is int and 0 < ndigits < 324:
        return float(format(number, f".{ndigits}f"))
    return _round(number, ndigits)


_zip = zip
def zip(*iterables, strict=False):
    if not strict:
        return _zip(*iterables)
    lists = [list(items) for items in iterables]
    return aiter() if len({len(items) for items in lists}) > 1 else _zip(*lists)
"""
"""Builtins that Monty has differently: it rounds 2.675 to 2.68, and `zip(strict=True)` raises before the
first item. `aiter` is a builtin that Monty does not have, so another engine runs the program."""

if sys.version_info >= (3, 12):
    _SHIMS += f"""

_sum = sum
def sum(items, /, start=0):
    if type(start) not in (int, float):
        return _sum(items, start)
    total, lost = start, 0.0
    for item in items:
        new = total + item
        if type(total) is float and ({sys.version_info >= (3, 14)} or type(item) is float):
            lost += (total - new) + item if abs(total) >= abs(item) else (item - new) + total
        total = new
    return total + lost if lost and lost - lost == 0 else total
"""
    """CPython compensates for rounding since 3.12 (Neumaier's summation), since 3.14 for integers too."""


class MontyEngine:
    """A pool of Monty workers, started at the first session and closed by `close`.

    `workers` limits the sessions that are open at the same time (about 20 MB each when idle). If no
    worker is free within `patience` seconds, opening a session raises SandboxBusy.
    """

    name = "monty"

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        warm: int = 1,
        workers: int = 32,
        patience: float = 5.0,
    ) -> None:
        self.limits = limits or Limits()
        self._pool: pm.Monty | None = None
        self._pool_lock = threading.Lock()
        self._settings: dict[str, Any] = {
            "min_processes": warm,
            "max_processes": workers,
            "checkout_timeout": patience,
            "max_checkouts_per_worker": 1000,
        }
        self._closed = False

    def get_ready(self) -> None:
        """Does nothing: workers start faster than a model writes."""

    @contextmanager
    def session(
        self, names: frozenset[str], *, preamble: str = "", seed: int = 0
    ) -> Iterator[Session]:
        checkout = self._started().checkout(
            limits=_resource_limits(self.limits),
            os_policy=_os_policy(seed),
            assert_message_annotations=False,
        )
        try:
            checkout.__enter__()
        except TimeoutError as error:
            workers = self._settings["max_processes"]
            raise SandboxBusy(
                f"all {workers} monty workers are in use", "try again, or allow more workers"
            ) from error
        except pm.MontyError as error:
            raise SandboxDied(str(error)) from error
        try:
            session = MontySession(checkout, names, self.limits)
            session.run_preamble(_SHIMS + preamble)
            yield session
        finally:
            # The pool aborts a program that is still suspended.
            checkout.__exit__(None, None, None)

    def _started(self) -> pm.Monty:
        with self._pool_lock:
            if self._closed:
                raise SandboxUnavailable("the monty engine is closed", "create a new one")
            if self._pool is None:
                try:
                    self._pool = pm.Monty(**self._settings).__enter__()
                except (OSError, pm.MontyError) as error:
                    raise SandboxUnavailable(
                        f"the workers of monty do not start: {error}",
                        "install the pydantic-monty wheel of this platform",
                    ) from error
            return self._pool

    def close(self) -> None:
        with self._pool_lock:
            pool, self._pool, self._closed = self._pool, None, True
        if pool is not None:
            pool.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _resource_limits(limits: Limits) -> pm.ResourceLimits:
    return {
        "max_feed_duration_secs": limits.seconds,
        "max_memory": limits.memory,
        "max_recursion_depth": 1000,
        # Name lookups and imports count as suspensions too; the session counts `pauses` itself.
        "max_suspensions": 1000 + 4 * limits.pauses,
    }


def _os_policy(seed: int) -> pm.OSPolicy:
    policy: pm.OSPolicy = {"sleep": "zero"}
    if seed:
        instant = dt.datetime.fromtimestamp(seed / 1_000_000, dt.UTC)
        policy |= {"datetime": instant, "timezone": "utc", "random_start": {"seed": seed}}
    return policy
