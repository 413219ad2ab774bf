"""All configured upstreams: each is opened at its first request, and their models form one list.

Start here for the way of a request to a server: `Routes` chooses the upstream, `GuardedUpstream` when and how
often to send, `OpenAIUpstream` how. Knows nothing of tools.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Protocol
from urllib.parse import urlencode

import structlog

from emulator.core.client_keys import KeyedClient, grant_of
from emulator.core.errors import BadRequest, Unauthorized
from emulator.core.wire import state_names, without
from emulator.settings.settings import Settings
from emulator.upstream.guarded import GuardedUpstream, TakeSlot
from emulator.upstream.interface import (
    Messages,
    ModelRow,
    PassedOnResponse,
    Upstream,
    UpstreamReply,
)
from emulator.upstream.metering import Spend, open_metered, pass_on_metered
from emulator.upstream.model_list import abilities
from emulator.upstream.named_model import find_model
from emulator.upstream.pass_through import PassedOnRequest
from emulator.upstream.permissions import check_model, check_passed_on, query_fields
from emulator.upstream.routes import Route, Routes, Target
from emulator.upstream.windows import Windows

log = structlog.get_logger()

_LISTING_SECONDS = 60
"""How long a model list is cached."""
_MAX_LISTINGS = 256
OpenUpstream = Callable[[Target], Upstream]


class TokenBudget(Protocol):
    """How many tokens each client may still use. Safe to share between threads."""

    def check(self, client: str) -> None:
        """Raises `RateLimited` if the client's budget is spent."""

    def spend(self, client: str, tokens: int) -> None: ...


@dataclass(frozen=True)
class AnswerUpstream:
    """An upstream as one answer uses it: the client's key, the answer's deadline and the budget are bound."""

    upstream: GuardedUpstream
    route: Route
    windows: Windows
    key: str | None
    until: float
    spend: Spend | None
    first_token_seconds: float = math.inf
    """How long the first turn may be silent before a fallback is asked."""
    _turns: Iterator[int] = field(default_factory=count, init=False)

    def open(self, messages: Messages, fields: Mapping[str, Any]) -> UpstreamReply:
        """Send one turn. ``fields`` are the request's other fields. Raises `UpstreamFailed`."""
        self.windows.check(self.route, messages, fields)
        named = {**fields, "model": self.route.model}
        first = math.inf
        if next(self._turns) == 0:
            first = time.monotonic() + self.first_token_seconds
        open_reply = partial(self.upstream.open, messages, named, self.until, self.key, first)
        reply = open_metered(self.route.target.name, messages, named, self.spend, open_reply)
        reply.on_close(partial(self.windows.answered, self.route))
        return reply


