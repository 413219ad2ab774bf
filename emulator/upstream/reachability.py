"""Whether the upstreams answer: asked once when the proxy starts, in the background, and told in the log.

After that nothing is asked while all is well. Where something was not, each look at `problems` may ask
again, so that it is seen to be over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

import structlog

from emulator.errors import UpstreamFailed
from emulator.settings import Settings
from emulator.upstream.failures import shown
from emulator.upstream.routes import Target
from emulator.upstream.servers import UNKNOWN, Server, server_of
from emulator.upstream.upstreams import Upstreams

log = structlog.get_logger()

_AGAIN_SECONDS = 5.0
_REFUSED = (401, 403)


class Reachability:
    """Safe to share between threads."""

    def __init__(self, upstreams: Upstreams, now: Callable[[], float] = time.monotonic) -> None:
        self._upstreams = upstreams
        self._now = now
        self._lock = threading.Lock()
        self._problems: dict[str, str] = {}
        self._servers: dict[str, Server] = {}
        self._asking = False
        self._asked_at = 0.0
        self._asked = threading.Event()
        self._model = ""

    def begin(self) -> None:
        """Ask now, in the background."""
        with self._lock:
            if self._asking:
                return
            self._asking = True
        threading.Thread(target=self._ask, name="reachability", daemon=True).start()

    def problems(self) -> Mapping[str, str]:
        """Base URLs of upstreams that did not answer, and why, as far as is known."""
        found = self._problems
        if found and self._now() - self._asked_at > _AGAIN_SECONDS:
            self.begin()
        return found

    def servers(self) -> Mapping[str, Server]:
        """Base URLs, and which server was found there; those of which nothing tells are left out."""
        return self._servers

    def model(self, seconds: float) -> str:
        """A model that there is; "" if that is not known within ``seconds``."""
        self._asked.wait(seconds)
        return self._model

    def _ask(self) -> None:
        try:
            self.look()
        finally:
            self._asked_at = self._now()
            self._asking = False
            self._asked.set()

    def look(self) -> None:
        """Ask now, and wait for it."""
        found: dict[str, str] = {}
        for target in self._upstreams.routes.targets:
            url = shown(target.settings.base_url)
            if reason := self._problem(target, url):
                found[url] = reason
                if url not in self._problems:
                    log.warning("upstream %s does not answer: %s", url, reason)
            elif url in self._problems:
                log.info("upstream %s answers", url)
        self._problems = found

    def _problem(self, target: Target, url: str) -> str:
        try:
            models = self._upstreams.of(target).upstream.models(None)
        except UpstreamFailed as error:
            if error.status in _REFUSED:
                if not target.settings.pass_client_key:
                    log.warning("upstream %s refuses the key: %s", url, error.message)
                return ""
            if error.status < 500:
                # Not every server has a list of models; but one without /v1 is often a slip.
                if not urlsplit(url).path:
                    log.warning("upstream %s has no /models; did you mean %s/v1?", url, url)
                return ""
            return error.message
        server = server_of(url, models, self._upstreams.of(target).upstream.at_root)
        if server is not UNKNOWN:
            if self._servers.get(url) is not server:
                log.info("upstream %s is %s", url, server)
            self._servers = {**self._servers, url: server}
        if models and not self._model:
            self._model = target.our_name(str(models[0].get("id") or ""))
        return ""


def asked(settings: Settings) -> Iterator[str]:
    """Of each upstream a line: what it is, or why it does not answer."""
    upstreams = Upstreams(settings)
    try:
        reachability = Reachability(upstreams)
        reachability.look()
        for target in upstreams.routes.targets:
            url = shown(target.settings.base_url)
            if reason := reachability.problems().get(url):
                yield f"{url} does not answer: {reason}"
            else:
                server = reachability.servers().get(url, "a server that does not tell what it is")
                yield f"{url} is {server}"
    finally:
        upstreams.close()
