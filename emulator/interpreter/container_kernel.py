"""The kernel of one container, as this process has it.

    none ── `Kernels.open` ──► attached ◄──► a cell runs ──► a cell waits for results
     ▲                            │
     ├── lost: killed, died, or ended to make room for another container's; variables are gone
     ├── detached: another replica attaches to it (`detach`)
     └── ended: the container is deleted or has expired

"Lost" is reported once, to the next cell, whose session is a new one. A cell that waits for results waits
inside its kernel; it is never run again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from emulator.interpreter.cell import RunningCell
from emulator.interpreter.file_sync import FileSync
from emulator.tools.toolset import Toolset
from sandbox.errors import SandboxError
from sandbox.kernel.notebook import Notebook


class ContainerKernel:
    """Changed only under its lock, except for `running`, which other threads read."""

    def __init__(self, new_file_sync: Callable[[], FileSync]) -> None:
        self.lock = threading.Lock()
        self.opened = ExitStack()
        """Closes the notebook."""
        self.notebook: Notebook | None = None
        self._new_file_sync = new_file_sync
        self.last_used = time.monotonic()
        self.has_run = False
        """A cell has run in the container."""
        self.lost = False
        """Its kernel was ended to make room for another container's."""
        self.running: RunningCell | None = None
        self.stamp = ""
        """Of the record that this replica wrote last."""
        self.is_leased: Callable[[], bool] = lambda: True
        """Returns False once another replica may have the container: its kernel must not be ended here."""
        self.end()

    @property
    def was_lost(self) -> bool:
        """There was a kernel, which is gone."""
        return self.lost or (self.notebook is not None and self.notebook.ended)

    def is_idle(self, since: float) -> bool:
        """Return True if the kernel has had nothing to do since then. A waiting cell keeps it busy."""
        return self.notebook is not None and self.waiting is None and self.last_used <= since

    def end(self) -> None:
        """End the kernel, if there is one, and forget its session."""
        if self.notebook is not None and not self.is_leased():
            self.notebook.detach()
        self.opened.close()
        self.notebook = None
        self.file_sync = self._new_file_sync()
        self.session_recorded = False
        """A cell has run in this kernel, and the container's row says so."""
        self.is_own = False
        """This process started the kernel."""
        self.offered: Toolset | None = None
        """The tools whose functions the kernel defines."""
        self.holder: tuple[str, str] | None = None
        """The client and the memory limit that the kernel counts for."""
        self.waiting: RunningCell | None = None
        """The cell that waits for the results of its calls."""

    def detach(self) -> None:
        """Disconnect from the kernel, which may live on for another replica."""
        if self.notebook is not None:
            self.notebook.detach()
        self.end()

    def offer(self, toolset: Toolset) -> None:
        """Let calls of these functions, and of no others, pause."""
        if self.notebook is not None and self.offered is not toolset:
            self.notebook.offer(toolset.names, toolset.preamble)
            self.offered = toolset

    def abandon_waiting_cell(self) -> None:
        """No results will come: the waiting call raises, and so does any further call of the cell."""
        self.waiting = None
        notebook = self.notebook
        with suppress(SandboxError):
            while notebook is not None and notebook.paused:
                for _ in notebook.refuse("the call was given up"):
                    pass
