"""Print the notes of a release: `python3 -m tests.support.release v1.2.3`, before anything is installed.

Fails unless the tag is `emulator.__version__`, and `CHANGELOG.md` has a section for that version.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from emulator import __version__

ROOT = Path(__file__).parents[2]


def notes(tag: str) -> str:
    """The section of the changelog. Raises SystemExit with what is wrong."""
    if tag != f"v{__version__}":
        raise SystemExit(f"the tag is {tag}, and emulator/__init__.py has {__version__}")
    section = rf"^## \[{re.escape(__version__)}\][^\n]*\n(.*?)(?=^## \[|\Z)"
    found = re.search(section, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no section [{__version__}]")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(notes(sys.argv[1]))
