"""Creates the databases that several workers share, before the workers start.

If the workers created the same database at the same time, some would find it locked.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import structlog

from emulator.settings import Settings
from emulator.storage.blob_store import TEMPORARY, open_folder
from emulator.storage.key_value import open_store

log = structlog.get_logger()


def with_worker_storage(settings: Settings, folder: Path) -> Settings:
    """The settings with a store and a folder of files that every worker can open.

    What is stored for this run only, or cannot be stored where the settings say, is in ``folder``.
    """
    store = str(folder / "store.sqlite") if settings.store == ":memory:" else settings.store
    if (opened := open_store(store, settings.store_seconds)) is not None:
        opened.close()
    if settings.files_index:
        return settings.model_copy(update={"store": store})
    files = folder / "files"
    if settings.files_dir != TEMPORARY:
        files = Path(settings.files_dir).expanduser()
    try:
        open_folder(files).close()
    except (OSError, sqlite3.Error) as error:
        log.warning("files are kept for this run only", reason=str(error))
        files = folder / "files"
        open_folder(files).close()
    return settings.model_copy(update={"store": store, "files_dir": str(files)})
