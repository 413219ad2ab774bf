"""A cell or a hosted call that waits for a person's approval, and the decision. Does not know who decides."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ApprovalDecision:
    """``code`` replaces the cell's code, if the person edited it; ``reason`` says why it must not run."""

    approved: bool
    code: str | None = None
    reason: str = ""


DISCONNECTED = ApprovalDecision(approved=False, reason="the client that sent it has disconnected")


@dataclass(frozen=True, eq=False)
class PendingApproval:
    id: str
    """Of a cell: ``exec_...``, the id of the execution if it is approved. Of a hosted call: its id."""
    owner: str
    """The container of a cell, or the client of a hosted call."""
    code: str
    """The cell, or the call as people read it."""
    since: float
    """Unix time."""
    sharing: threading.Lock = field(default_factory=threading.Lock)
    """Held while the record for other replicas is written or deleted."""
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
        """The decision, or None after ``seconds``."""
        self._decided.wait(seconds)
        return self.decision
