"""`python app.py doctor`: which engines and fences work on this machine, and how to mend the others.

The probes are those of `sandbox.checks`; the kernel engine runs its own part of them at every start
too. Here they meet the settings: an engine that no setting asks for may be off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from emulator.settings import Settings
from sandbox import checks, fences
from sandbox.fences import Check
from sandbox.kernel import KernelEngine


def examine(settings: Settings) -> list[Check]:
    """Every engine that the settings name, and the fences of the place where kernels run."""
    found = [checks.check("monty")] if "monty" in settings.engines else []
    if "kernel" in settings.engines:
        found += _PLACES.get(settings.sandbox, _bubblewrap)(settings)
    return found


def _bubblewrap(_: Settings) -> list[Check]:
    return [checks.check("kernel (bubblewrap)"), *fences.checks()]


def _docker(settings: Settings) -> list[Check]:
    from sandbox import docker_fences

    config: dict[str, Any] = {"image": settings.docker_image, "host": settings.docker_host}
    kernel = checks.check("kernel (docker)", lambda: KernelEngine(place="docker", warm=0, **config))
    return [kernel, *docker_fences.checks(**config)]


def _gateway(settings: Settings) -> list[Check]:
    from sandbox.gateway import Gateway

    token = settings.gateway_token.get_secret_value()
    problem = Gateway(settings.gateway_url, token, settings.gateway_kernel).problem()
    if problem is not None:
        return [Check("gateway", ok=False, detail=problem.reason, fix=problem.fix)]
    detail = f"{settings.gateway_url} offers {settings.gateway_kernel}; its fences are its own"
    return [Check("gateway", ok=True, detail=detail)]


_PLACES: dict[str, Callable[[Settings], list[Check]]] = {"docker": _docker, "gateway": _gateway}
"""Where kernels run -> its checks, if they are not those of bubblewrap."""


def main(settings: Settings) -> int:
    """Print the table; returns the exit code, 0 if nothing that is needed is off."""
    found = examine(settings)
    sys.stdout.write(f"{checks.render(found)}\n")
    if settings.sandbox == "none":
        sys.stdout.write("\n--sandbox none: kernels run without any of these fences.\n")
    return 0 if all(check.ok for check in found if check.needed) else 1
