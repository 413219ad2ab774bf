"""All upstreams together: each is opened at its first request, and their models are one list.

Start here for what happens between an answer and a server: `Routes` says which upstream, `Guarded` when and
how often, `OpenAIUpstream` how. Knows nothing of tools.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from emulator import traces
from emulator.client_keys import KeyedClient, grant_of
from emulator.errors import Unauthorized
from emulator.settings import Settings
from emulator.upstream.guarded import Guarded, TakePlace
from emulator.upstream.interface import Budget, Chat, OneUpstream, Reply, Turns
from emulator.upstream.permissions import check_model, check_passed_on
from emulator.upstream.recorded import recorded, recorded_pass
from emulator.upstream.routes import Route, Routes, Target
from emulator.upstream.spending import Spend, metered, metered_body

if TYPE_CHECKING:
    from emulator.upstream.pass_through import PassedOn, PassThrough

log = structlog.get_logger()

_MODELS_FOR_SECONDS = 60
_MAX_LISTS = 256
Model = dict[str, Any]
Opener = Callable[[Target], OneUpstream]


class Upstreams:
    """What it opened itself, `close` closes. Safe to share between threads."""

    def __init__(
        self,
        settings: Settings,
        open_upstream: Opener | None = None,
        budget: Budget | None = None,
        now: Callable[[], float] = time.monotonic,
        take_place: TakePlace | None = None,
        breaker_state: Callable[[str], memoryview[int]] | None = None,
    ) -> None:
        """``take_place`` is as in `Guarded`; ``breaker_state`` gives that of the upstream of a name."""
        self._breaker_state = breaker_state
        self._take_place = take_place
        self.routes = Routes(settings)
        self._answer_seconds = settings.answer_seconds
        self._open_upstream = open_upstream or _official
        self._now = now
        self._budget = budget
        self._lock = threading.Lock()
        self._guarded: dict[str, Guarded] = {}
        self._passing: dict[str, PassThrough] = {}
        self._listed: dict[tuple[str, str | None], tuple[float, list[Model]]] = {}

    def route(self, model: str, client: str, fields: Collection[str] = ()) -> Route:
        """Where a client's request for ``model`` goes; ``fields`` are the names of its other fields.

        Raises `Forbidden` where the client's key is not for that model, and `NotFound`.
        """
        check_model(grant_of(client), model, fields)
        return self.routes.of(model)

    def turns(self, route: Route, client: str, until: float) -> Turns:
        """For the turns of one answer, which all together have the deadline ``until`` (monotonic).

        Raises `Unauthorized` where the client's own key is wanted and there is none, and `RateLimited`
        where the client's budget is spent.
        """
        spend = self._spender(client)
        key = key_for(route.settings, client)
        name = route.target.name
        return _OneAnswer(self.of(route.target), name, route.model, key, until, spend)

    def deadline(self) -> float:
        """Of an answer that begins now."""
        return time.monotonic() + self._answer_seconds

    def of(self, target: Target) -> Guarded:
        with self._lock:
            if target.name not in self._guarded:
                state = self._breaker_state
                self._guarded[target.name] = Guarded(
                    self._open_upstream(target),
                    target.settings,
                    name=target.name,
                    take_place=self._take_place,
                    breaker_state=None if state is None else state(target.name),
                )
            return self._guarded[target.name]

    def models(self, client: str) -> list[Model]:
        """What clients can ask for: each model once, from the upstream that answers for it, and aliases.

        An upstream that cannot tell its models is left out, unless none can: then `UpstreamFailed`.
        """
        routes = self.routes
        with ThreadPoolExecutor(len(routes.targets)) as pool:
            lists = [
                pool.submit(copy_context().run, self._models, target, client)
                for target in routes.targets
            ]
        found: dict[str, Model] = {}
        failures: list[BaseException] = []
        for target, listing in zip(routes.targets, lists, strict=True):
            if error := listing.exception():
                failures.append(error)
                log.warning("an upstream does not tell its models", upstream=target.name)
                continue
            for model in listing.result():
                name = target.our_name(str(model.get("id")))
                if target.takes(name) and routes.of(name).target is target:
                    owner = target.name if routes.several else model.get("owned_by") or target.name
                    found.setdefault(name, {**model, "id": name, "owned_by": owner})
        if failures and len(failures) == len(lists):
            raise failures[0]
        for alias in routes.aliases:
            meant = routes.of(alias)
            known = found.get(meant.asked) or {"object": "model", "created": 0}
            found.setdefault(alias, {**known, "id": alias, "owned_by": meant.target.name})
        grant = grant_of(client)
        return [model for name, model in found.items() if grant.may_use(name)]

    def pass_on(
        self,
        method: str,
        path: str,
        query: bytes,
        headers: Mapping[str, str],
        body: bytes,
        client: str,
    ) -> PassedOn:
        """As `PassThrough.send`, to the upstream of the model that the body names.

        Raises `NotFound`, `Forbidden` and `RateLimited` too.
        """
        from emulator.upstream.named_model import fields_of, model_of, with_model

        # Brings httpx2, which is slow.
        from emulator.upstream.pass_through import PassThrough, may_repeat

        kind = headers.get("content-type", "")
        named = model_of(body, kind)
        grant = grant_of(client)
        check_passed_on(grant, path, query, named, body, fields_of(body, kind))
        spend = self._spender(client)
        if named is None:
            target = self.routes.default()
        else:
            route = self.routes.of(named)
            target = route.target
            # Of two fields with one name the upstream might read the other.
            if route.model != named or not grant.any_model:
                body = with_model(body, kind, route.model)
        key = key_for(target.settings, client)
        with self._lock:
            if target.name not in self._passing:
                self._passing[target.name] = PassThrough(
                    target.settings, target.headers, target.query
                )
        passing = self._passing[target.name]
        # Within the limits of its upstream; again, as long as nothing has been answered.
        answer = self.of(target).pass_on(
            lambda: recorded_pass(
                target.name,
                path,
                named,
                lambda: passing.send(method, path, query, headers, body, key),
            ),
            self.deadline(),
            lambda error: may_repeat(method, error),
        )
        if spend is None:
            return answer
        sent = len(body) if "json" in kind else 0
        told = answer.headers.get("content-type", "")
        return replace(answer, body=metered_body(answer.body, told, sent, spend))

    def _spender(self, client: str) -> Spend | None:
        """What to tell of the tokens that a request takes. Raises `RateLimited`."""
        if self._budget is None or not grant_of(client).has_budget:
            return None
        self._budget.check(client)
        return partial(self._budget.spend, client)

    def close(self) -> None:
        for guarded in self._guarded.values() if self._open_upstream is _official else ():
            guarded.upstream.close()
        for passing in self._passing.values():
            passing.close()

    def _models(self, target: Target, client: str) -> list[Model]:
        """One upstream's list, asked for at most once a minute for each key."""
        key = key_for(target.settings, client)
        until, models = self._listed.get((target.name, key), (0.0, []))
        if self._now() < until:
            return models
        models = self.of(target).upstream.models(key)
        if len(self._listed) >= _MAX_LISTS:
            self._listed.clear()
        self._listed[target.name, key] = (self._now() + _MODELS_FOR_SECONDS, models)
        return models


def key_for(settings: Settings, client: str) -> str | None:
    """The client's own key, where that is the one to send. Raises `Unauthorized` if it has none."""
    if not settings.pass_client_key:
        return None
    key = client.key if isinstance(client, KeyedClient) else ""
    if not key:
        raise Unauthorized(
            "This model wants your own key for its provider (Authorization: Bearer ...).",
            code="invalid_api_key",
        )
    return key


def _official(target: Target) -> OneUpstream:
    from emulator.upstream.client import OpenAIUpstream

    return OpenAIUpstream(target.settings, target.headers, target.query)


@dataclass(frozen=True)
class _OneAnswer:
    upstream: Guarded
    name: str
    model: str
    key: str | None
    until: float
    spend: Spend | None

    def open(self, messages: Chat, fields: Mapping[str, Any]) -> Reply:
        named = {**fields, "model": self.model}
        open_reply = partial(self.upstream.open, messages, named, self.until, self.key)
        reply = recorded(self.name, messages, named, open_reply)
        return metered(reply, messages, self.spend, traces.current_turn())
