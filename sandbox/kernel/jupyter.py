"""One running Jupyter kernel and the host's connection to it. Knows nothing of programs or pauses.

Stops: messages above 4 MiB and more than a few unread ones, unsigned and malformed messages, a
kernel's end going unnoticed (its process is watched, not only its messages), a second connection to
what a program may have put in a socket's place.

Does not stop: well-formed messages with any content; the session checks it.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import cast

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import KernelConnectionInfo

from sandbox.errors import SandboxDied, SandboxLimit, SandboxUnavailable
from sandbox.kernel.connection import LARGEST_MESSAGE, LONGEST_QUEUE, NOTHING, Message, run_own
from sandbox.kernel.provisioners import IpcProvisioner
from sandbox.kernel.stub import STUB_LOADER

_PATIENCE = 30.0
"""Seconds for a kernel to answer after its start."""
_SEND_SECONDS = 10
"""Seconds for a kernel to accept a message: its queue has room for many."""


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    # Connect once, while only our own code has run in the sandbox; never to what a program may have
    # put in a socket's place later.
    context.setsockopt(zmq.RECONNECT_IVL, -1)
    context.setsockopt(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
    context.setsockopt(zmq.RCVHWM, LONGEST_QUEUE)
    context.setsockopt(zmq.LINGER, 0)
    # A dropped connection (a message too large) is not restored: a send would wait forever.
    context.setsockopt(zmq.SNDTIMEO, 1000 * _SEND_SECONDS)
    return context


@contextlib.contextmanager
def _sending() -> Iterator[None]:
    """Raises SandboxDied if the kernel accepts no message."""
    try:
        yield
    except zmq.Again as error:
        raise SandboxDied("the kernel no longer accepts messages") from error


class JupyterKernel:
    """A `KernelConnection` to a kernel on this machine, which ends with this process."""

    def __init__(self, provisioner: IpcProvisioner, setup: str) -> None:
        """`setup` is Python source to run in the kernel when the stub is loaded."""
        self._context = _context()
        self._provisioner = provisioner
        self._watch: int | None = None
        self._client: BlockingKernelClient | None = None
        try:
            # Without a KernelManager, which writes files and keeps a control channel.
            connection = asyncio.run(provisioner.launch())
            self._watch = provisioner.watch()
            self._connect(connection)
            run_own(self, STUB_LOADER, _PATIENCE)
            run_own(self, setup, _PATIENCE)
        except BaseException as error:
            self.dispose()
            if isinstance(error, TimeoutError):
                raise SandboxUnavailable(
                    f"a kernel sent no answer for {_PATIENCE:g} s", "run `tool-emulator doctor`"
                ) from error
            raise

    def _connect(self, connection: KernelConnectionInfo) -> None:
        self._client = BlockingKernelClient(context=self._context)
        self._client.load_connection_info(connection)
        self._client.start_channels(hb=False, control=False)
        self._channels = {
            "iopub": self._client.iopub_channel.socket,
            "shell": self._client.shell_channel.socket,
            "stdin": self._client.stdin_channel.socket,
        }
        self._poller = zmq.Poller()
        for socket in self._channels.values():
            self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self._watch, zmq.POLLIN)
        for channel, _ in self.messages(_PATIENCE):
            # The kernel has our subscription: from now on no message on iopub is lost.
            if channel == "iopub":
                return

    def execute(
        self, code: str, *, silent: bool = False, expressions: Mapping[str, str] = NOTHING
    ) -> str:
        assert self._client is not None
        with _sending():
            request = self._client.execute(
                code,
                silent=silent,
                store_history=False,
                user_expressions=dict(expressions),
                allow_stdin=True,
                stop_on_error=False,
            )
        return cast(str, request)

    def reply(self, value: str) -> None:
        assert self._client is not None
        with _sending():
            self._client.input(value)

    def messages(self, seconds: float) -> Iterator[tuple[str, Message]]:
        until = time.monotonic() + seconds
        assert self._client is not None
        wire = self._client.session
        while True:
            remaining = until - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            ready = dict(self._poller.poll(int(remaining * 1000) + 1))
            for channel, socket in self._channels.items():
                while socket in ready:
                    try:
                        parts = socket.recv_multipart(zmq.DONTWAIT)
                    except zmq.Again:
                        break
                    try:
                        message = wire.deserialize(wire.feed_identities(parts)[1])
                    except (ValueError, TypeError, LookupError, RecursionError):
                        continue  # not signed, or not a Jupyter message
                    yield channel, message
                    if time.monotonic() > until:
                        break
            if self._watch in ready:
                how = _ending(self._provisioner.popen.wait())
                if self._provisioner.out_of_memory():
                    raise SandboxLimit("memory")
                raise SandboxDied(f"the kernel ended while the program ran ({how})")

    def barrier(self) -> None:
        """Not needed: its outputs come before its calls."""

    def address(self) -> None:
        """It ends with this process."""

    def detach(self) -> None:
        """It ends with this process anyway."""

    def interrupt(self) -> None:
        self._provisioner.signal_now(signal.SIGINT)

    def alive(self) -> bool:
        return self._provisioner.is_running()

    def kill(self) -> None:
        self._provisioner.signal_now(signal.SIGKILL)

    def dispose(self) -> None:
        self.kill()
        if self._client is not None:
            self._client.stop_channels()
            self._client = None
        if self._provisioner.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._provisioner.popen.wait(timeout=10)
            self._provisioner.popen.kill()
            self._provisioner.popen.wait()
        asyncio.run(self._provisioner.cleanup())
        self._context.destroy(linger=0)
        if self._watch is not None:
            os.close(self._watch)
            self._watch = None


def _ending(code: int) -> str:
    # bwrap reports a signal as 128 + its number, as a shell does.
    number = -code if code < 0 else code - 128
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"exit code {code}"
