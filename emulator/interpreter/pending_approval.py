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


@dataclass(eq=False)
class PendingApproval:
    id: str
    """Of a cell: ``exec_...``, the id of the execution if it is approved. Of a hosted call: its id."""
    owner: str
    """The container of a cell, or the client of a hosted call."""
    code: str
    """The cell, or the call as people read it."""
    since: float
    """Unix time."""
    decision: ApprovalDecision | None = None
    """The decision that counts, once it is taken."""
    refusal: ApprovalDecision | None = None
    """What its process decides if nobody was faster."""
    changed: threading.Event = field(default_factory=threading.Event)
    """Set when it is decided or refused."""
    taking: threading.Lock = field(default_factory=threading.Lock)
    """Held while its row is renewed, taken or removed."""

    def refuse(self, refusal: ApprovalDecision) -> None:
        """Ask the waiting thread to decline it. No effect after a decision. Does not block."""
        self.refusal = self.refusal or refusal
        self.changed.set()

    def give_up(self, refusal: ApprovalDecision | None) -> None:
        """Decide without the database, unless a person was faster."""
        with self.taking:
            if self.decision is None:
                self.decision = refusal
