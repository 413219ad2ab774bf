"""Start the MCP servers of the tests as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.processes import ROOT, wait_until

FAULTS = str(ROOT / "tests" / "support" / "mcp_faults.py")


def stdio(log: Path) -> dict[str, Any]:
    """The settings of a misbehaving server on standard input and output."""
    return {"command": sys.executable, "args": [FAULTS], "env": {"LOG": str(log), **_path()}}


def _path() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT)}


@contextmanager
def http(folder: Path, token: str = "") -> Iterator[str]:
    """The URL of a misbehaving server on HTTP; ``folder``/log tells what it was asked."""
    port_file = folder / "port"
    port_file.unlink(missing_ok=True)
    variables = {**os.environ, **_path(), "LOG": str(folder / "log"), "TOKEN": token}
    process = subprocess.Popen(
        [sys.executable, FAULTS, "--port-file", str(port_file)], env=variables, cwd=ROOT
    )
    try:
        wait_until(lambda: port_file.exists() and port_file.read_text(), "the server did not start")
        yield f"http://127.0.0.1:{port_file.read_text()}/mcp"
    finally:
        process.kill()
        process.wait()
