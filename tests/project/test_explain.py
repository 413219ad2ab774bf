"""`explain` on the command line: no server, no upstream, the same doors as a request."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from app import main
from tests.support.tools import GET_WEATHER

FENCED = '```python\nget_weather(location="London")\n```'


def explained(folder: Path, tools: Any, reply: str | None = None, *settings: str) -> int:
    """The exit code; tools and reply are given as files."""
    (folder / "tools.json").write_text(json.dumps(tools))
    arguments = ["explain", str(folder / "tools.json")]
    if reply is not None:
        (folder / "reply.txt").write_text(reply)
        arguments += ["--reply", str(folder / "reply.txt")]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, *settings])
    code = ended.value.code
    return code if isinstance(code, int) else pytest.fail(str(code))


def section(output: str, title: str) -> str:
    """The text below the heading that begins with ``title``; "" where there is none."""
    parts = [part.partition("\n") for part in f"\n{output}".split("\n## ")]
    return next((text.strip() for heading, _, text in parts if heading.startswith(title)), "")


@pytest.mark.parametrize(
    "tools",
    [
        GET_WEATHER,
        [GET_WEATHER],
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [GET_WEATHER]},
        {"functions": [GET_WEATHER["function"]]},
    ],
    ids=["one tool", "array", "request", "legacy functions"],
)
def test_tools_are_shown_as_the_model_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tools: Any
) -> None:
    assert explained(tmp_path, tools) == 0
    printed = capsys.readouterr().out
    stubs = section(printed, "Tools as Python")
    assert stubs.startswith("def get_weather(location: str")
    assert stubs in section(printed, "Prompt (profile default)")


def test_the_prompt_is_that_of_the_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explained(tmp_path, [GET_WEATHER], None, "--profile", "tiny") == 0
    printed = capsys.readouterr().out
    assert section(printed, "Prompt (profile tiny)")
    assert '"const": "get_weather"' in section(printed, "Constraint (response_format)")


@pytest.mark.parametrize(
    ("reply", "reading"),
    [
        (FENCED, "block (python):"),
        ('<tool_call>{"name": "get_weather", "arguments": {"location": "London"}}</tool_call>',
         "block (markup):"),
        ('get_weather(location="London")', "block (python):"),
        (f"<think>\nHm.\n</think>\n{FENCED}", "reasoning:\n    Hm."),
        (f"Let me look.\n{FENCED}", "prose:\n    Let me look."),
    ],
)  # fmt: skip
def test_explain_prints_how_a_reply_is_read_and_its_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reply: str, reading: str
) -> None:
    assert explained(tmp_path, [GET_WEATHER], reply) == 0
    printed = capsys.readouterr().out
    assert reading in section(printed, "Reply, as the proxy reads it")
    assert section(printed, "Calls") == 'get_weather {"location":"London"}'


def test_explain_prints_where_a_program_waits_for_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        'weather = get_weather(location="London")\nif weather["rain"] > 1:\n    print("umbrella")'
    )
    reply = f"```python\n{program}\n```"
    assert explained(tmp_path, [GET_WEATHER], reply) == 0
    assert section(capsys.readouterr().out, "Calls").splitlines() == [
        'get_weather {"location":"London"}',
        "(the program waits here for results)",
    ]


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        ('```python\nget_weather(town="Oslo")\n```', "invalid", 'unknown argument "town"'),
        ("```tool_code\nget_weather(location=)\n```", "invalid", "invalid Python"),
        ("```python\nget_weather(location=1 / 0)\n```", "invalid", "ZeroDivisionError"),
    ],
)
def test_explain_prints_the_repair_of_an_unusable_reply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reply: str, kind: str, words: str
) -> None:
    assert explained(tmp_path, [GET_WEATHER], reply) == 1
    printed = capsys.readouterr().out
    assert words in section(printed, "Diagnostics")
    asked = section(printed, f"Unusable ({kind})")
    assert asked.startswith("[user]")
    assert words in asked


def test_prose_is_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explained(tmp_path, [GET_WEATHER], "It rains.") == 0
    assert section(capsys.readouterr().out, "Answer") == "It rains."


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "the file is not JSON"),
        ('[{"type": "code_interpreter"}]', "tools: explain covers function tools"),
        ('[{"type": "function", "function": {"name": "a b c"}}]', "tools[0].function.name: "),
        ("7", "neither a request nor tools"),
    ],
)
def test_explain_reports_an_error_in_the_tools_with_its_place(
    monkeypatch: pytest.MonkeyPatch, given: str, message: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    with pytest.raises(SystemExit) as ended:
        main(["explain", "-"])
    assert message in str(ended.value.code)


def test_explain_names_a_missing_file() -> None:
    with pytest.raises(SystemExit, match=r"nowhere\.json: No such file"):
        main(["explain", "nowhere.json"])


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    for command in ("serve", "check", "doctor", "explain", "chat"):
        assert f" {command} " in printed.replace("[", " ").replace("]", " ")


def test_the_lines_of_a_program_say_which_calls_are_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = '```python\na = get_weather(location="Oslo")\nget_weather(location=a["next"])\n```'
    assert explained(tmp_path, GET_WEATHER, reply) == 0
    assert section(capsys.readouterr().out, "Program").splitlines() == [
        'sent   1 | a = get_weather(location="Oslo")',
        '       2 | get_weather(location=a["next"])',
    ]
