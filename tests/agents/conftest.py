"""A home for an agent, as if nothing had ever run on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.cli.terminal.run import end_processes_of


@pytest.fixture
def home() -> Iterator[Path]:
    """Codex keeps its sandbox's helper in its home, which must therefore not lie in /tmp.

    What an agent leaves running (Cline a daemon) is ended.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as made:
        yield Path(made)
        end_processes_of(made)
