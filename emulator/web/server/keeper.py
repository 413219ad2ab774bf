"""The process that has what several workers share: kernels of containers, tokens of clients, the sweeper,
the inspector's requests.

gunicorn's master forks it before the workers, starts it again if it dies, and ends it after them. The socket
that it answers on is the master's, so that questions asked while there is no keeper wait for the next one.
What a keeper that is killed had in memory is gone: kernels (a cell says that its session was begun anew),
the tokens that clients have spent, the inspector's requests and who has signed in there. Files, and all that
the store has, are not.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import structlog

from emulator import metrics
from emulator.engines import PROGRAM_KERNELS
from emulator.interpreter.opening import open_interpreter
from emulator.interpreter.remote import handlers
from emulator.settings import Settings
from emulator.shared import tokens, wire
from emulator.shared.counts import Counts
from emulator.shared.open_requests import OpenRequests
from emulator.shared.rates import Rates
from emulator.shared.registers import Registers
from emulator.shared.run_folder import SOCKET
from emulator.shared.wire import Wire, WireServer
from emulator.storage.blob_store import open_blob_store
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from emulator.traces.remote import handlers as trace_handlers
from emulator.upstream.breaker import REGISTERS
from emulator.upstream.guarded import place_name
from emulator.upstream.routes import Routes
from emulator.web.inspector import sessions
from emulator.web.middleware.admission import COUNTED
from emulator.web.middleware.measuring import KernelCounts
from emulator.web.server.balance import CONNECTIONS

log = structlog.get_logger()

_AGAIN_SECONDS = 1.0
"""Between two starts, lest one that cannot run keeps the machine busy."""
_CLOSE_SECONDS = 1.0
_END = signal.SIGUSR2
_LOOK_SECONDS = 0.5


class Keeper:
    """The keeper as the master has it, and what workers reach it by. To be made before any fork."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        """``folder`` is that of this run."""
        self._settings = settings
        self._listener = wire.listen(folder / SOCKET)
        self.wire = Wire(folder / SOCKET)
        upstreams = [target.name for target in Routes(settings).targets]
        self.counts = Counts((*COUNTED, CONNECTIONS, PROGRAM_KERNELS, *map(place_name, upstreams)))
        self.breakers = Registers(upstreams, REGISTERS)
        self.open_requests = OpenRequests(self.counts)
        self.rates = Rates(self.counts)
        self._pid = 0
        self._started = -_AGAIN_SECONDS

    def start(self, arbiter: Any) -> None:
        """Nothing happens if it runs, or was started just now."""
        if self._pid or time.monotonic() - self._started < _AGAIN_SECONDS:
            return
        self._started = time.monotonic()
        master = os.getpid()
        if pid := os.fork():
            self._pid = pid
            return
        status = 1
        try:
            # Whoever holds a socket that is listened on keeps clients waiting there.
            for listener in arbiter.LISTENERS:
                listener.close()
            for worker in arbiter.WORKERS.values():
                worker.tmp.close()
            _keep(self._settings, self._listener, master)
            status = 0
        except Exception:
            log.exception("the keeper failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)  # nothing of the master's is this process's to close

    def free_slot(self, taken: Collection[int]) -> int:
        """For a worker that is to be forked: one that is not among ``taken``."""
        slot = self.counts.free_slot(taken)
        self.clear(slot)
        return slot

    def clear(self, slot: int) -> None:
        """Its worker is dead."""
        self.counts.clear(slot)
        self.open_requests.clear(slot)

    def reap(self) -> None:
        """Take note if it has ended."""
        if not self._pid:
            return
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            pid, status = self._pid, 0
        if pid:
            metrics.process_died(self._pid)
            if status:
                log.warning("the keeper has died: kernels begin anew", status=status)
            self._pid = 0

    def stop(self) -> None:
        """End it; in `_CLOSE_SECONDS`, or by force."""
        until = time.monotonic() + _CLOSE_SECONDS + _LOOK_SECONDS
        if self._pid:
            _kill(self._pid, _END)
        while self._pid and time.monotonic() < until:
            time.sleep(0.02)
            self.reap()
        if self._pid:
            _kill(self._pid, signal.SIGKILL)


def _kill(pid: int, how: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, how)


def _keep(settings: Settings, listener: Any, master: int) -> None:
    """Answer until the master says that it is enough, or is no more."""
    ended = threading.Event()
    for name in ("QUIT", "TTIN", "TTOU", "USR1", "WINCH", "CHLD"):
        signal.signal(signal.Signals[f"SIG{name}"], signal.SIG_DFL)
    # What a terminal or a service manager sends to all processes comes here too, but the master decides:
    # its workers let their requests end first.
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, lambda *_: None)
    signal.signal(_END, lambda *_: ended.set())
    owned = ExitStack()
    folder = open_blob_store(settings.files_dir, settings.files_index)
    owned.callback(folder.close)
    uploaded = Files(folder, settings)
    containers = Containers(folder, uploaded, settings)
    interpreter = open_interpreter(owned, settings, containers, uploaded)
    answers = {
        **handlers(interpreter),
        **tokens.handlers(),
        **trace_handlers(
            settings.inspector_traces, settings.inspector_bytes, settings.inspector_seconds
        ),
        **sessions.handlers(),
    }
    server = WireServer(listener, answers)
    threading.Thread(target=server.serve, name="keeper", daemon=True).start()
    pools = KernelCounts(interpreter=[interpreter])
    while not ended.wait(_LOOK_SECONDS) and os.getppid() == master:
        pools.count()
    closing = threading.Thread(target=owned.close, daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)
