"""Open the engines that the settings name, in their order; say aloud which cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from emulator.settings import Settings
from sandbox.engine import Engine, Limits
from sandbox.errors import SandboxUnavailable

log = structlog.get_logger()


def _monty(_: Settings, limits: Limits) -> Engine:
    from sandbox.monty import MontyEngine

    return MontyEngine(limits)


def _kernel(settings: Settings, limits: Limits) -> Engine:
    from sandbox.kernel import KernelEngine

    engine = KernelEngine(
        limits,
        warm=settings.warm_kernels,
        most=settings.max_kernels,
        max_age=settings.kernel_age_seconds,
        **_PLACES[settings.sandbox](settings),
    )
    engine.warm_up()
    return engine


def _bubblewrap(settings: Settings) -> dict[str, Any]:
    from sandbox.fences import missing

    for fence in missing():
        log.warning("fence missing", fence=fence.name, reason=fence.detail, fix=fence.fix)
    return {"place": settings.sandbox}


def _docker(settings: Settings) -> dict[str, Any]:
    return {
        "place": settings.sandbox,
        "image": settings.docker_image,
        "host": settings.docker_host,
    }


def _gateway(settings: Settings) -> dict[str, Any]:
    from sandbox.gateway import Gateway, GatewayKernel

    token = settings.gateway_token.get_secret_value()
    gateway = Gateway(settings.gateway_url, token, settings.gateway_kernel)
    if (problem := gateway.problem()) is not None:
        raise problem
    return {"connect": partial(GatewayKernel, gateway)}


def _none(settings: Settings) -> dict[str, Any]:
    log.warning("kernels run unsandboxed: the model's code has your account", sandbox="none")
    return {"place": settings.sandbox}


_PLACES: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "bubblewrap": _bubblewrap,
    "docker": _docker,
    "gateway": _gateway,
    "none": _none,
}
"""Where kernels run -> what `KernelEngine` is to be told of it."""

ENGINES: dict[str, Callable[[Settings, Limits], Engine]] = {"monty": _monty, "kernel": _kernel}


def open_engines(settings: Settings) -> list[Engine]:
    """The engines that work here. Raises SandboxUnavailable when none does."""
    limits = Limits(seconds=settings.program_seconds)
    opened: list[Engine] = []
    problem: SandboxUnavailable | None = None
    for name in settings.engines:
        try:
            opened.append(ENGINES[name](settings, limits))
        except SandboxUnavailable as error:
            problem = error
            log.warning("engine off", engine=name, reason=error.reason, fix=error.fix)
    if not opened and problem is not None:
        raise problem
    return opened
