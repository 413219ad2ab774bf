"""Find out whether a model calls tools itself: ask it the first task of `tool-emulator fit` until two replies
of three agree, and remember the answer for a day.

A rejected request (400, 404, 422, 501: servers without a parser for the model's calls) or a reply without the
right call means no. Other failures prove nothing: the model is asked again at the next request.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import structlog

from emulator.core.client_disconnect import acquire_for_client
from emulator.core.errors import UpstreamFailed
from emulator.core.tasks import Task, tasks
from emulator.database import Database, DatabaseFailed, Documents
from emulator.reply.call_assembly import (
    CallAssembler,
    CallChecker,
    CallFragments,
    UnusableCall,
)
from emulator.tools.toolset import Toolset
from emulator.upstream.metering import tokens_of
from emulator.upstream.routes import Route
from emulator.upstream.upstreams import AnswerUpstream

log = structlog.get_logger()

REMEMBERED_SECONDS = 86_400.0
_MODELS = 256
_REFUSALS = (400, 404, 405, 415, 422, 501)
_MAX_TOKENS = 512
_SAMPLES = 3
_SECONDS = 20.0
"""For all samples together."""


class ToolProbe:
    """Safe to share between threads. One thread at a time asks a model."""

    def __init__(self, database: Database, now: Callable[[], float] = time.monotonic) -> None:
        self._stored: Documents[bool] = Documents(
            database, "native-tools", bool, seconds=REMEMBERED_SECONDS, max_bytes=2**20
        )
        self._now = now
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        self._asking: dict[str, threading.Lock] = {}

    def calls_tools(self, route: Route, open_turns: Callable[[], AnswerUpstream]) -> bool:
        """Return True if the model of ``route`` is known to call tools."""
        key = _key(route)
        with self._lock:
            if len(self._asking) > _MODELS:  # clients may invent names; asking twice does no harm
                self._asking.clear()
            lock = self._asking.setdefault(key, threading.Lock())
        if not acquire_for_client(lock, math.inf):
            return False  # and the answer, which nobody waits for, fails
        try:
            known = self._remembered(key)
            if known is None:
                known = _ask(open_turns(), route)
                if known is not None:
                    self._remember(key, known)
                    log.info("tools", upstream=route.target.name, model=route.model, native=known)
        finally:
            lock.release()
        return bool(known)

    def remembered(self, route: Route) -> bool | None:
        """As `calls_tools`, without asking; None if the model would be asked."""
        return self._remembered(_key(route))

    def _remembered(self, key: str) -> bool | None:
        with self._lock:
            until, known = self._known.get(key, (0.0, False))
        if self._now() < until:
            return known
        try:
            stored = self._stored.get(key)
        except DatabaseFailed:
            return None
        # The database does not say how old the value is, so this process remembers it for an hour only.
        if stored is not None:
            self._set(key, stored, REMEMBERED_SECONDS / 24)
        return stored

    def _remember(self, key: str, known: bool) -> None:
        self._set(key, known, REMEMBERED_SECONDS)
        try:
            self._stored.put({key: known})
        except DatabaseFailed as error:
            log.warning("whether the model calls tools is not stored", reason=str(error))

    def _set(self, key: str, known: bool, seconds: float) -> None:
        with self._lock:
            self._known[key] = (self._now() + seconds, known)
            while len(self._known) > _MODELS:
                self._asking.pop(self._known.popitem(last=False)[0], None)


def _key(route: Route) -> str:
    identity = f"{route.settings.base_url}\n{route.model}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _ask(upstream: AnswerUpstream, route: Route) -> bool | None:
    """Ask the model until two of three replies agree; None if a failure proves nothing.

    A model that is too slow for the probe would delay each next request too, so that means no.
    """
    until = min(upstream.until, time.monotonic() + _SECONDS)
    answers: Counter[bool] = Counter()
    try:
        while max(answers.values(), default=0) <= _SAMPLES // 2:
            waits = max(0.0, until - time.monotonic())
            sample = replace(upstream, until=until, first_token_seconds=waits)
            answers[_calls_the_tool(sample, route)] += 1
    except UpstreamFailed as error:
        is_slow = time.monotonic() >= until
        return False if is_slow or error.status in _REFUSALS else None
    return answers[True] > answers[False]


def _calls_the_tool(upstream: AnswerUpstream, route: Route) -> bool:
    """Ask once. Raises `UpstreamFailed`."""
    task, toolset = _task()
    assembler, checker = CallAssembler(), CallChecker(toolset)
    calls: list[CallFragments] = []
    messages = [{"role": "user", "content": task.ask}]
    with upstream.open(messages, {"model": route.model, "tools": task.tools}) as stream:
        for chunk in stream:
            for choice in chunk["choices"]:
                for piece in choice["delta"].get("tool_calls") or ():
                    calls += assembler.feed(piece)
            # Closing the connection stops the model. Servers disagree on the name of a token limit.
            if tokens_of(stream.received.characters) > _MAX_TOKENS:
                break
    calls += assembler.close()
    valid = []
    for fragments in calls:
        with suppress(UnusableCall):
            call, _ = checker.check(fragments)
            valid.append((call.name, call.arguments))
    return task.judge(valid).arguments


@lru_cache(maxsize=1)
def _task() -> tuple[Task, Toolset]:
    first = tasks()[0]
    return first, Toolset.parse([dict(tool) for tool in first.tools])
