"""The server that runs the programs of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from sandbox.engine import Limits
from sandbox.errors import SandboxUnavailable
from sandbox.programs.server import ProgramServer


@pytest.fixture(scope="session")
def programs() -> Iterator[ProgramServer]:
    with closing(ProgramServer(Limits(seconds=5))) as server:
        try:
            server.check()
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        yield server
