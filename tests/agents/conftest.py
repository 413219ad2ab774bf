"""A home for an agent, as if nothing had ever run on this machine."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest


@pytest.fixture
def home() -> Iterator[Path]:
    """Codex keeps its sandbox's helper in its home, which must therefore not lie in /tmp.

    What an agent leaves running (Cline a daemon) is ended.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as made:
        yield Path(made)
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"HOME={made}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
