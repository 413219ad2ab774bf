"""Check in the background, when the proxy starts, whether the upstreams answer, and log the result.

While all answer, nothing is checked again. While one does not, reading `Reachability.problems` may start
another check, so that its recovery is noticed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import structlog

from emulator.core import addresses
from emulator.core.errors import UpstreamFailed
from emulator.upstream.routes import Target
from emulator.upstream.servers import (
    UNKNOWN,
    ServerKind,
    describe_models,
    identify_server,
)
from emulator.upstream.upstreams import Upstreams

log = structlog.get_logger()

_RECHECK_SECONDS = 5.0
_KEY_REFUSED = (401, 403)


class Reachability:
    """Safe to share between threads."""

    def __init__(self, upstreams: Upstreams) -> None:
        self._upstreams = upstreams
        self._lock = threading.Lock()
        self._problems: dict[str, str] = {}
        self.key_refusals: dict[str, str] = {}
        """Base URLs whose server refused the configured key, with its message."""
        self.hints: dict[str, str] = {}
        """Base URLs without a list of models, with what may be meant instead."""
        self.servers: Mapping[str, ServerKind] = {}
        """Base URLs with the kind of server found there; unidentified servers are omitted."""
        self._is_checking = False
        self._checked_at = 0.0
        self._checked = threading.Event()
        self._model = ""

    def start_check(self) -> None:
        """Check now, in the background, unless a check is running."""
        with self._lock:
            if self._is_checking:
                return
            self._is_checking = True
        threading.Thread(target=self._check_once, name="reachability", daemon=True).start()

    def problems(self) -> Mapping[str, str]:
        """The base URLs of upstreams that did not answer, with the reason."""
        problems = self._problems
        if problems and time.monotonic() - self._checked_at > _RECHECK_SECONDS:
            self.start_check()
        return problems

    def can_serve(self, problems: Mapping[str, str]) -> bool:
        """Return True if an upstream is without one of these problems."""
        targets = self._upstreams.routes.targets
        return any(addresses.shown_url(t.settings.base_url) not in problems for t in targets)

    def model(self, seconds: float) -> str:
        """The name of an available model; "" if none is known within ``seconds``."""
        self._checked.wait(seconds)
        return self._model

    def check(self) -> None:
        """Check now, and wait for the result."""
        problems: dict[str, str] = {}
        for target in self._upstreams.routes.targets:
            url = addresses.shown_url(target.settings.base_url)
            if reason := self._problem(target, url):
                problems[url] = reason
                if url not in self._problems:
                    log.warning("upstream %s", _no_answer(url, reason))
            elif url in self._problems:
                log.info("upstream %s answers", url)
        self._problems = problems

    def describe(self, target: Target) -> tuple[str, bool]:
        """Return the kind of server that the last check found, or the problem; and whether it is usable."""
        url = addresses.shown_url(target.settings.base_url)
        if reason := self._problems.get(url):
            return _no_answer(url, reason), False
        if hint := self.hints.get(url):
            return f"{url} has no /models; {hint}", False
        if reason := self.key_refusals.get(url):
            return _key_refusal(url, reason), False
        if target.settings.local_model:
            return f"{url} is embedded", True
        return f"{url} is {self.servers.get(url, 'a server of unknown kind')}", True

    def _check_once(self) -> None:
        try:
            self.check()
        finally:
            self._checked_at = time.monotonic()
            self._is_checking = False
            self._checked.set()

    def _problem(self, target: Target, url: str) -> str:
        try:
            upstream = self._upstreams.of(target).upstream
            models = upstream.models(None)
        except UpstreamFailed as error:
            if error.status in _KEY_REFUSED:
                if not target.settings.pass_client_key:
                    self.key_refusals[url] = error.message
                    log.warning("upstream %s", _key_refusal(url, error.message))
                return ""
            if error.status < 500:
                # Some servers have no model list.
                if hint := addresses.missing_path(url):
                    self.hints[url] = hint
                    log.warning("upstream %s has no /models; %s", url, hint)
                return ""
            return error.message
        server = identify_server(url, [model["owned_by"] for model in models], upstream.at_root)
        if server is not UNKNOWN:
            # Nobody chooses how the embedded model is asked.
            if self.servers.get(url) is not server and not target.settings.local_model:
                log.info("upstream %s is %s", url, server)
            self.servers = {**self.servers, url: server}
        described = describe_models(models, server, upstream.at_root)
        self._upstreams.routes.descriptions[target.name] = described
        self._upstreams.windows.identified(target.name, server, upstream, models)
        if models and not self._model:
            self._model = target.client_name(models[0]["id"])
        return ""


def _no_answer(url: str, reason: str) -> str:
    hint = addresses.missing_path(url)
    return f"{url} does not answer: {reason}{hint and f'; {hint}'}"


def _key_refusal(url: str, reason: str) -> str:
    return f"{url} refuses the key (--api-key): {reason}"
