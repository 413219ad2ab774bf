"""Open the engines that the settings name, in their order; say aloud which cannot be had."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from emulator.settings import Settings
from sandbox.engine import Engine, Limits
from sandbox.errors import SandboxUnavailable

log = structlog.get_logger()


def _monty(_: Settings, limits: Limits) -> Engine:
    from sandbox.monty import MontyEngine

    return MontyEngine(limits)


def _kernel(settings: Settings, limits: Limits) -> Engine:
    from sandbox.fences import missing
    from sandbox.kernel import KernelEngine

    if settings.sandbox == "none":
        log.warning("kernels run unsandboxed: the model's code has your account", sandbox="none")
    engine = KernelEngine(
        limits,
        place=settings.sandbox,
        warm=settings.warm_kernels,
        most=settings.max_kernels,
        max_age=settings.kernel_age_seconds,
    )
    engine.warm_up()
    if settings.sandbox == "bubblewrap":
        for fence in missing():
            log.warning("fence missing", fence=fence.name, reason=fence.detail, fix=fence.fix)
    return engine


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
