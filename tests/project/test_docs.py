"""The documents tell the truth about the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from emulator.settings import Settings
from tests.support.places import needs_bubblewrap
from tests.support.scripted import ScriptedUpstream

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "examples" / "README.md"]
IGNORED = shutil.ignore_patterns("__pycache__", "node_modules", "clients")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_documented_with_its_default(name: str) -> None:
    default: Any = Settings.model_fields[name].default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, tuple):
        default = ",".join(default) or "none"
    row = f"| `--{name.replace('_', '-')}` | `EMULATOR_{name.upper()}` | `{default}` |"
    assert row in (ROOT / "docs" / "settings.md").read_text()


def test_the_readme_fits_a_screen_and_names_the_two_commands_first() -> None:
    assert len(README.splitlines()) <= 100
    first = README.index("```")
    commands = [line.split("#")[0].strip() for line in README[first:].splitlines()[1:3]]
    assert commands == ["make run", "make test"]


@needs_bubblewrap
def test_the_readmes_python_runs(
    proxy: str, upstream: ScriptedUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.reply('```python\nget_weather(location="London")\n```', "It is 12 degrees in London.")
    upstream.reply("```python\nprint(sum(n * n for n in range(1, 10)))\n```", "Their sum is 285.")
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    source = "\n".join(snippets).replace("http://127.0.0.1:8001", proxy)
    exec(compile(source, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        'get_weather {"location":"London"}',
        "It is 12 degrees in London.",
        "Their sum is 285.",
    ]


@needs_bubblewrap
def test_the_quickstarts_python_runs(
    proxy: str, upstream: ScriptedUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.reply(*['```python\nget_weather(location="London")\n```'] * 3)
    upstream.reply("```python\nprint(sum(n * n for n in range(1, 10)))\n```", "Their sum is 285.")
    page = (ROOT / "docs" / "quickstart.md").read_text()
    for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        source = snippet.replace("http://127.0.0.1:8001", proxy)
        exec(compile(source, "quickstart.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        '{"location":"London"}',
        '{"location":"London"}',
        "{'location': 'London'}",
        "Their sum is 285.",
    ]


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
def test_the_quickstarts_curl_line_runs(proxy: str, upstream: ScriptedUpstream) -> None:
    upstream.reply('```python\nget_weather(location="London")\n```')
    page = (ROOT / "docs" / "quickstart.md").read_text()
    [line] = re.findall(r"^## curl\n\n```sh\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    command = ["sh", "-c", line.replace("http://127.0.0.1:8001", proxy)]
    answer = json.loads(subprocess.check_output(command))
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"location":"London"}'}


def test_the_index_and_the_site_list_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    index = (ROOT / "docs" / "index.md").read_text()
    assert pages == set(re.findall(r"\(([\w-]+\.md)\)", index))
    assert pages <= set(re.findall(r": ([\w-]+\.md)", (ROOT / "mkdocs.yml").read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(((?!http)[^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_architecture_names_each_room_and_what_stands_in_it() -> None:
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


@pytest.mark.slow
def test_the_contributors_example_works_as_told(tmp_path: Path) -> None:
    """The first two steps of CONTRIBUTING.md in a copy: the case fails, and passes with the row."""
    for folder in ("benchmarks", "emulator", "sandbox", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=IGNORED)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    text = (ROOT / "CONTRIBUTING.md").read_text()
    row = re.search(r"`(Tag\(.*\))` in `TAGS`", text)
    case = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    command = re.search(r'ARGS="(tests/reading -k [^"]+)"` fails', text)
    assert row is not None
    assert case is not None
    assert command is not None

    def passes() -> bool:
        arguments = [sys.executable, "-m", "pytest", *command[1].split()]
        return (
            subprocess.run(
                arguments, cwd=tmp_path, stdout=subprocess.DEVNULL, check=False
            ).returncode
            == 0
        )

    with (tmp_path / "tests" / "replies" / "markup.md").open("a") as cases:
        cases.write(f"\n{textwrap.dedent(case[1])}")
    assert not passes()
    table = tmp_path / "emulator" / "reading" / "tags.py"
    begin = "TAGS: tuple[Tag, ...] = (\n"
    table.write_text(table.read_text().replace(begin, f"{begin}    {row[1]},\n"))
    assert passes()
