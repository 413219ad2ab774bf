"""Put what a benchmark found into a page that people also write on."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).parent / "results.md"
"""The page of the tables that are too long for docs/."""


def write_section(path: Path, name: str, text: str) -> None:
    """Replace the text between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->`` in `path`.

    A page without the markers gets them at its end, a missing page is made.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    page = path.read_text("utf-8") if path.exists() else ""
    before, found, rest = page.partition(begin)
    if found:
        _, closed, after = rest.partition(end)
        if not closed:
            raise ValueError(f"{path}: {begin} without {end}")
        page = f"{before}{section}{after}"
    else:
        page = f"{page.rstrip()}\n\n{section}\n".lstrip()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, "utf-8")
