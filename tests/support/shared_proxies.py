"""Proxies that the tests of one process use in turn: to open one takes most of a short test's CPU.

A proxy is shared by tests with the same settings. After each test it forgets what it has stored, and learned
of models. If the test leaves more than that (files, containers, background responses, approvals, failures of
an upstream), the proxy is closed instead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.support.serving import serve

MAX_OPEN = 8
OWN = frozenset(
    "now hosted database files_dir base_url upstreams mcp web_search client_keys"
    " client_keys_file container_bytes interpreter_seconds log_bodies ping_seconds max_body_bytes"
    " inspector".split()
)
"""Arguments of tests that need a proxy of their own: they look at what it keeps, its clock or its limits."""


class SharedProxies:
    def __init__(self, open_engines: Callable[[Any], dict[str, Any]]) -> None:
        self._open_engines = open_engines
        self._open: OrderedDict[str, _SharedProxy] = OrderedDict()
        self._used: dict[str, _SharedProxy] = {}

    def url(self, settings: dict[str, Any]) -> str | None:
        """The URL of a proxy with these settings, or None if the current test has that proxy already."""
        key = repr(sorted(settings.items()))
        if key in self._used:
            return None
        if key not in self._open:
            self._open[key] = _SharedProxy(settings, self._open_engines)
        self._open.move_to_end(key)
        self._used[key] = self._open[key]
        return self._open[key].url

    def end_test(self) -> None:
        for key, proxy in self._used.items():
            if not proxy.forget():
                self._open.pop(key).close()
        self._used.clear()
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)[1].close()

    def close(self) -> None:
        for proxy in self._open.values():
            proxy.close()


class _SharedProxy:
    def __init__(
        self, settings: dict[str, Any], open_engines: Callable[[Any], dict[str, Any]]
    ) -> None:
        from app import create_app
        from emulator.settings.settings import Settings

        with ExitStack() as opening:
            made = Settings(**settings)
            app = create_app(made, **open_engines(made))
            self._services = app.extensions["emulator"]
            opening.callback(self._services.close)
            self.url = opening.enter_context(serve(app))
            self.close = opening.pop_all().close

    def forget(self) -> bool:
        """Forget what a test has left. Returns False if that is more than values in the store."""
        services = self._services
        database = services.stores.database
        kept = "SELECT 1 FROM contents UNION ALL SELECT 1 FROM containers"
        if database.one(kept) is not None:
            return False
        if services.background._runs or services.approvals._pending or services.upstreams._listings:
            return False
        for guarded in services.upstreams._guarded.values():
            if any(breaker._failures for breaker in guarded._breakers._breakers):
                return False
        habits = services.pipeline.habits
        for learned in (habits._dialects, habits._starts, services.pipeline.probe._known):
            learned.clear()
        for table in ("documents", "journal", "leases", "slots", "rates", "spent"):
            database.run(f"DELETE FROM {table}")
        return True
