"""Open the sandboxes that the settings describe: the program server, and kernels for the code interpreter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import SecretStr

from emulator.settings.settings import Settings
from sandbox.engine import Limits
from sandbox.errors import SandboxUnavailable
from sandbox.kernel.places import PLACES
from sandbox.programs.server import ProgramServer
from sandbox.report import first_problem

if TYPE_CHECKING:
    from sandbox.kernel.engine import KernelEngine

log = structlog.get_logger()


def open_programs(settings: Settings, clients: int = 1) -> ProgramServer:
    """The server that runs the programs of all ``clients``. Its process starts with the first of them."""
    return ProgramServer(Limits(seconds=settings.program_seconds), shared=clients > 1)


def _place(settings: Settings) -> dict[str, Any]:
    """The arguments of `KernelEngine` for the configured sandbox. Logs each fence that is missing there."""
    for fence in PLACES[settings.sandbox].weak():
        log.warning("fence missing", fence=fence.name, reason=fence.detail, fix=fence.fix)
    return {"place": settings.sandbox, **place_options(settings)}


def place_options(settings: Settings) -> dict[str, Any]:
    """The options of the configured sandbox, from the settings."""
    return {
        option: value.get_secret_value() if isinstance(value, SecretStr) else value
        for option, name in PLACES[settings.sandbox].options.items()
        for value in [getattr(settings, name)]
    }


def warn_of_place(settings: Settings) -> None:
    """Log the reason if kernels cannot start in the sandbox that the operator chose: Docker or a gateway may
    be stopped, and else the first cell would tell."""
    if settings.interpreter == "on" or settings.sandbox == "bubblewrap":
        return  # `InterpreterEngines.warm_up` logs it; or it is the default, which few need
    problem = first_problem(PLACES[settings.sandbox].checks(place_options(settings)))
    if problem is not None:
        _warn(settings, problem)


def _warn(settings: Settings, problem: SandboxUnavailable) -> None:
    log.warning(
        "code interpreter off", sandbox=settings.sandbox, reason=problem.reason, fix=problem.fix
    )


PRELOADED = ("numpy", "pandas", "matplotlib.pyplot")
"""Modules that a warm interpreter kernel imports in advance, because most cells start by importing them."""

_MEMORY = {"1g": 1, "4g": 4, "16g": 16, "64g": 64}
_WARM = 1
"""Kernels started in advance, after the first use."""
_CPU_SECONDS = 36_000
"""CPU limit of an interpreter kernel, which may live long; each of its cells has its own deadline."""


class InterpreterEngines:
    """One kernel engine for each memory limit of containers, opened on first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: dict[str, KernelEngine] = {}

    def __call__(self, memory_limit: str) -> KernelEngine:
        """Raises SandboxUnavailable if kernels do not work here."""
        with self._lock:
            if memory_limit not in self._opened:
                self._opened[memory_limit] = self._open(memory_limit)
            return self._opened[memory_limit]

    def pool_counts(self) -> dict[str, int]:
        """The sums of `WarmPool.counts` over all open engines."""
        with self._lock:
            opened = [engine.pool_counts() for engine in self._opened.values()]
        return {state: sum(each[state] for each in opened) for state in opened[0]} if opened else {}

    def release_ended(self) -> None:
        """See `KernelEngine.release_ended`."""
        with self._lock:
            opened = [*self._opened.values()]
        for engine in opened:
            engine.release_ended()

    def warm_up(self) -> None:
        """Start the warm kernels now. Logs the reason if kernels do not work here."""
        try:
            self("1g").warm_up()
        except SandboxUnavailable as error:
            _warn(self._settings, error)

    def _open(self, memory_limit: str) -> KernelEngine:
        from sandbox.kernel.engine import KernelEngine

        settings = self._settings
        limits = Limits(
            seconds=settings.interpreter_seconds,
            memory=_MEMORY[memory_limit] * 2**30,
        )
        return KernelEngine(
            limits,
            # Most containers use the smallest memory limit. At a gateway no replica would count it.
            warm=_WARM if memory_limit == "1g" and not PLACES[settings.sandbox].shared else 0,
            most=max(1, settings.max_kernels // settings.workers),
            preload=PRELOADED,
            data_size=settings.container_bytes,
            cpu_seconds=_CPU_SECONDS,
            programs=True,  # for `emulator.interpreter.shell`
            **_place(settings),
        )

    def close(self) -> None:
        with self._lock:
            for engine in self._opened.values():
                engine.close()
