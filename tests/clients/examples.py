"""Run an example of examples/ in this environment, as a process before the proxy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(script: str, *arguments: str, url: str, folder: Path) -> str:
    """What it prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        cwd=folder,
        env=os.environ | {"PROXY_URL": url, "MODEL": "qwq-32b"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
