"""Opens the interpreter with its engines and its sweeper."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from emulator.database import Database, Leases
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.engines import InterpreterEngines
from emulator.interpreter.interpreter import Interpreter
from emulator.settings.settings import Settings
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from emulator.storage.sweeper import Sweeper

if TYPE_CHECKING:
    from sandbox.kernel.engine import KernelEngine


def open_interpreter(
    owned: ExitStack,
    settings: Settings,
    containers: Containers,
    uploaded: Files,
    approvals: Approvals,
    database: Database,
    leases: Leases,
    kernels: Callable[[str], KernelEngine] | None = None,
) -> Interpreter:
    """``owned`` closes the interpreter. ``kernels``, if given, remain the caller's to close."""
    if kernels is None:
        kernels = opened = InterpreterEngines(settings)
        owned.callback(opened.close)
        if settings.interpreter == "on":
            opened.warm_up()
    interpreter = Interpreter(containers, kernels, approvals, database, leases, settings)
    owned.callback(interpreter.close)
    sweeps = (interpreter.touch_busy, uploaded.sweep, interpreter.sweep, approvals.sweep)
    owned.callback(Sweeper(*sweeps).close)
    return interpreter
