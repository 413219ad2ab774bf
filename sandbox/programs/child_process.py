"""Stops: a child from blocking the host, from running past its time, and from using the memory of the host.
Each wait has a deadline, nothing blocks in a send, and what a child sends is bounded (`messages`).

Does not stop: a child that computes while the host does not ask and before `rest`: its CPU limit does
(`inside.fence`).

States of a child: *running* (has a running slot) -> *resting* (`rest`: has a waiting slot, and its process is
stopped) -> *running* (the next `ask`) -> *closed*. Any error, and `kill`, end the process; the child is still
to be closed.

What may never happen: a child that is not closed has no slot; a slot is released while the process runs;
`kill` uses a pidfd that `close` has closed.
"""

import contextlib
import math
import select
import signal
import socket
import threading
import time
from typing import Any, Self

from sandbox.engine import Limits
from sandbox.errors import SandboxDied, SandboxError, SandboxTimeout
from sandbox.programs.messages import Reader, encode
from sandbox.programs.server_process import Handle
from sandbox.programs.slots import RunningSlots, WaitingSlots

_PART = 256 * 1024
_MOST_RESTING = 32 * 2**20
"""Bytes of memory of a child that rests."""


class ChildProcess:
    """One run. One thread at a time may use it, except `kill`. A context manager that closes it."""

    def __init__(
        self,
        handle: Handle,
        limits: Limits,
        client: str,
        running: RunningSlots,
        waiting: WaitingSlots,
    ) -> None:
        """The caller has acquired a slot of `running`; this object releases it."""
        self._handle = handle
        self._limits = limits
        self._client = client
        self._running = running
        self._waiting = waiting
        self._state = "running"
        self._lock = threading.Lock()
        """Held while the pidfd is used or closed."""
        self._ended = ""
        """Why nothing more can be asked, or empty."""
        self._seconds = limits.seconds
        """Running time that is left."""
        self._unsent = memoryview(b"")
        self._reader = Reader()
        self._poll = select.poll()
        self._poll.register(handle.socket, select.POLLIN)

    def ask(self, *messages: dict[str, Any]) -> dict[str, Any]:
        """Send the messages, then receive one.

        Only the time of this call counts as running time, and not its wait for a slot after `rest`. If the
        child answers before it has read all, the next call sends the rest. Raises SandboxTimeout,
        SandboxLimit, SandboxDied, SandboxBusy; after the first three the child has ended.
        """
        if self._state == "resting":
            self._running.acquire(self._client, lambda: bool(self._ended))
            self._waiting.release()
            self._state = "running"
            self._signal(signal.SIGCONT)
        start = time.monotonic()
        try:
            self._unsent = memoryview(
                b"".join((self._unsent, *(encode(message) for message in messages)))
            )
            return self._receive(start + self._seconds)
        except SandboxError as error:
            self._end(str(error))
            raise
        finally:
            self._seconds -= time.monotonic() - start

    def rest(self) -> bool:
        """Let the child wait for the host from now on: it gives its running slot back and takes a waiting
        slot.

        Returns False if none is free, or if the child is large: the caller then closes the child, and replays
        its run later.
        """
        if self._state == "running":
            if self._handle.memory() > _MOST_RESTING or not self._waiting.acquire():
                return False
            self._signal(signal.SIGSTOP)
            self._running.release(self._client)
            self._state = "resting"
        return True

    def kill(self) -> None:
        """End the process. The current `ask` raises SandboxDied. May be called from any thread."""
        self._end("the program was ended")

    def end(self) -> None:
        """Kill the process and wait for its end. May be called from any thread; it is still to be closed."""
        self.kill()
        with self._lock:
            if self._state != "closed":
                self._handle.wait()

    def close(self) -> None:
        """Kill the process, wait for its end, then give its slot back."""
        with self._lock:
            if self._state == "closed":
                return
            state, self._state = self._state, "closed"
            self._ended = self._ended or "the program was closed"
            with contextlib.suppress(PermissionError):  # it still ends: its socket is closed
                self._handle.kill()
            self._handle.close()
        if state == "running":
            self._running.release(self._client)
        else:
            self._waiting.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _end(self, reason: str) -> None:
        with self._lock:
            self._ended = self._ended or reason
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._state != "closed":
                with contextlib.suppress(PermissionError):
                    self._handle.send_signal(number)

    def _receive(self, deadline: float) -> dict[str, Any]:
        while True:
            if self._ended:
                raise SandboxDied(self._ended)
            if (message := self._reader.take()) is not None:
                return message
            # A child that has ended cannot be sent anything, but what it sent last is read.
            events = select.POLLIN | (select.POLLOUT if self._unsent else 0)
            self._poll.modify(self._handle.socket, events)
            seconds = deadline - time.monotonic()
            if seconds <= 0 or not self._poll.poll(math.ceil(seconds * 1000)):
                raise SandboxTimeout(self._limits.seconds)
            self._exchange()

    def _exchange(self) -> None:
        """Send and receive as much as is possible without waiting."""
        peer: socket.socket = self._handle.socket
        if self._unsent:
            try:
                self._unsent = self._unsent[peer.send(self._unsent[:_PART]) :]
            except BlockingIOError:
                pass
            except OSError:
                self._unsent = memoryview(b"")
        try:
            data = peer.recv(min(_PART, self._reader.wanted))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            raise SandboxDied(self._ended or "the program's process ended unexpectedly")
        self._reader.feed(data)
