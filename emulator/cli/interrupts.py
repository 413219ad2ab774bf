"""Ctrl-C and SIGTERM at the command line: a process has two phases.

    starting    It imports and reads settings. A signal ends it immediately, by the signal's default action,
                which `emulator.__main__` sets first of all.
    working     After `raise_on_signals`. A signal raises an exception in the main thread, so that what the
                command has started is ended too.

Python's own handler would raise KeyboardInterrupt while the process starts, too. There it is printed and
forgotten if it arrives in Python that pydantic's Rust code calls, or in a weak reference's callback, as the
import system has; elsewhere it is a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack

INTERRUPTED = 128 + signal.SIGINT
"""The exit code after Ctrl-C."""


def raise_on_signals() -> None:
    """Begin the second phase: Ctrl-C raises KeyboardInterrupt, and SIGTERM SystemExit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def close_on_signals(cleanup: ExitStack) -> None:
    """Between the phases, while modules are imported but ``cleanup`` has entries: close it, and exit."""

    def close(number: int, _: object) -> None:
        cleanup.close()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, close)
