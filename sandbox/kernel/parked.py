"""A kernel's session as another process goes on with it: where the kernel is, and how far the session was.

Data, to be kept as JSON; whoever has it, and the gateway's token, has the kernel. Stops and runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Parked:
    """Of one session, between two pieces or while its cell is paused."""

    address: Mapping[str, str]
    """As `sandbox.kernel.gateway.GatewayKernel.address` gives it."""
    marker: str
    """By which the session knows the calls of its stub."""
    names: tuple[str, ...] = ()
    """Functions whose calls pause."""
    running: str | None = None
    """The request that the paused cell is part of."""
    ahead: bool = False
    """The paused call takes a list of results."""
    pauses: int = 0
    left: float = 0.0
    """Seconds that the paused cell may still run."""
    sizes: Mapping[str, int] | None = None
    """What the paused cell has put out: bytes of text, of pictures."""

    @property
    def paused(self) -> bool:
        return self.running is not None
