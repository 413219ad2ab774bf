"""One running Jupyter kernel and the host's connection to it. Knows nothing of programs or pauses.

Stops: messages above 4 MiB and more than a few unread ones, unsigned and malformed messages, a
kernel's end going unnoticed (its process is watched, not only its messages), a second connection to
what a program may have put in a socket's place, except as `sandbox.kernel.attached` says.

Does not stop: well-formed messages with any content; the session checks it.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import KernelConnectionInfo

from sandbox.errors import SandboxDied, SandboxLimit, SandboxUnavailable
from sandbox.kernel.attached import CHANNELS, AttachedProcess
from sandbox.kernel.connection import LARGEST_MESSAGE, LONGEST_QUEUE, NOTHING, Message, run_own
from sandbox.kernel.provisioners import IpcProvisioner
from sandbox.kernel.stub import STUB_LOADER

_PATIENCE = 30.0
"""Seconds for a kernel to answer after its start."""
_GREETING_SECONDS = 0.05
_SEND_SECONDS = 10
"""Seconds for a kernel to accept a message: its queue has room for many."""


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    # Connect once, not to what a program may have put in a socket's place later.
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
    """A `KernelConnection` to a kernel on this machine, which ends with the process that started it."""

    def __init__(
        self, process: IpcProvisioner | AttachedProcess, setup: str, session: str = ""
    ) -> None:
        """Start a kernel with a provisioner, and run ``setup``, Python source, in it when the stub is loaded.

        Or connect to one that another process has started, which then loses its own connection; ``session``
        is that of the first connection. Raises SandboxUnavailable, SandboxDied.
        """
        self._context = _context()
        self._process = process
        self._watch: int | None = None
        self._client: BlockingKernelClient | None = None
        self._sockets: Mapping[int, int] = {}
        self.is_used_elsewhere = False
        """This process started the kernel, and another one uses it."""
        self._is_detached = False
        """Another process started it, and this one uses it no more."""
        try:
            if isinstance(process, AttachedProcess):
                self._watch = process.watch()
                self._attach(process, session)
                return
            # Without a KernelManager, which writes files and keeps a control channel.
            connection = asyncio.run(process.launch())
            self._watch = process.watch()
            self._connect(connection)
            run_own(self, STUB_LOADER, _PATIENCE)
            run_own(self, setup, _PATIENCE)
        except BaseException as error:
            if isinstance(process, AttachedProcess):
                self.detach()
            self.dispose()
            if isinstance(error, TimeoutError):
                raise SandboxUnavailable(
                    f"a kernel sent no answer for {_PATIENCE:g} s", "run `tool-emulator doctor`"
                ) from error
            raise

    def _attach(self, process: AttachedProcess, session: str) -> None:
        """Connect to the sockets that are there now, through their descriptors: no path is followed."""
        ports = [*CHANNELS.values()]
        self._sockets = process.sockets(ports)
        with tempfile.TemporaryDirectory(prefix="emulator-attach-") as folder:
            for number, descriptor in self._sockets.items():
                Path(folder, f"s-{number}").symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
            self._connect(process.connection(f"{folder}/s"), session)

    def _connect(self, connection: KernelConnectionInfo, session: str = "") -> None:
        self._client = BlockingKernelClient(context=self._context)
        self._client.load_connection_info(connection)
        if session:  # the kernel sends what belongs to it to its newest connection
            self._client.session.session = session
        self._client.start_channels(hb=False, control=bool(session))
        self._channels = {
            "iopub": self._client.iopub_channel.socket,
            "shell": self._client.shell_channel.socket,
            "stdin": self._client.stdin_channel.socket,
        }
        self._poller = zmq.Poller()
        for socket in self._channels.values():
            self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self._watch, zmq.POLLIN)
        if session:
            self._wait_until_subscribed()
            return
        for channel, _ in self.messages(_PATIENCE):
            # The kernel has our subscription: from now on no message on iopub is lost.
            if channel == "iopub":
                return

    def _wait_until_subscribed(self) -> None:
        """A kernel greets its first subscriber only. Its control channel answers while a cell runs or waits,
        and its status is sent on iopub."""
        assert self._client is not None
        control = self._client.control_channel
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            with _sending():
                control.send(self._client.session.msg("kernel_info_request"))
            with contextlib.suppress(TimeoutError):
                for channel, message in self.messages(_GREETING_SECONDS):
                    cause = message["parent_header"].get("msg_type")
                    if (channel, cause) == ("iopub", "kernel_info_request"):
                        return
        raise TimeoutError

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
                if isinstance(self._process, AttachedProcess):
                    raise SandboxDied("the kernel ended while the program ran")
                how = _ending(self._process.popen.wait())
                if self._process.out_of_memory():
                    raise SandboxLimit("memory")
                raise SandboxDied(f"the kernel ended while the program ran ({how})")

    def barrier(self) -> None:
        """Not needed: its outputs come before its calls."""

    def address(self) -> dict[str, str] | None:
        """For another process of this user on this machine."""
        if self._client is None or not self.alive():
            return None
        return self._process.address(self._client.session.session)

    def detach(self) -> None:
        self.is_used_elsewhere = not isinstance(self._process, AttachedProcess)
        self._is_detached = not self.is_used_elsewhere
        self._close_connection()

    def interrupt(self) -> None:
        self._process.signal_now(signal.SIGINT)

    def alive(self) -> bool:
        return self._process.is_running()

    def kill(self) -> None:
        if not self._is_detached:
            self._process.signal_now(signal.SIGKILL)

    def dispose(self) -> None:
        self.kill()
        self._close_connection()
        if isinstance(self._process, AttachedProcess):
            self._process.close()
        else:
            self._end_process(self._process)
        self._context.destroy(linger=0)
        if self._watch is not None:
            os.close(self._watch)
            self._watch = None

    def _close_connection(self) -> None:
        if self._client is not None:
            self._client.stop_channels()
            self._client = None
        for descriptor in self._sockets.values():
            os.close(descriptor)
        self._sockets = {}

    @staticmethod
    def _end_process(provisioner: IpcProvisioner) -> None:
        if provisioner.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                provisioner.popen.wait(timeout=10)
            provisioner.popen.kill()
            provisioner.popen.wait()
        asyncio.run(provisioner.cleanup())


def _ending(code: int) -> str:
    # bwrap reports a signal as 128 + its number, as a shell does.
    number = -code if code < 0 else code - 128
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"exit code {code}"
