"""Read once what version 1 had stored.

It had two SQLite files: one next to the database (responses and conversations; and programs, which are lost)
and one in the folder of files. Both stay as they are, so that version 1 can be started again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import structlog

from emulator.core import json_codec
from emulator.database import Database, Documents
from emulator.database.database import Rows

log = structlog.get_logger()

CONTENTS = "contents"
"""The folder of contents, in that of files."""
_INDEX = "index.sqlite"
_TABLES = ("contents", "files", "containers", "container_sessions", "container_files")


def has_files(files_dir: Path) -> bool:
    return (files_dir / _INDEX).is_file()


def read_version_1(database: Database, programs: Path, files_dir: Path, seconds: float) -> None:
    """The tables must exist, and their contents must not have been tidied. ``seconds``: of a response.

    Raises `DatabaseFailed`.
    """
    with database.transaction("version 1") as rows:
        query = "INSERT INTO facts VALUES ('version 1', 'read') ON CONFLICT (name) DO NOTHING"
        if not rows.run(query):
            return
        count = _read_files(rows, files_dir / _INDEX)
    count += _read_responses(database, programs, seconds)
    if count:
        log.info("read what version 1 had stored", records=count, lost="programs that waited")


def _read_files(rows: Rows, index: Path) -> int:
    count = 0
    for table in _TABLES:
        for row in _rows_of(index, table):
            names = ", ".join(row)
            places = ", ".join(f":{name}" for name in row)
            rows.run(f"INSERT INTO {table} ({names}) VALUES ({places})", **row)
            count += 1
    return count


def _read_responses(database: Database, programs: Path, seconds: float) -> int:
    kinds = ("response", "item", "conversation")
    stored = {kind: Documents[bytes](database, kind, seconds=seconds) for kind in kinds}
    count = 0
    for row in _rows_of(programs, "kept"):
        kind, _, name = str(row["key"]).partition(":")
        if kind in stored:
            try:
                value = _converted(kind, name, bytes(row["value"]))
            except (ValueError, TypeError, LookupError):
                log.warning("a record of version 1 cannot be read", key=row["key"])
                continue
            stored[kind].put({name: value})
            count += kind != "item"
    return count


def _converted(kind: str, name: str, value: bytes) -> bytes:
    if kind == "item":  # the id of its response
        client = name.rpartition(":")[0]
        return json_codec.dumps([f"{client}:{value.decode()}"])
    fields = json_codec.loads(value)
    if kind == "conversation":
        return json_codec.dumps([fields])
    return json_codec.dumps({"response": fields["response"], "input": fields["input"]})


def _rows_of(file: Path, table: str) -> Iterator[Mapping[str, Any]]:
    """Nothing if there is no such file or table."""
    if not file.is_file():
        return
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            yield from map(dict, connection.execute(f"SELECT * FROM {table}"))
    except sqlite3.Error as error:
        log.warning("a file of version 1 cannot be read", file=str(file), reason=str(error))
