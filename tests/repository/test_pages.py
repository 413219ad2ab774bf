"""The pages name what exists: settings with their defaults, links, rooms, tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import settings_table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "examples" / "README.md"]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_table_of_settings_is_the_generated_one() -> None:
    assert settings_table.PAGE.read_text() == settings_table.page(), "make pages"


def test_the_readme_fits_a_screen_and_names_the_two_commands_first() -> None:
    assert len(README.splitlines()) <= 100
    first = README.index("```")
    commands = [line.split("#")[0].strip() for line in README[first:].splitlines()[1:3]]
    assert commands == ["make run", "make test"]


def test_the_index_and_the_site_list_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    index = (ROOT / "docs" / "index.md").read_text()
    assert pages == set(re.findall(r"\(([\w-]+\.md)\)", index))
    assert pages <= set(re.findall(r": ([\w-]+\.md)", (ROOT / "mkdocs.yml").read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(((?!http)[^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_architecture_page_names_each_room_and_existing_functions() -> None:
    rooms = {file.parent.name for file in (ROOT / "emulator").glob("*/__init__.py")} | {"sandbox"}
    table = ARCHITECTURE.split("## Rooms")[1].split("## Three laws")[0]
    assert rooms <= set(re.findall(r"\[(\w+)\]", table))
    links = re.findall(r"\[`([\w.]+)`\]\(\.\./([\w/]+\.py)\)", ARCHITECTURE)
    assert len(links) > 20
    for name, file in links:
        first, _, member = name.partition(".")
        source = (ROOT / file).read_text()
        assert re.search(rf"^(?:def |class )?{first}\b", source, re.MULTILINE), name
        assert re.search(rf"^    (?:def )?{member}\b", source, re.MULTILINE), name


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/threat-model.md"])
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`(tests/[a-z_/.]+)`", (ROOT / page).read_text())
    assert [path for path in named if not (ROOT / path).is_file()] == []
