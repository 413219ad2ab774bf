"""Opens the interpreter with its engines and its sweeper: in the only worker, or in the keeper."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import structlog

from emulator.engines import InterpreterEngines
from emulator.interpreter.interpreter import Interpreter
from emulator.settings import Settings
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from emulator.storage.key_value import RedisStore, open_store
from emulator.storage.sweeper import Sweeper

log = structlog.get_logger()

if TYPE_CHECKING:
    from sandbox.kernel.engine import KernelEngine


def open_interpreter(
    owned: ExitStack,
    settings: Settings,
    containers: Containers,
    uploaded: Files,
    kernels: Callable[[str], KernelEngine] | None = None,
) -> Interpreter:
    """``owned`` closes the interpreter. ``kernels``, if given, remain the caller's to close."""
    if kernels is None:
        kernels = opened = InterpreterEngines(settings)
        owned.callback(opened.close)
        if settings.interpreter == "on":
            opened.warm_up()
    shared = None
    if settings.files_index:  # all replicas have the same containers
        store = open_store(settings.store, settings.store_seconds)
        if isinstance(store, RedisStore):
            shared = store
            owned.callback(store.close)
        else:
            log.warning("replicas do not share kernels", fix="store redis://host")
    interpreter = Interpreter(containers, kernels, settings, shared)
    owned.callback(interpreter.close)
    owned.callback(Sweeper(interpreter.touch_busy, uploaded.sweep, interpreter.sweep).close)
    return interpreter
