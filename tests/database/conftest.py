"""Each test runs with every database: SQLite in memory, in a file, and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from emulator.database import Database, open_database
from tests.support.postgres import Postgres
from tests.support.uploads import Clock

OpenDatabase = Callable[[], Database]


@pytest.fixture(params=["memory", "file", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres_server")
        return server.database()
    return ":memory:" if request.param == "memory" else str(tmp_path / "database.sqlite")


@pytest.fixture
def open_it(place: str, clock: Clock) -> Iterator[OpenDatabase]:
    """Opens the database, each time as another process would; memory is opened once."""
    with ExitStack() as opened:

        def open_one() -> Database:
            database = open_database(place, clock)
            opened.callback(database.close)
            return database

        first = open_one()
        yield (lambda: first) if place == ":memory:" else open_one
