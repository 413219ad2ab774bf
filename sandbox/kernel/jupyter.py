"""One running Jupyter kernel and the host's connection to it. Knows nothing of programs or pauses.

Stops: messages above 4 MiB and more than a few unread ones, unsigned and malformed messages, a
kernel's end going unnoticed (its process is watched beside its messages), a second connection to
what a program may have put in a socket's place.

Does not stop: well-formed messages with any content; who reads them checks it.
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
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from sandbox.errors import SandboxDied, SandboxLimit, SandboxUnavailable
from sandbox.kernel.connection import LARGEST_MESSAGE, LONGEST_QUEUE, NOTHING, Message, run_own
from sandbox.kernel.provisioners import Place
from sandbox.kernel.stub import STUB_LOADER

_PATIENCE = 30.0
"""Seconds for a kernel to answer after its start."""
_SEND_SECONDS = 10
"""For a kernel to take a message: it has room for many."""


class _Manager(AsyncKernelManager):
    """A KernelManager of one given kernelspec that writes no connection file anywhere.

    The async one, as the other keeps an event loop open for each thread that ever called it.
    """

    def __init__(self, spec: KernelSpec) -> None:
        super().__init__(
            kernel_spec_manager=_OneSpec(spec),
            transport="ipc",
            connection_file="/dev/null/unused",
        )

    def write_connection_file(self, **kwargs: Any) -> None:
        """The kernel reads its connection from an inherited descriptor."""

    def cleanup_connection_file(self) -> None:
        """There is none."""

    def cleanup_ipc_files(self) -> None:
        """The sockets are in the sandbox, or in the folder that the provisioner removes."""

    def _connect_control_socket(self) -> None:
        """The kernel is stopped by signals; nothing is ever said on the control channel."""


class _OneSpec(KernelSpecManager):
    def __init__(self, spec: KernelSpec) -> None:
        super().__init__()
        self._spec = spec

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002
        return self._spec


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    # Connect once, while only our own code has run in the sandbox; never to what a program may have
    # put in a socket's place since.
    context.setsockopt(zmq.RECONNECT_IVL, -1)
    context.setsockopt(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
    context.setsockopt(zmq.RCVHWM, LONGEST_QUEUE)
    context.setsockopt(zmq.LINGER, 0)
    # A connection that was dropped (a message too large) is not made again: a send would wait for ever.
    context.setsockopt(zmq.SNDTIMEO, 1000 * _SEND_SECONDS)
    return context


@contextlib.contextmanager
def _taken() -> Iterator[None]:
    """Raises SandboxDied if the kernel takes no message."""
    try:
        yield
    except zmq.Again as error:
        raise SandboxDied("the kernel takes no messages any more") from error


class Kernel:
    """One running kernel and the host's connection to it. Used by one thread at a time."""

    def __init__(self, spec: KernelSpec, setup: str) -> None:
        """`setup` is Python source to run in the kernel once the stub is there."""
        self._context = _context()
        self._manager = _Manager(spec)
        self._watch: int | None = None
        self._client: BlockingKernelClient | None = None
        try:
            _complete(self._manager.start_kernel())
            self._watch = self._place.watch()
            self._connect()
            run_own(self, STUB_LOADER, _PATIENCE)
            run_own(self, setup, _PATIENCE)
        except BaseException as error:
            self.dispose()
            if isinstance(error, TimeoutError):
                raise SandboxUnavailable(
                    f"a kernel said nothing for {_PATIENCE:g} s", "see `python -m sandbox`"
                ) from error
            raise

    @property
    def _place(self) -> Place:
        return cast(Place, self._manager.provisioner)

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
        """Send code to run; returns the id that its messages will name as their parent. Raises SandboxDied.

        `expressions` are evaluated after it, for the reply on the shell channel.
        """
        assert self._client is not None
        with _taken():
            sent = self._client.execute(
                code,
                silent=silent,
                store_history=False,
                user_expressions=dict(expressions),
                allow_stdin=True,
                stop_on_error=False,
            )
        return cast(str, sent)

    def answer(self, value: str) -> None:
        """Reply to an input request. Raises SandboxDied."""
        assert self._client is not None
        with _taken():
            self._client.input(value)

    def messages(self, seconds: float) -> Iterator[tuple[str, Message]]:
        """(channel, message) as they come. Raises TimeoutError when `seconds` have passed without
        the consumer having left, SandboxDied when the kernel ends, SandboxLimit when it ended for
        want of memory."""
        until = time.monotonic() + seconds
        assert self._client is not None
        wire = self._client.session
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            ready = dict(self._poller.poll(int(left * 1000) + 1))
            for channel, socket in self._channels.items():
                while socket in ready:
                    try:
                        parts = socket.recv_multipart(zmq.DONTWAIT)
                    except zmq.Again:
                        break
                    try:
                        message = wire.deserialize(wire.feed_identities(parts)[1])
                    except (ValueError, TypeError, LookupError, RecursionError):
                        continue  # not signed, or not a Jupyter message: nobody's
                    yield channel, message
                    if time.monotonic() > until:
                        break
            if self._watch in ready:
                how = _ending(self._place.popen.wait())
                if self._place.out_of_memory():
                    raise SandboxLimit("memory")
                raise SandboxDied(f"the kernel ended while the program ran ({how})")

    def barrier(self) -> None:
        """Its outputs come before its calls by themselves."""

    def address(self) -> None:
        """It ends with this process: no other can have it."""

    def leave(self) -> None:
        """As `address`: it ends all the same."""

    def interrupt(self) -> None:
        self._place.signal_now(signal.SIGINT)

    def alive(self) -> bool:
        return self._manager.provisioner is not None and self._place.is_running()

    def kill(self) -> None:
        if self._manager.provisioner is not None:
            self._place.signal_now(signal.SIGKILL)

    def dispose(self) -> None:
        self.kill()
        if self._client is not None:
            self._client.stop_channels()
            self._client = None
        if self._manager.provisioner is not None:
            if self._place.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._place.popen.wait(timeout=10)
                self._place.popen.kill()
                self._place.popen.wait()
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
