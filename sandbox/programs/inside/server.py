"""The program server: imports what programs may import, then forks a child for each run.

States: *starting* -> *serving* -> ended, when the host closes the control socket. A start that fails is
reported as one message: `FAILED` and the reason. A request is one byte, `RUN` or `PROBE`, with one
descriptor, the child's socket; the answer is `DONE` with a pidfd of the child, or `FAILED`.

What may never happen:

* The server reads a child's socket: what a program or its results left in the server's memory would be
  found by all later children. The filter of `fence.enclose_server` allows reading on the control socket
  only.
* A child is reaped before its pidfd exists, since its pid could then name another process. So the handler of
  SIGCHLD does nothing while a child is forked. The host ends children by their pidfds and never by a pid.
* A child keeps the control socket: its own socket takes that place (`Fence.enclose`).

Stops and does not stop: see `fence`.
"""

import gc
import os
import platform
import signal
import socket
from collections.abc import Callable, Collection
from types import FrameType
from typing import Never

from sandbox.programs.inside import channel, fence, preload, probe, run
from sandbox.programs.inside.filter import SOCKET

RUN, PROBE = b"r", b"p"
DONE, FAILED = b"+", b"-"


def serve(
    *,
    memory: int,
    seconds: float,
    main: Callable[[], None] = run.main,
    without: Collection[str] = (),
) -> None:
    """Serve until the host closes the other end of `SOCKET`.

    Each child may map `memory` bytes and compute for about `seconds`, then calls `main`. `without` is for
    tests: names of rules that are left out (`fence.STEPS`, "server filter", "shared memory").
    """
    with socket.socket(fileno=SOCKET) as requests:
        try:
            preload.load()
            run.install()
            children = _Children(fence.prepare(memory, seconds, without), main)
            signal.signal(signal.SIGCHLD, children.reap)
            gc.collect()
            gc.freeze()
            fence.enclose_server(children.fence)
        except Exception as error:  # noqa: BLE001 -- standard error is /dev/null: the host shows it
            _answer(requests, FAILED, f"{type(error).__name__}: {error}")
            return
        _answer(requests, DONE)
        while True:
            kind, descriptors, _, _ = socket.recv_fds(requests, 1, 1, socket.MSG_CMSG_CLOEXEC)
            if not descriptors:
                children.reap()
                return
            children.fork(requests, kind, descriptors[0])


def _answer(requests: socket.socket, word: bytes, reason: str = "") -> None:
    # Not `send`, which is the system call sendto.
    requests.sendmsg([word + reason.encode(errors="replace")[:1000]])


class _Children:
    def __init__(self, fence: fence.Fence, main: Callable[[], None]) -> None:
        self.fence = fence
        self._main = main
        self._is_forking = False

    def fork(self, requests: socket.socket, kind: bytes, descriptor: int) -> None:
        """Fork a child for one request, and answer it."""
        self._is_forking = True
        try:
            pid = os.fork()
            if pid == 0:
                self._begin(kind, descriptor)
            handle = os.pidfd_open(pid)
            socket.send_fds(requests, [DONE], [handle])
            os.close(handle)
        except OSError as error:  # too many processes, or too little memory
            _answer(requests, FAILED, str(error))
        finally:
            os.close(descriptor)
            self._is_forking = False
            self.reap()

    def reap(self, number: int = signal.SIGCHLD, frame: FrameType | None = None) -> None:  # noqa: ARG002
        """Reap all children that have ended, except while one is forked. Also a signal handler."""
        try:
            while not self._is_forking and os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    def _begin(self, kind: bytes, descriptor: int) -> Never:
        """What the child does: enclose itself, run `main`, end."""
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.fence.enclose(descriptor)
            if kind == PROBE:
                probe.main(platform.machine(), self.fence.server)
            else:
                self._main()
        except MemoryError:
            channel.end_out_of_memory()
        finally:
            os._exit(0)
