"""What runs a command as an ordinary user, for tests that run as root."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOBODY = 65534


def ordinary_user(stages: Path) -> list[str]:
    """What runs a command as an ordinary user who can read this interpreter and this project.

    What lies in a folder that is root's alone (a home) is mounted again below one that stands open, for
    that command only.
    """
    places: dict[Path, Path] = {}
    for place in dict.fromkeys(
        Path(each).resolve() for each in (sys.base_prefix, sys.prefix, ROOT)
    ):
        for parent in reversed(place.parents):
            if not parent.stat().st_mode & stat.S_IXOTH:
                places[place] = parent
                break
    lines = []
    for number, place in enumerate(places):
        stage = stages / str(number)
        stage.mkdir()
        lines.append(f"mount --bind {place} {stage}")
    lines += [
        f"mount -t tmpfs -o mode=755 none {parent}" for parent in dict.fromkeys(places.values())
    ]
    for number, place in enumerate(places):
        lines.append(f"mkdir -p {place}; mount --bind {stages / str(number)} {place}")
    user = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups".split()
    script = "\n".join(["set -e", *lines, 'exec "$@"'])
    return ["unshare", "--mount", "sh", "-c", script, "sh", *user] if places else user
