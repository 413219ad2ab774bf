"""Open the engines that the settings name, in their order; say aloud which cannot be had."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from emulator.settings import Settings
from sandbox.engine import Engine, Limits
from sandbox.errors import SandboxUnavailable

if TYPE_CHECKING:
    from sandbox.kernel import KernelEngine

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


PRELOADED = ("numpy", "pandas", "matplotlib.pyplot")
"""Modules that a waiting interpreter kernel imports, for most cells begin with them."""

_MEMORY = {"1g": 1, "4g": 4, "16g": 16, "64g": 64}
_CPU_SECONDS = 36_000
"""An interpreter's kernel may live long; each of its cells has its own deadline."""


class InterpreterEngines:
    """An engine for each memory limit of a container, opened when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: dict[str, KernelEngine] = {}

    def __call__(self, memory_limit: str) -> KernelEngine:
        """Raises SandboxUnavailable where kernels cannot be had, or are not wanted."""
        if "kernel" not in self._settings.engines:
            raise SandboxUnavailable(
                "the kernel engine is off", "add it to the setting engines, or leave that out"
            )
        with self._lock:
            if memory_limit not in self._opened:
                self._opened[memory_limit] = self._open(memory_limit)
            return self._opened[memory_limit]

    def warm_up(self) -> None:
        """Start the waiting kernels now; says aloud why none can be had."""
        try:
            self("1g").warm_up()
        except SandboxUnavailable as error:
            log.warning("code interpreter off", reason=error.reason, fix=error.fix)

    def _open(self, memory_limit: str) -> KernelEngine:
        from sandbox.kernel import KernelEngine

        settings = self._settings
        limits = Limits(
            seconds=settings.interpreter_seconds,
            memory=_MEMORY[memory_limit] * 2**30,
            pauses=settings.program_calls,
        )
        return KernelEngine(
            limits,
            # Most containers are of the smallest kind.
            warm=settings.warm_interpreters if memory_limit == "1g" else 0,
            most=settings.max_kernels,
            max_age=settings.kernel_age_seconds,
            preload=PRELOADED,
            data_size=settings.container_bytes,
            cpu_seconds=_CPU_SECONDS,
            **_PLACES[settings.sandbox](settings),
        )

    def close(self) -> None:
        with self._lock:
            for engine in self._opened.values():
                engine.close()


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
