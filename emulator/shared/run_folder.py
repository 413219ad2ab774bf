"""The folder of one run of several workers: the keeper's socket, what is counted, what is not kept longer.

Knows nothing of workers.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET = "keeper"
_METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder of this user's alone, gone at the end.

    To be entered before prometheus_client is imported, which then counts for all processes together.
    """
    folder = Path(tempfile.mkdtemp(prefix="emulator-run-"))
    owner = os.getpid()
    (folder / "metrics").mkdir()
    os.environ[_METRICS_VARIABLE] = str(folder / "metrics")
    try:
        yield folder
    finally:
        if os.getpid() == owner:  # not where a forked process leaves
            shutil.rmtree(folder, ignore_errors=True)
