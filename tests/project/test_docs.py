"""The commands and programs that the documents show run as shown."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.places import needs_bubblewrap
from tests.support.scripted import ScriptedUpstream

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "examples" / "README.md"]
IGNORED = shutil.ignore_patterns("__pycache__", "node_modules", "clients")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


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


def test_the_quickstarts_python_runs(
    proxy: str, upstream: ScriptedUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.reply(*['```python\nget_weather(location="London")\n```'] * 3)
    page = (ROOT / "docs" / "quickstart.md").read_text()
    for snippet in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        source = snippet.replace("http://127.0.0.1:8001", proxy)
        exec(compile(source, "quickstart.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        '{"location":"London"}',
        '{"location":"London"}',
        "{'location': 'London'}",
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


@pytest.mark.slow
def test_the_example_for_contributors_works(tmp_path: Path) -> None:
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
