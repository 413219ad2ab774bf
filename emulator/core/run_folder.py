"""The temporary folder of one run: what its workers share, and what is not kept after it.

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

_METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "emulator-run-"
_LOCK = "lock"
"""Locked while any process of the run lives, since children inherit the lock."""
_YOUNG_SECONDS = 60.0
"""A younger folder may not be locked yet."""


@contextmanager
def run_folder(*, counts_together: bool = False) -> Iterator[Path]:
    """A folder that only this user can enter, removed at the end. Folders of killed runs are removed first.

    ``counts_together``: prometheus_client, imported later, counts for all processes of the run together.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    owner = os.getpid()
    if counts_together:
        (folder / "metrics").mkdir()
        os.environ[_METRICS_VARIABLE] = str(folder / "metrics")
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            if os.getpid() == owner:  # a forked worker leaves this block, too
                shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's run folders in ``parent`` whose processes are all dead."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _YOUNG_SECONDS:
                continue
            # No link is followed: in a shared folder anybody may create one.
            lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
