"""Cells that wait for a person's word. Knows nothing of kernels or HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from emulator.errors import NotFound


@dataclass(frozen=True)
class Decision:
    """``code`` is what to run instead, if it was edited; ``reason`` why nothing is to run."""

    approved: bool
    code: str | None = None
    reason: str = ""


GONE = Decision(approved=False, reason="the client that asked for it has gone")


@dataclass(frozen=True, eq=False)
class Held:
    """A cell that may not run yet."""

    id: str
    """``exec_...``, the id of the execution that it will be."""
    container_id: str
    code: str
    since: float
    _decided: threading.Event = field(default_factory=threading.Event)
    _decision: list[Decision] = field(default_factory=list)

    def decide(self, decision: Decision) -> None:
        """The first decision counts. Callable from any thread."""
        self._decision.append(decision)
        self._decided.set()

    def wait(self, seconds: float) -> Decision:
        """The decision; no decision in ``seconds`` means no."""
        if not self._decided.wait(seconds):
            self.decide(Decision(approved=False, reason=f"nobody approved it within {seconds:g} s"))
        return self._decision[0]


class Approvals:
    """The held cells of all containers. Safe to share between threads."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._held: dict[str, Held] = {}

    def hold(self, execution_id: str, container_id: str, code: str) -> Held:
        """Hold a cell until it is decided on; `release` must follow."""
        held = Held(execution_id, container_id, code, self._now())
        with self._lock:
            self._held[held.id] = held
        return held

    def release(self, held: Held) -> None:
        with self._lock:
            self._held.pop(held.id, None)

    def of(self, container_id: str) -> list[Held]:
        """The cells that wait in one container, the oldest first."""
        with self._lock:
            return [held for held in self._held.values() if held.container_id == container_id]

    def decide(self, container_id: str, execution_id: str, decision: Decision) -> Held:
        """Raises `NotFound` if no such cell waits in that container."""
        for held in self.of(container_id):
            if held.id == execution_id:
                held.decide(decision)
                return held
        raise NotFound(
            f"No execution {execution_id!r} waits for approval in this container.",
            code="execution_not_found",
        )

    def drop(self, container_id: str) -> None:
        """The container has gone: nothing of it will run."""
        for held in self.of(container_id):
            held.decide(Decision(approved=False, reason="the container has gone"))
