"""`python app.py doctor`: which engines and fences work on this machine, and how to mend the others.

The probes are those of `sandbox.checks`; the kernel engine runs its own part of them at every start
too. Here they meet the settings: an engine that no setting asks for may be off.
"""

from __future__ import annotations

import sys

from emulator.settings import Settings
from sandbox import checks, fences
from sandbox.fences import Check


def examine(settings: Settings) -> list[Check]:
    """Every engine that the settings name, and the fences of the place where kernels run."""
    named = [name for name in checks.ENGINES if name.split()[0] in settings.engines]
    if settings.sandbox == "gateway":
        named = [name for name in named if name == "monty"]
    found = [checks.check(name) for name in named]
    if "kernel" not in settings.engines:
        return found
    return found + (_gateway(settings) if settings.sandbox == "gateway" else fences.checks())


def _gateway(settings: Settings) -> list[Check]:
    from sandbox.gateway import Gateway

    token = settings.gateway_token.get_secret_value()
    problem = Gateway(settings.gateway_url, token, settings.gateway_kernel).problem()
    if problem is not None:
        return [Check("gateway", ok=False, detail=problem.reason, fix=problem.fix)]
    detail = f"{settings.gateway_url} offers {settings.gateway_kernel}; its fences are its own"
    return [Check("gateway", ok=True, detail=detail)]


def main(settings: Settings) -> int:
    """Print the table; returns the exit code, 0 if nothing that is needed is off."""
    found = examine(settings)
    sys.stdout.write(f"{checks.render(found)}\n")
    if settings.sandbox == "none":
        sys.stdout.write("\n--sandbox none: kernels run without any of these fences.\n")
    return 0 if all(check.ok for check in found if check.needed) else 1
