"""The folder of one run of several workers: the keeper's socket, what is counted, what is not kept longer.

Knows nothing of workers.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SOCKET = "keeper"
_METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "emulator-run-"
_LOCK = "lock"
"""Locked as long as a process of the run lives: children inherit the lock."""
_YOUNG_SECONDS = 60.0
"""A folder younger than this may be about to be locked."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder of this user's alone, gone at the end.

    To be entered before prometheus_client is imported, which then counts for all processes together.
    What runs that were killed have left is removed.
    """
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    owner = os.getpid()
    (folder / "metrics").mkdir()
    os.environ[_METRICS_VARIABLE] = str(folder / "metrics")
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            if os.getpid() == owner:  # not where a forked process leaves
                shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove the folders of this user's runs of which no process lives any more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = folder.lstat()
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < _YOUNG_SECONDS:
                continue
            # Neither link is followed: in a shared folder anybody may lay one.
            at = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(at, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(at)
