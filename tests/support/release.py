"""Print the notes of a release: `python3 -m tests.support.release v1.2.3`, before anything is installed.

Fails unless the tag is `emulator.__version__`, and `CHANGELOG.md` has notes for that version and no others
that are still unreleased. The variable `REPOSITORY_URL` says where the files are that the notes link to.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from emulator import __version__

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def notes(tag: str, version: str, changelog: str, repository: str) -> str:
    """The section of the changelog, its links absolute. Raises SystemExit with what is wrong."""
    if tag != f"v{version}":
        raise SystemExit(f"the tag is {tag}, and emulator/__init__.py has {version}")
    parts = re.split(r"^## \[([^]]+)\].*\n", changelog, flags=re.MULTILINE)
    sections = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    if sections.get("Unreleased"):
        raise SystemExit("CHANGELOG.md has changes below [Unreleased]: rename it to the version")
    if not sections.get(version):
        raise SystemExit(f"CHANGELOG.md has no notes below [{version}]")
    return re.sub(r"\]\((?!https?:)", f"]({repository}/blob/{tag}/", sections[version]) + "\n"


if __name__ == "__main__":
    repository = os.environ["REPOSITORY_URL"]
    sys.stdout.write(notes(sys.argv[1], __version__, CHANGELOG.read_text(), repository))
