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
from collections.abc import Awaitable, Iterator, Mapping
from typing import Any, cast

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from sandbox.errors import SandboxDied, SandboxLimit, SandboxUnavailable
from sandbox.kernel.connection import LARGEST_MESSAGE, LONGEST_QUEUE, NOTHING, Message, run_own
from sandbox.kernel.provisioners import IpcProvisioner
from sandbox.kernel.stub import STUB_LOADER

_PATIENCE = 30.0
"""Seconds for a kernel to answer after its start."""
_SEND_SECONDS = 10
"""Seconds for a kernel to accept a message: its queue has room for many."""


class _Manager(AsyncKernelManager):
    """A KernelManager of one given kernelspec that writes no connection file anywhere.

    The async one, since the other keeps an event loop open for each thread that called it.
    """

    def __init__(self, spec: KernelSpec) -> None:
        super().__init__(transport="ipc", connection_file="/dev/null/unused")
        self._kernel_spec = spec  # otherwise it looks for installed ones

    def write_connection_file(self, **kwargs: Any) -> None:
        """The kernel reads its connection from an inherited descriptor."""

    def cleanup_connection_file(self) -> None:
        """No file was written."""

    def cleanup_ipc_files(self) -> None:
        """The sockets are in the sandbox, or in the folder that the provisioner removes."""

    def _connect_control_socket(self) -> None:
        """The kernel is stopped by signals; the control channel is unused."""


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

    def __init__(self, spec: KernelSpec, setup: str) -> None:
        """`setup` is Python source to run in the kernel when the stub is loaded."""
        self._context = _context()
        self._manager = _Manager(spec)
        self._watch: int | None = None
        self._client: BlockingKernelClient | None = None
        try:
            _complete(self._manager.start_kernel())
            self._watch = self._provisioner.watch()
            self._connect()
            run_own(self, STUB_LOADER, _PATIENCE)
            run_own(self, setup, _PATIENCE)
        except BaseException as error:
            self.dispose()
            if isinstance(error, TimeoutError):
                raise SandboxUnavailable(
                    f"a kernel sent no answer for {_PATIENCE:g} s", "see `python -m sandbox`"
                ) from error
            raise

    @property
    def _provisioner(self) -> IpcProvisioner:
        return cast(IpcProvisioner, self._manager.provisioner)

    def _connect(self) -> None:
        self._client = BlockingKernelClient(
            context=self._context, **self._manager.get_connection_info(session=True)
        )
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
        for channel, message in self.messages(_PATIENCE):
            # Before this, a message on iopub could be lost.
            if channel == "iopub" and message["msg_type"] == "iopub_welcome":
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
        return self._manager.provisioner is not None and self._provisioner.is_running()

    def kill(self) -> None:
        if self._manager.provisioner is not None:
            self._provisioner.signal_now(signal.SIGKILL)

    def dispose(self) -> None:
        self.kill()
        if self._client is not None:
            self._client.stop_channels()
            self._client = None
        if self._manager.provisioner is not None:
            if self._provisioner.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._provisioner.popen.wait(timeout=10)
                self._provisioner.popen.kill()
                self._provisioner.popen.wait()
            _complete(self._manager.cleanup_resources())
        self._context.destroy(linger=0)
        if self._watch is not None:
            os.close(self._watch)
            self._watch = None


def _complete(work: Awaitable[Any]) -> None:
    async def wait() -> None:
        await work

    asyncio.run(wait())


def _ending(code: int) -> str:
    # bwrap reports a signal as 128 + its number, as a shell does.
    number = -code if code < 0 else code - 128
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"exit code {code}"
