"""Open the database that a setting names, and make its tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from emulator.database import counters, documents, journal, leases, slots
from emulator.database.availability import DatabaseFailed
from emulator.database.database import Database
from emulator.database.postgres import Postgres
from emulator.database.sqlite import MEMORY, SQLite

VERSION = "2"
"""Of the tables. Raise it whenever one changes; a new one is simply made. Version 1 had its tables in two
files, or in Redis."""
_FACTS = "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
"""What is known of the database itself."""
_TABLES = (
    _FACTS,
    *documents.TABLES,
    *leases.TABLES,
    *counters.TABLES,
    *journal.TABLES,
    *slots.TABLES,
)
_FORMER_KINDS = "'approval', 'kernel-slots'"
"""Kinds that only earlier versions write: nobody else removes them, and they have the code of clients."""


def open_database(
    place: str, now: Callable[[], float] = time.time, *, is_prepared: bool = False
) -> Database:
    """``place``: a file, ``:memory:``, or ``postgresql://...``.

    ``is_prepared``: another process has opened it before and made its tables; then no statement is executed
    here. Raises `DatabaseFailed`.
    """
    database: Database
    if place.startswith(("postgresql://", "postgres://")):
        database = Postgres(place, now)
    else:
        database = SQLite(place if place == MEMORY else str(Path(place).expanduser()), now)
    database.has_tables = is_prepared
    try:
        if not is_prepared:
            _prepare(database)
    except BaseException:
        database.close()
        raise
    return database


def fact(database: Database, name: str, value: str) -> str:
    """The fact of that name, which is ``value`` from now on if there is none. Raises `DatabaseFailed`."""
    query = "INSERT INTO facts VALUES (:name, :value) ON CONFLICT (name) DO NOTHING"
    database.run(query, name=name, value=value)
    return str(database.one("SELECT value FROM facts WHERE name = :name", name=name)[0])


def _prepare(database: Database) -> None:
    if isinstance(database, SQLite):
        database.make_file()
    database.make_tables(*_TABLES)
    if (version := fact(database, "version", VERSION)) != VERSION:
        raise DatabaseFailed(f"its tables are of version {version}, not {VERSION}")
    former = f"DELETE FROM documents WHERE kind IN ({_FORMER_KINDS}) AND expires < :now"
    database.run(former, now=database.now())
