"""What the engine needs of a running kernel, here or elsewhere. Imports no library that speaks to kernels."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from sandbox.errors import SandboxDied

Message = dict[str, Any]
NOTHING: Mapping[str, str] = MappingProxyType({})

LARGEST_MESSAGE = 4 * 1024 * 1024
LONGEST_QUEUE = 32
"""Messages of one channel that the host holds unread: with the size, a bound on its memory."""


class Connected(Protocol):
    """A running kernel as the engine uses it; `WarmPool` keeps these."""

    def execute(
        self, code: str, *, silent: bool = False, expressions: Mapping[str, str] = NOTHING
    ) -> str: ...
    def answer(self, value: str) -> None: ...
    def messages(self, seconds: float) -> Iterator[tuple[str, Message]]: ...
    def barrier(self) -> str | None: ...
    def address(self) -> dict[str, str] | None: ...
    def leave(self) -> None: ...
    def interrupt(self) -> None: ...
    def alive(self) -> bool: ...
    def kill(self) -> None: ...
    def dispose(self) -> None: ...


def run_own(kernel: Connected, source: str, seconds: float) -> None:
    """Run our own code, before any program. Raises TimeoutError, SandboxDied."""
    sent = kernel.execute(source, silent=True)
    done = set()
    for channel, message in kernel.messages(seconds):
        if message["parent_header"].get("msg_id") != sent:
            continue
        if channel == "shell" and message["content"]["status"] != "ok":
            raise SandboxDied(f"the stub does not load: {message['content']}")
        if channel == "shell" or message["content"].get("execution_state") == "idle":
            done.add(channel)
        if done == {"shell", "iopub"}:
            return
