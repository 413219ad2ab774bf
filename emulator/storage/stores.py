"""Open the stores: once to prepare them, before any worker runs, and then in each worker without a statement.

prepare_stores   tables and versions are checked and made, data of an old version is read, leftovers are
                 removed. A database that fails ends the start.
open_stores      works also while the database is down or locked: a worker may start at any time
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog

from emulator.core.errors import StorageFailed
from emulator.database import Database, DatabaseFailed, open_database
from emulator.database.sqlite import MEMORY, SQLite
from emulator.settings.settings import Settings
from emulator.storage.blob_store import BlobStore, contents_name, open_blob_store, storage_failures
from emulator.storage.containers import Containers
from emulator.storage.files import Files
from emulator.storage.version_1 import read_version_1

log = structlog.get_logger()


@dataclass(frozen=True)
class PreparedStores:
    """Where the stores are."""

    database: str
    """A place, as `open_database` takes it."""
    files: str
    """A folder or bucket."""
    contents: str
    """The name of the database's contents in there."""
    is_kept: bool
    """The stores outlive this run."""


@dataclass(frozen=True)
class Stores:
    """The stores for data that outlives a request."""

    database: Database
    blobs: BlobStore
    files: Files
    containers: Containers
    is_kept: bool
    """The stores outlive this run."""


def prepare_stores(
    settings: Settings, run_folder: Path, now: Callable[[], float] = time.time
) -> PreparedStores:
    """What is not kept is in ``run_folder``, which ends with the run.

    Raises `StorageFailed` if a database or folder that the operator has named cannot be used.
    """
    with ExitStack() as opening:
        database, place, is_kept = _open_database(settings, now, run_folder)
        opening.callback(database.close)
        files = settings.files_dir if is_kept else str(run_folder / "files")
        prepared = PreparedStores(place, files, contents_name(database, files), is_kept)
        stores = _open(opening, settings, prepared, database)
        if isinstance(database, SQLite) and is_kept:
            programs = Path(database.path).with_name("programs.sqlite")
            files_dir = Path(settings.files_dir).expanduser()
            with storage_failures():
                read_version_1(database, programs, files_dir, settings.response_seconds)
        stores.blobs.remove_leftovers()
    return prepared


def open_stores(
    opening: ExitStack, settings: Settings, prepared: PreparedStores, now: Callable[[], float]
) -> Stores:
    """``opening`` closes them. Raises `StorageFailed` if the folder of files cannot be used."""
    database = open_database(prepared.database, now, is_prepared=True)
    opening.callback(database.close)
    return _open(opening, settings, prepared, database)


def _open(
    opening: ExitStack, settings: Settings, prepared: PreparedStores, database: Database
) -> Stores:
    blobs = open_blob_store(database, prepared.files, prepared.contents)
    opening.callback(blobs.close)
    files = Files(blobs, settings)
    containers = Containers(blobs, files, settings)
    return Stores(database, blobs, files, containers, prepared.is_kept)


def _open_database(
    settings: Settings, now: Callable[[], float], run_folder: Path
) -> tuple[Database, str, bool]:
    """The database, its place, and whether it outlives this run."""
    temporary = str(run_folder / "emulator.sqlite")
    if not settings.remembers:
        log.warning(
            "nothing is remembered: programs end with their turn, responses are not stored",
            database="none",
        )
    if settings.database not in (MEMORY, "none"):
        try:
            return open_database(settings.database, now), settings.database, True
        except DatabaseFailed as error:
            # A lock ends, and a run without a store does not.
            if settings.names_database or error.passes:
                raise StorageFailed(
                    f"the setting database: {error}. Name another, or :memory: to store nothing."
                ) from error
            log.warning("nothing is stored: the state folder cannot be used", reason=str(error))
    with storage_failures():
        return open_database(temporary, now), temporary, False