class Upstreams:
    """Safe to share between threads."""

    def __init__(
        self,
        settings: Settings,
        open_upstream: OpenUpstream | None = None,
        budget: TokenBudget | None = None,
        take_slot: TakeSlot | None = None,
    ) -> None:
        """For ``take_slot`` see `GuardedUpstream`."""
        self._take_slot = take_slot
        self.routes = Routes(settings)
        self.windows = Windows(self.routes)
        self._answer_seconds = settings.answer_seconds
        self._open_upstream = open_upstream or _open_upstream
        self._closes_upstreams = open_upstream is None
        self._budget = budget
        self._lock = threading.Lock()
        self._guarded: dict[str, GuardedUpstream] = {}
        self._listings: dict[tuple[str, str | None], tuple[float, list[ModelRow]]] = {}

    def route(self, model: str, client: str, fields: Mapping[str, object] | None = None) -> Route:
        """Where a client's request for ``model`` goes; ``fields`` are the request's other fields.

        Raises `NotFound`, or `Forbidden` if the client's key may not use that model.
        """
        check_model(grant_of(client), model, fields)
        return self.routes.of(model)

    def for_answer(
        self, route: Route, client: str, until: float, *, has_fallback: bool = False
    ) -> AnswerUpstream:
        """The upstream for the turns of one answer, which share the deadline ``until`` (monotonic).

        Raises `Unauthorized` if the client's own key is required and missing, and `RateLimited` if the
        client's budget is spent.
        """
        spend = self._spend(client)
        key = key_for(route.settings, client)
        seconds = route.settings.first_token_seconds if has_fallback else math.inf
        upstream = self.of(route.target)
        return AnswerUpstream(upstream, route, self.windows, key, until, spend, seconds)

    def deadline(self) -> float:
        """The deadline (monotonic) of an answer that begins now."""
        return time.monotonic() + self._answer_seconds

    def of(self, target: Target) -> GuardedUpstream:
        with self._lock:
            if target.name not in self._guarded:
                self._guarded[target.name] = GuardedUpstream(
                    self._open_upstream(target), target.settings, target.name, self._take_slot
                )
            return self._guarded[target.name]

    def models(self, client: str) -> list[dict[str, Any]]:
        """The models that the client may use: each once, from the upstream that serves it, and the aliases.

        An upstream that does not return its list is omitted. Raises `UpstreamFailed` if none returns one.
        """
        routes = self.routes
        with ThreadPoolExecutor(len(routes.targets)) as pool:
            listings = [
                pool.submit(copy_context().run, self._models, target, client)
                for target in routes.targets
            ]
        found: dict[str, dict[str, Any]] = {}
        failures: list[BaseException] = []
        for target, listing in zip(routes.targets, listings, strict=True):
            if error := listing.exception():
                failures.append(error)
                log.warning("an upstream does not list its models", upstream=target.name)
                continue
            for model in listing.result():
                name = target.client_name(model["id"])
                if target.serves(name) and routes.of(name).target is target:
                    owner = model["owned_by"] if len(routes.targets) == 1 else None
                    row = {**model, "id": name, "object": "model"}
                    row |= {"owned_by": owner or target.name}
                    found.setdefault(name, row | self._abilities(row, routes.of(name)))
        if failures and len(failures) == len(listings):
            raise failures[0]
        for alias in routes.aliases:
            route = routes.of(alias)
            known = found.get(route.client_model) or {
                "object": "model",
                "created": 0,
                **self._abilities({}, route),
            }
            found.setdefault(alias, {**known, "id": alias, "owned_by": route.target.name})
        grant = grant_of(client)
        from openai.types import Model  # half a second and 27 MiB, for those who list models

        allowed = (Model(**row) for name, row in found.items() if grant.may_use(name))
        return [model.to_dict() for model in allowed]

    def _abilities(self, row: ModelRow, route: Route) -> dict[str, Any]:
        return abilities(row, route.context_length, is_loaded=self.windows.is_loaded(route))

    def pass_on(self, request: PassedOnRequest, client: str) -> PassedOnResponse:
        """Send a request as it is to the upstream of the model that its body names.

        Raises `NotFound`, `Forbidden`, `RateLimited`, `BadRequest` and `UpstreamFailed`.
        """
        content_type = request.headers.get("content-type", "")
        named = find_model(request.body, content_type)
        grant = grant_of(client)
        check_passed_on(grant, request.path, request.query, named)
        spend = self._spend(client)
        target, model = self.routes.default(), named.name
        if named.name is not None:
            route = self.routes.of(named.name)
            target, model = route.target, route.model
        state: list[str] = []
        # What is checked is what is sent: other parsers may read other fields in the same bytes.
        is_checked = model is not None and not grant.any_model
        if target.settings.wants_keys:
            if named.is_unreadable:
                raise BadRequest("The body is not JSON.")
            state = state_names(named.json_fields, target.settings.pass_fields)
            named = replace(named, json_fields=without(named.json_fields, state))
            is_checked |= bool(named.json_fields)
        if is_checked or model != named.name:
            body, content_type = named.written(model)
            headers = {**request.headers, "content-type": content_type}
            query = urlencode(query_fields(request.query)).encode()
            request = replace(request, body=body, headers=headers, query=query)
        key = key_for(target.settings, client)
        send = partial(self.of(target).pass_on, request, self.deadline(), key)
        request_chars = len(request.body) if "json" in content_type else 0
        response = pass_on_metered(
            target.name, request.path, named.name, request_chars, spend, send
        )
        return replace(response, ignored=tuple(state))

    def _spend(self, client: str) -> Spend | None:
        """What charges the client for the tokens of a request. Raises `RateLimited`."""
        if self._budget is None or not grant_of(client).has_budget:
            return None
        self._budget.check(client)
        return partial(self._budget.spend, client)

    def close(self) -> None:
        """Close the upstreams, except those of a caller's ``open_upstream``."""
        for guarded in self._guarded.values() if self._closes_upstreams else ():
            guarded.upstream.close()

    def _models(self, target: Target, client: str) -> list[ModelRow]:
        """One upstream's list, requested at most once a minute for each key."""
        # Nothing says for which of several servers the client's key is.
        servers = {t.server for t in self.routes.targets if t.settings.pass_client_key}
        key = key_for(target.settings, client) if len(servers) == 1 else None
        until, models = self._listings.get((target.name, key), (0.0, []))
        if time.monotonic() < until:
            return models
        models = self.of(target).upstream.models(key)
        if len(self._listings) >= _MAX_LISTINGS:
            self._listings.clear()
        self._listings[target.name, key] = (time.monotonic() + _LISTING_SECONDS, models)
        return models


def key_for(settings: Settings, client: str) -> str | None:
    """The client's own key, if that must be sent. Raises `Unauthorized` if it is missing."""
    if not settings.pass_client_key:
        return None
    key = client.key if isinstance(client, KeyedClient) else ""
    if not key:
        raise Unauthorized(
            "This model needs your own key for its provider (Authorization: Bearer ...).",
            code="invalid_api_key",
        )
    return key


def _open_upstream(target: Target) -> Upstream:
    # Imports the SDK, which takes half a second.
    from emulator.upstream.client import OpenAIUpstream

    return OpenAIUpstream(target.settings, target.row.headers, target.row.query)
