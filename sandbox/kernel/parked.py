"""A session that another process can continue: where its kernel is, and the state of the session.

It is data and is stored as JSON, so its field names stay. A process that has it, and the gateway's token,
controls the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ParkedSession:
    """A session between two pieces, or while its cell is paused."""

    address: Mapping[str, str]
    """As returned by `sandbox.kernel.gateway.GatewayKernel.address`."""
    marker: str
    """Marks the calls of the session's stub."""
    names: tuple[str, ...] = ()
    """Functions whose calls pause."""
    running: str | None = None
    """The request that the paused cell belongs to."""
    ahead: bool = False
    """The stub expects a list of results."""
    pauses: int = 0
    left: float = 0.0
    """Seconds that the paused cell may still run."""
    sizes: Mapping[str, int] | None = None
    """Output of the paused cell so far: bytes of text, of pictures."""

    @property
    def paused(self) -> bool:
        return self.running is not None
