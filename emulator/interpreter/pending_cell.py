"""A cell that waits for a person's word, and that word. Knows nothing of who asks or of replicas."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ApprovalDecision:
    """``code`` is what to run instead, if it was edited; ``reason`` why nothing is to run."""

    approved: bool
    code: str | None = None
    reason: str = ""


DISCONNECTED = ApprovalDecision(approved=False, reason="the client that asked for it has gone")


@dataclass(frozen=True, eq=False)
class PendingCell:
    """A cell that may not run yet."""

    id: str
    """``exec_...``, the id of the execution that it will be."""
    container_id: str
    code: str
    since: float
    telling: threading.Lock = field(default_factory=threading.Lock)
    """For who tells other replicas of it, or that it waits no more."""
    _decided: threading.Event = field(default_factory=threading.Event)
    _decision: list[ApprovalDecision] = field(default_factory=list)

    def decide(self, decision: ApprovalDecision) -> None:
        """The first decision counts. Callable from any thread."""
        self._decision.append(decision)
        self._decided.set()

    @property
    def decision(self) -> ApprovalDecision | None:
        return self._decision[0] if self._decision else None

    def wait(self, seconds: float) -> ApprovalDecision | None:
        """The decision, if there is one within ``seconds``."""
        self._decided.wait(seconds)
        return self.decision
