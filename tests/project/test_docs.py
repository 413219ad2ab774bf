"""The documents tell the truth about the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from emulator.settings import Settings
from tests.support.places import needs_bubblewrap
from tests.support.scripted import ScriptedUpstream

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


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


@pytest.mark.parametrize("link", re.findall(r"\]\(((?!http)[^)#]+)", README))
def test_the_readmes_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
