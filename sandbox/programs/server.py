"""The face of this room: a program server for one worker of the proxy. See the package for the theory.

Knows no tools and no messages.

States: *idle* (no process) -> *serving* -> *idle* again if the process dies, or *closed*. The process
starts with the first `open`, `check` or `get_ready`. Programs run only after one probe has found that the
fence holds.
"""

import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable

from sandbox.engine import Limits
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.programs import probes
from sandbox.programs.child_process import ChildProcess
from sandbox.programs.inside.digests import digest
from sandbox.programs.probes import FenceBroken
from sandbox.programs.server_process import FIX, Handle, ServerDied, ServerProcess, serve_source
from sandbox.programs.slots import RunningSlots, WaitingSlots
from sandbox.report import Check

__all__ = ["ChildProcess", "FenceBroken", "ProgramServer", "digest"]

_MiB = 1024 * 1024


class ProgramServer:
    """Starts a process for each run. Threads may share it."""

    def __init__(
        self,
        limits: Limits,
        *,
        most: int = 16,
        waiting: int = 64,
        shared: bool = False,
        launch: Callable[[], ServerProcess] | None = None,
    ) -> None:
        """At most `most` programs run at the same time and `waiting` more wait for the host. If several
        clients share the server, none of them runs more than three quarters. `launch` is for tests: it
        starts the process."""
        self._limits = limits
        self._most = most + waiting
        self._running = RunningSlots(most, most_of_one=max(1, most * 3 // 4) if shared else most)
        self._waiting = WaitingSlots(waiting)
        self._launch = launch or functools.partial(ServerProcess, serve_source(limits))
        self._lock = threading.RLock()
        """Held while the process starts, and while the probe runs."""
        self._process: ServerProcess | None = None
        self._children: weakref.WeakSet[ChildProcess] = weakref.WeakSet()
        self._refused = 0
        """The number of acts that the probe found refused; 0 before the probe."""
        self._broken: FenceBroken | None = None
        """Why programs cannot run on this machine. A server that did not start may start the next time."""
        self._closed = False

    def check(self) -> None:
        """Run the probe, once. Raises FenceBroken where programs cannot run, SandboxUnavailable where they
        cannot run now."""
        if self._refused:
            return
        with self._lock:
            if self._broken is not None:
                raise FenceBroken(self._broken.reason, self._broken.fix)
            if not self._refused:
                self._refused = self._probe()

    @property
    def problem(self) -> FenceBroken | None:
        """Why programs cannot run on this machine, if that was found."""
        return self._broken

    def get_ready(self) -> None:
        """Start the process and run the probe in the background. Returns immediately and never raises."""
        if not self._refused and self._broken is None:
            threading.Thread(target=self._try, name="program-server", daemon=True).start()

    def checks(self) -> list[Check]:
        """Rows for the doctor."""
        start = time.perf_counter()
        try:
            self.check()
            self.open().close()
        except SandboxUnavailable as error:
            return [Check("programs", ok=False, detail=error.reason, fix=error.fix)]
        detail = (
            f"{self._refused} forbidden acts are refused; at most {self._most} programs with "
            f"{self._limits.memory // _MiB} MB each ({self.budget // _MiB} MB in all); "
            f"the start took {time.perf_counter() - start:.2f} s"
        )
        return [Check("programs", ok=True, detail=detail)]

    @property
    def budget(self) -> int:
        """The bytes that all programs of this server may use together, on top of what they share."""
        return self._most * self._limits.memory

    def open(self, client: str = "") -> ChildProcess:
        """A child for one run, a context manager. Waits for a slot up to a few seconds, in turn with other
        clients. Raises SandboxUnavailable, SandboxBusy."""
        self.check()
        self._running.acquire(client)
        try:
            handle = self._fork()
        except BaseException:
            self._running.release(client)
            raise
        child = ChildProcess(handle, self._limits, client, self._running, self._waiting)
        with self._lock:
            self._children.add(child)
            is_late = self._closed
        if is_late:
            child.close()
            raise _closed()
        return child

    def close(self) -> None:
        """End all programs, then the server process. Does nothing the second time."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
            children = list(self._children)
        for child in children:  # before the server, which reaps them
            child.end()
        if process is not None:
            process.close()

    def _try(self) -> None:
        with contextlib.suppress(SandboxError):
            self.check()

    def _probe(self) -> int:
        """The number of refused acts. Raises SandboxUnavailable."""
        try:
            probes.check_machine()
            return probes.examine(self._fork(probe=True))
        except FenceBroken as error:
            self._broken = error
            raise

    def _fork(self, *, probe: bool = False) -> Handle:
        """A new child; starts the server process if there is none, or if it has died."""
        for _ in range(2):
            with self._lock:
                if self._closed:
                    raise _closed()
                process = self._process = self._process or self._launch()
            try:
                return process.fork(probe=probe)
            except ServerDied:
                with self._lock:
                    if self._process is process:
                        self._process = None
                process.close()
        raise SandboxUnavailable("the program server ends whenever it is used", FIX)


def _closed() -> SandboxUnavailable:
    return SandboxUnavailable("the program server is closed", "create a new one")
