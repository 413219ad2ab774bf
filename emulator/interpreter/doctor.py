"""`python app.py doctor`: which sandboxes and fences work on this machine, and how to repair the others.

Runs the probes of the program server, and those of `sandbox.checks` for the kernels' sandbox in the settings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing

from emulator.interpreter.engines import place_options
from emulator.settings.redaction import redactor
from emulator.settings.settings import Settings
from sandbox import checks
from sandbox.engine import Limits
from sandbox.programs.server import ProgramServer
from sandbox.report import Check, render


def examine(settings: Settings) -> list[Check]:
    """Check the program server, and each fence of the kernels' sandbox."""
    with closing(ProgramServer(Limits())) as programs:
        found = programs.checks()
    return found + checks.check_place(settings.sandbox, place_options(settings))


def main(settings: Settings, servers: Sequence[Check] = ()) -> int:
    """Print the table, with the checks of MCP ``servers``.

    Returns the exit code: 0 if everything that is needed works, else 1.
    """
    found = [*examine(settings), *servers]
    sys.stdout.write(f"{redactor(settings)(render(found))}\n")
    if settings.sandbox == "none":
        sys.stdout.write("\n--sandbox none: kernels run without any of these fences.\n")
    return 0 if all(check.ok for check in found if check.needed) else 1
