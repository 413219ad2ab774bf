"""A child that runs what a test sends it, as native code in a child could: without ``inside.run``."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

from sandbox.engine import Limits
from sandbox.programs.inside import channel
from sandbox.programs.server import ProgramServer
from sandbox.programs.server_process import ServerProcess, serve_source

LIMITS = Limits(seconds=20.0, memory=128 * 1024 * 1024)

PRELUDE = """
import ctypes, os, resource, signal, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def error_of(act):
    try:
        act()
    except OSError as error:
        return error.errno
    return 0
"""


def main() -> None:
    """In the child: run each text that the host sends and answer with its ``value``."""
    names: dict[str, Any] = {}
    while True:
        exec(channel.receive()["code"], names)
        channel.send({"value": names.get("value")})


def launch(
    *, without: Collection[str] = (), limits: Limits = LIMITS, first: str = ""
) -> ServerProcess:
    """A server with this ``main``. ``first`` is code that the server runs before it starts to serve."""
    here = "__import__('tests.support.native_code', fromlist=['main']).main"
    more = f", main={here}, without={set(without)!r}" if without else f", main={here}"
    return ServerProcess(first + serve_source(limits, more))


@contextlib.contextmanager
def server(
    *, without: Collection[str] = (), limits: Limits = LIMITS
) -> Iterator[tuple[ProgramServer, ServerProcess]]:
    """A program server, and its process, that does not look whether its fence holds."""
    process = launch(without=without, limits=limits)
    programs = ProgramServer(limits, launch=lambda: process)
    programs.check = lambda: None  # type: ignore[method-assign]
    try:
        yield programs, process
    finally:
        programs.close()
        process.close()


def answer(code: str, *, without: Collection[str] = (), limits: Limits = LIMITS) -> Any:
    """The ``value`` that ``code`` sets in a child."""
    with server(without=without, limits=limits) as (programs, _), programs.open() as child:
        return child.ask({"code": PRELUDE + code})["value"]
