"""The embedded model's rows in results.md: `tool-emulator fit` in a process of its own.

python -m benchmarks.fit [--minutes 10]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import RESULTS, write_section

ROOT = Path(__file__).parent.parent
# A reply of this model that is longer than that is a repetition.
OPTIONS = ("--local-model", "--max-tokens", "128", "--repair-attempts", "1")
STATE = ROOT / "build" / "fit.jsonl"


def main(arguments: Sequence[str]) -> int:
    """Measure what `STATE` lacks, and write the table."""
    STATE.parent.mkdir(exist_ok=True)
    command = [sys.executable, ROOT / "app.py", "fit", *OPTIONS, "--state", STATE, *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(run.stdout)
    if run.returncode == 0:
        write_section(RESULTS, "embedded", run.stdout)
    return run.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
