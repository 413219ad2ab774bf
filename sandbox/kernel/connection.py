"""What a session needs of a running kernel, here or elsewhere. Knows neither jupyter_client nor websockets.

Jupyter's channels (jupyter-client.readthedocs.io, "Messaging in Jupyter"), as they are used here:

| channel | from the host | from the kernel |
|---|---|---|
| shell | `execute_request` | `execute_reply`: it has run |
| iopub | | `stream`, `display_data`, `execute_result`; `status`: idle when all of its output has been sent |
| stdin | `input_reply` | `input_request`: the program calls an offered function, or ``input()`` |

Each message of the kernel names the request that it belongs to in its parent header.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from sandbox.errors import SandboxDied

Message = dict[str, Any]
NOTHING: Mapping[str, str] = MappingProxyType({})

LARGEST_MESSAGE = 4 * 1024 * 1024
"""Bytes. A larger one ends the connection."""
LONGEST_QUEUE = 32
"""Unread messages of one channel in the host. With their size, a bound on its memory."""


class KernelConnection(Protocol):
    """A running kernel. Used by one thread at a time, except `interrupt`, `alive` and `kill`."""

    def execute(
        self, code: str, *, silent: bool = False, expressions: Mapping[str, str] = NOTHING
    ) -> str:
        """Send code to run; return the id that its messages name as their parent. Raises SandboxDied.

        `expressions` are evaluated after it; their values are in the reply on the shell channel.
        """

    def reply(self, value: str) -> None:
        """Answer an input request. Raises SandboxDied."""

    def messages(self, seconds: float) -> Iterator[tuple[str, Message]]:
        """Yield (channel, message) as they come.

        Raises TimeoutError if `seconds` have passed before the consumer stops, SandboxDied if the kernel
        ends, SandboxLimit if it ended for want of memory.
        """

    def barrier(self) -> str | None:
        """Request a message on iopub that follows all output so far; return the id of its parent.

        None if output precedes the calls made after it anyway.
        """

    def address(self) -> dict[str, str] | None:
        """What another process needs to connect to this kernel, or None if it has ended."""

    def detach(self) -> None:
        """Close the connection: another process uses the kernel."""

    @property
    def is_used_elsewhere(self) -> bool:
        """This process started the kernel and must keep it for others (`detach`)."""

    def interrupt(self) -> None: ...
    def alive(self) -> bool: ...
    def kill(self) -> None: ...
    def dispose(self) -> None:
        """End the kernel, wait for its end and release everything."""


def run_own(kernel: KernelConnection, source: str, seconds: float) -> None:
    """Run our own code, before any program. Raises TimeoutError, SandboxDied."""
    request = kernel.execute(source, silent=True)
    done = set()
    for channel, message in kernel.messages(seconds):
        if message["parent_header"].get("msg_id") != request:
            continue
        if channel == "shell" and message["content"]["status"] != "ok":
            raise SandboxDied(f"the stub does not load: {message['content']}")
        if channel == "shell" or message["content"].get("execution_state") == "idle":
            done.add(channel)
        if done == {"shell", "iopub"}:
            return


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
