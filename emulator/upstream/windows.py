"""How long the models' contexts are, as their servers say at the time, and which prompts cannot fit.

    server identified ──► its lengths are known
    an answer has ended ──► asked again in the background, if the server loads models on demand
    a prompt of more than twice the length ──► asked again ──► an error, or the request is sent

An operator may start a server, or load a model, again with another context. An estimate refuses only what is
twice too long, since tokenizers differ; the server decides about the rest. Knows no HTTP.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from emulator.core.errors import UpstreamFailed
from emulator.upstream.failures import context_exceeded
from emulator.upstream.interface import Messages, ModelRow, Upstream
from emulator.upstream.metering import estimate_tokens
from emulator.upstream.routes import Route, Routes, of_model
from emulator.upstream.servers import ServerKind, context_lengths, loaded_lengths

_ASK_SECONDS = 30.0
"""How long what a server has loaded is believed, while it answers."""
_CERTAIN = 2
"""How many times longer than the context a prompt must seem, at four characters a token."""


class Windows:
    """Updates the lengths of `Routes`. Safe to share between threads."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._lock = threading.Lock()
        self._servers: dict[str, tuple[ServerKind, Upstream]] = {}
        """By the name of the target."""
        self._asked_at: dict[str, float] = {}

    def identified(
        self, target: str, server: ServerKind, upstream: Upstream, models: Sequence[ModelRow]
    ) -> None:
        """Read the lengths of a server's ``models``."""
        listed = context_lengths(models, server, upstream.at_root)
        loaded = self._record(target, loaded_lengths(server, upstream.at_root))
        # In this order, or a loaded model would for a moment seem to be none.
        self._servers[target] = (server, upstream)
        self._routes.context_lengths[target] = {**listed, **loaded}

    def is_loaded(self, route: Route) -> bool:
        """Return False if the server will load the model at its first request, with an unknown context."""
        loaded = self._routes.loaded_lengths.get(route.target.name, {})
        return not self._loads_on_demand(route) or of_model(loaded, route.model) is not None

    def answered(self, route: Route) -> None:
        """An answer has ended: ask for the context in the background, if the model may be loaded anew."""
        if not self._loads_on_demand(route):
            return
        target, now = route.target.name, time.monotonic()
        with self._lock:
            asked_at = self._asked_at.get(target, -math.inf)
            if self.is_loaded(route) and now < asked_at + _ASK_SECONDS:
                return
            self._asked_at[target] = now
        threading.Thread(
            target=self._loaded, args=(target,), name="context length", daemon=True
        ).start()

    def check(self, route: Route, messages: Messages, fields: Mapping[str, Any]) -> None:
        """Raises `UpstreamFailed` if the prompt's text cannot fit the context. Images are not counted."""
        if not route.context_length or route.target.name not in self._servers:
            return
        tokens = estimate_tokens(messages, fields.get("tools") or (), image_tokens=0)
        if tokens <= _CERTAIN * route.context_length:
            return
        # None if the server has unloaded the model since, or is away: it will say itself what fits.
        length = of_model(self._lengths(route.target.name), route.model)
        if length is not None and tokens > _CERTAIN * length:
            server, _ = self._servers[route.target.name]
            setting = server.longer_window(tokens)
            raise context_exceeded(tokens, length, setting and f"{server.name}: {setting}")

    def _loads_on_demand(self, route: Route) -> bool:
        known = self._servers.get(route.target.name)
        return known is not None and known[0].loads_on_demand

    def _lengths(self, target: str) -> Mapping[str, int]:
        """Ask for the lengths that count; empty if the server does not answer."""
        server, upstream = self._servers[target]
        if server.loads_on_demand:
            return self._loaded(target)
        lengths: Mapping[str, int] = {}
        with suppress(UpstreamFailed):
            lengths = context_lengths(upstream.models(None), server, upstream.at_root)
        return self._record(target, lengths)

    def _loaded(self, target: str) -> Mapping[str, int]:
        server, upstream = self._servers[target]
        return self._record(target, loaded_lengths(server, upstream.at_root))

    def _record(self, target: str, lengths: Mapping[str, int]) -> Mapping[str, int]:
        with self._lock:
            known = self._routes.loaded_lengths.get(target, {})
            self._routes.loaded_lengths[target] = {**known, **lengths}
        return lengths
