"""The keeper: one process with the state that workers share and that cannot be in several processes.

It has the kernels of containers, client limits and token counts, the inspector's requests and sign-ins, and
the sweeper of expired files.

    (none) ── start ──► running ── SIGUSR2, or the master is gone ──► closing, for `_CLOSE_SECONDS` ──►
    (none)
                          │ dies: the master starts a new one, at most one per `_RESTART_SECONDS`
                          └──────────────────────────► (none)

gunicorn's master forks it before the workers and ends it after them. The master keeps the listening socket
open, so a worker's call while there is no keeper waits for the next one. A worker may assume that a call
either was answered, or raised `KeeperUnavailable`; it may not assume that the keeper still has what it had
before: all of it is in memory.

A keeper that dies loses the kernels (the next cell's notes say that its session was restarted), all counts
(they begin at 0), the inspector's requests and its sign-ins. Files, and everything in the store, survive.
"""

from __future__ import annotations

import mmap
import os
import signal
import sqlite3
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import structlog

from emulator import metrics
from emulator.interpreter.opening import open_interpreter
from emulator.interpreter.remote import handlers
from emulator.settings import Settings
from emulator.shared import rpc
from emulator.shared.counts import WorkerCounts
from emulator.shared.run_folder import SOCKET
from emulator.shared.state import LocalState
from emulator.storage.blob_store import TEMPORARY, open_blob_store, open_folder
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from emulator.storage.key_value import open_store
from emulator.traces.store import open_traces
from emulator.upstream.breaker import BREAKERS, REGISTERS
from emulator.upstream.guarded import slot_name
from emulator.upstream.routes import Routes
from emulator.web.middleware.admission import COUNTS
from emulator.web.middleware.measuring import KernelCounts
from emulator.web.server.balance import CONNECTIONS

log = structlog.get_logger()

_RESTART_SECONDS = 1.0
"""Least time between two starts, so that a keeper that cannot run does not occupy the machine."""
_CLOSE_SECONDS = 1.0
_END = signal.SIGUSR2
_CHECK_SECONDS = 0.5


class Keeper:
    """The keeper as the master and the workers see it. Must be created before any fork."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        """``folder`` is that of this run."""
        self._settings = settings
        self._listener = rpc.listen(folder / SOCKET)
        self.client = rpc.RpcClient(folder / SOCKET)
        upstreams = [target.name for target in Routes(settings).targets]
        self.counts = WorkerCounts((*COUNTS, CONNECTIONS, *map(slot_name, upstreams)))
        self.breakers = {
            name: memoryview(mmap.mmap(-1, 8 * REGISTERS * BREAKERS)).cast("q")
            for name in upstreams
        }
        """Upstream -> the states of its circuit breakers, in memory that all workers write."""
        self._pid = 0
        self._started = -_RESTART_SECONDS

    def start(self, arbiter: Any) -> None:
        """Does nothing if the keeper runs, or was started less than `_RESTART_SECONDS` ago."""
        if self._pid or time.monotonic() - self._started < _RESTART_SECONDS:
            return
        self._started = time.monotonic()
        master = os.getpid()
        if pid := os.fork():
            self._pid = pid
            return
        status = 1
        try:
            # A process that has the listening socket open, but accepts nothing, would keep clients waiting.
            for listener in arbiter.LISTENERS:
                listener.close()
            for worker in arbiter.WORKERS.values():
                worker.tmp.close()
            _run(self._settings, self._listener, master)
            status = 0
        except Exception:
            log.exception("the keeper failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)  # this process must not close what the master has opened

    def reap(self) -> None:
        """Notice that the keeper has ended."""
        if not self._pid:
            return
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            pid, status = self._pid, 0
        if pid:
            metrics.process_died(self._pid)
            if status:
                log.warning("the keeper has died: kernels restart", status=status)
            self._pid = 0

    def stop(self) -> None:
        """End the keeper: by its signal, and by SIGKILL if that takes longer than `_CLOSE_SECONDS`."""
        until = time.monotonic() + _CLOSE_SECONDS + _CHECK_SECONDS
        if self._pid:
            _kill(self._pid, _END)
        while self._pid and time.monotonic() < until:
            time.sleep(0.02)
            self.reap()
        if self._pid:
            _kill(self._pid, signal.SIGKILL)
        self._listener.close()


def _kill(pid: int, how: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, how)


def _run(settings: Settings, listener: Any, master: int) -> None:
    """Answer calls until the master ends this process, or is gone."""
    ended = threading.Event()
    for name in ("QUIT", "TTIN", "TTOU", "USR1", "WINCH", "CHLD"):
        signal.signal(signal.Signals[f"SIG{name}"], signal.SIG_DFL)
    # A terminal or a service manager sends these to all processes, but the master decides: its workers
    # finish their requests first.
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, lambda *_: None)
    signal.signal(_END, lambda *_: ended.set())
    owned = ExitStack()
    folder = open_blob_store(settings.files_dir, settings.files_index)
    owned.callback(folder.close)
    uploaded = Files(folder, settings)
    containers = Containers(folder, uploaded, settings)
    interpreter = open_interpreter(owned, settings, containers, uploaded)
    traces = open_traces(settings)
    answers = {**handlers(interpreter), **LocalState().handlers(), **traces.handlers()}
    serving = threading.Thread(target=rpc.serve, args=(listener, answers), daemon=True)
    serving.start()
    pools = KernelCounts(interpreter)
    while not ended.wait(_CHECK_SECONDS) and os.getppid() == master:
        pools.count()
    closing = threading.Thread(target=owned.close, daemon=True)
    closing.start()
    closing.join(_CLOSE_SECONDS)


log = structlog.get_logger()


def with_worker_storage(settings: Settings, folder: Path) -> Settings:
    """The settings with a store and a folder of files that every worker can open; both are made here.

    If the workers made the same database at the same time, some would find it locked.

    What is stored for this run only, or cannot be stored where the settings say, is in ``folder``.
    """
    store = str(folder / "store.sqlite") if settings.store == ":memory:" else settings.store
    if (opened := open_store(store, settings.store_seconds)) is not None:
        opened.close()
    if settings.files_index:
        return settings.model_copy(update={"store": store})
    files = folder / "files"
    if settings.files_dir != TEMPORARY:
        files = Path(settings.files_dir).expanduser()
    try:
        open_folder(files).close()
    except (OSError, sqlite3.Error) as error:
        log.warning("files are kept for this run only", reason=str(error))
        files = folder / "files"
        open_folder(files).close()
    return settings.model_copy(update={"store": store, "files_dir": str(files)})
