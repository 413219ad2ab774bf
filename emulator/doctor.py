"""`python app.py doctor`: which engines and fences work on this machine, and how to mend the others.

The probes are those of `sandbox.checks`; the kernel engine runs its own part of them at every start
too. Here they meet the settings: an engine that no setting asks for may be off.
"""

from __future__ import annotations

import sys

from emulator.engines import place_options
from emulator.settings import Settings
from sandbox import checks
from sandbox.report import Check, render


def examine(settings: Settings) -> list[Check]:
    """Every engine that the settings name, and the fences of the place where kernels run."""
    found = [checks.check_monty()] if "monty" in settings.engines else []
    if "kernel" in settings.engines:
        found += checks.check_place(settings.sandbox, place_options(settings))
    return found


def main(settings: Settings) -> int:
    """Print the table; returns the exit code, 0 if nothing that is needed is off."""
    found = examine(settings)
    sys.stdout.write(f"{render(found)}\n")
    if settings.sandbox == "none":
        sys.stdout.write("\n--sandbox none: kernels run without any of these fences.\n")
    return 0 if all(check.ok for check in found if check.needed) else 1
