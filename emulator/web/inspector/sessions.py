"""Browsers that have signed in: in the memory of this process, or of the keeper that workers share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Protocol

import structlog

from emulator.shared.wire import Handler, Unreachable, Wire

log = structlog.get_logger()

_MOST = 1000


class Sessions(Protocol):
    """Digest of a token -> until when (monotonic), and the key: a withdrawn one opens nothing."""

    def get(self, digest: str) -> tuple[float, str]:
        """``(0.0, "")`` where there is none."""
        ...

    def put(self, digest: str, until: float, key: str) -> None: ...

    def drop(self, digest: str) -> None: ...


class OwnSessions:
    """See `Sessions`. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def get(self, digest: str) -> tuple[float, str]:
        with self._lock:
            return self._sessions.get(digest, (0.0, ""))

    def put(self, digest: str, until: float, key: str) -> None:
        with self._lock:
            self._sessions[digest] = (until, key)
            while len(self._sessions) > _MOST:
                self._sessions.popitem(last=False)

    def drop(self, digest: str) -> None:
        with self._lock:
            self._sessions.pop(digest, None)


class RemoteSessions:
    """See `Sessions`: those that the keeper has. Where it cannot be reached nobody has signed in."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def get(self, digest: str) -> tuple[float, str]:
        until, key = self._ask("sessions_get", digest) or (0.0, "")
        return until, key

    def put(self, digest: str, until: float, key: str) -> None:
        self._ask("sessions_put", digest, until, key)

    def drop(self, digest: str) -> None:
        self._ask("sessions_drop", digest)

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return self._wire.ask_one(name, arguments)
        except Unreachable as error:
            log.warning("sign-ins are not known", reason=str(error))
            return None


def handlers() -> dict[str, Handler]:
    """What answers in the keeper."""
    sessions = OwnSessions()

    def get(asked: Any) -> Iterator[Any]:
        yield sessions.get(*asked)

    def put(asked: Any) -> Iterator[Any]:
        sessions.put(*asked)
        yield True

    def drop(asked: Any) -> Iterator[Any]:
        sessions.drop(*asked)
        yield True

    return {"sessions_get": get, "sessions_put": put, "sessions_drop": drop}
