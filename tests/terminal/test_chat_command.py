"""`tool-emulator chat`: a conversation at a terminal, its tools run here; proxy and MCP server are real."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import termios
from contextlib import closing
from pathlib import Path
from typing import Any

import pexpect
import pytest

from app import main
from emulator.terminal.screen import harmless
from tests.support.command_line import command_line, environment, served
from tests.support.consoles import converse
from tests.support.processes import free_port
from tests.support.scripted import Reply, ScriptedUpstream

ROOT = Path(__file__).parents[2]
SERVER = shlex.join([sys.executable, str(ROOT / "tests" / "support" / "mcp_http.py")])

TOOLS = '''
import os
from dataclasses import dataclass

@dataclass
class Place:
    city: str
    country: str = "UK"

def get_weather(place: Place) -> dict:
    """The weather of a place."""
    return {"temperature": 12, "country": place.country}

def send_mail(to: str) -> str:
    raise ConnectionError("\\x1b]0;hello\\x07no network")

def _hidden() -> None: ...
'''
WEATHER = '```tool_code\nget_weather(place=Place(city="London"))\n```'
MAIL = '```tool_code\nsend_mail(to="eve")\n```'


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    file = tmp_path / "my_tools.py"
    file.write_text(TOOLS)
    return file


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code of `tool-emulator chat`, and what it printed."""
    with pytest.raises(SystemExit) as ended:
        main(["chat", *arguments])
    assert isinstance(ended.value.code, int)
    printed = capsys.readouterr()
    return ended.value.code, printed.out + printed.err


def results(upstream: ScriptedUpstream) -> str:
    return str(upstream.requests[-1]["messages"])


def test_a_conversation_with_calls_that_are_run_and_declined(
    proxy: str, upstream: ScriptedUpstream, tools: Path, tmp_path: Path
) -> None:
    upstream.reply(MAIL, "Then not.", WEATHER, "It is 12 degrees.", WEATHER, "Still 12.")
    command = [str(ROOT / "app.py"), "chat", "--url", f"{proxy}/v1", "--tools", str(tools)]
    typed = [
        "/tools",
        "Mail Eve",
        "no",
        "London?",
        "always",
        "And now?",
        "/reset",
        "/nope",
        "/quit",
    ]
    prompt = r"(?:> |always: )$"
    shown = converse([*command, "--model", "m"], typed, prompt, tmp_path)
    assert "get_weather: The weather of a place." in shown
    assert "_hidden" not in shown
    for said in (
        "Then not.",
        '"city": "London"',
        "It is 12 degrees.",
        "Still 12.",
        "use /tools",
    ):
        assert said in shown
    assert shown.count("Run it?") == 2
    declined = str(upstream.requests[1]["messages"])
    assert "the user declined" in declined
    assert "ConnectionError" not in declined


def test_the_line_being_typed_is_edited_dropped_and_brought_back(
    proxy: str, upstream: ScriptedUpstream, tools: Path, tmp_path: Path
) -> None:
    upstream.reply(MAIL, "Then not.", "Again, no.")
    command = [str(ROOT / "app.py"), "chat", "--url", f"{proxy}/v1", "--tools", str(tools)]
    up, left, end = "\x1b[A", "\x1b[D", "\x04"
    typed = [f"Mai Eve{left * 4}l", "no", "never mind\x03", up, end]
    shown = converse([*command, "--model", "m"], typed, r"(?:> |always: )$", tmp_path)
    # What was answered to the question about a call, and what was dropped, are no questions.
    assert "Mail Eve" in str(upstream.requests[-1]["messages"][-1])
    assert "Again, no." in shown
    assert "never mind" not in str(upstream.requests)


def test_one_question_is_answered_and_ends_the_command(
    proxy: str, upstream: ScriptedUpstream, tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.reply(f"<think>Weather.</think>\n{WEATHER}", "It is 12 degrees.")
    options = ["--url", f"{proxy}/v1", "--yes", "--tools", str(tools)]
    code, shown = asked(capsys, "Is it cold", "in London?", *options)
    assert (code, shown.strip().splitlines()[-1]) == (0, "It is 12 degrees.")
    assert upstream.requests[0]["model"] == "scripted"  # the first that the upstream lists
    assert "Is it cold in London?" in str(upstream.requests[0]["messages"])
    assert '"temperature": 12' in results(upstream)


def test_a_question_without_an_answer_in_words_is_an_error(
    proxy: str, upstream: ScriptedUpstream, tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.default = WEATHER
    options = ["--url", f"{proxy}/v1", "--yes", "--tools", str(tools)]
    code, shown = asked(capsys, "Is it cold?", *options)
    assert (code, "No answer after 50 rounds of calls" in shown) == (1, True)


def test_a_termination_leaves_the_terminal_as_it_was(proxy: str, tmp_path: Path) -> None:
    """readline switches echo off while it reads, and the signal's default action left it so."""
    command = [str(ROOT / "app.py"), "chat", "--url", f"{proxy}/v1", "--model", "m"]
    env = environment(tmp_path)
    with closing(pexpect.spawn(sys.executable, command, env=env, encoding="utf-8")) as terminal:
        before = termios.tcgetattr(terminal.child_fd)
        terminal.expect("> ", timeout=60)
        terminal.kill(signal.SIGTERM)
        terminal.expect(pexpect.EOF, timeout=60)
        assert termios.tcgetattr(terminal.child_fd) == before
    assert terminal.exitstatus == 128 + signal.SIGTERM


def test_ctrl_c_ends_a_single_question_with_130(
    proxy: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.reply(Reply(chunks=["Hello", " there"], fault="silent", after=1))
    with served("chat", "--url", f"{proxy}/v1", "Hi", home=tmp_path) as process:
        process.wait_for("Hello")
        process.interrupt()
        assert process.exit_code() == 130
        assert process.output.splitlines() == ["Hello", "interrupted"]


def test_without_a_terminal_nothing_runs_that_needs_an_answer(
    proxy: str, upstream: ScriptedUpstream, tools: Path, tmp_path: Path
) -> None:
    upstream.reply(MAIL)
    ended = command_line(
        *("chat", "--url", f"{proxy}/v1", "--tools", str(tools), "Mail Eve"), home=tmp_path
    )
    way_out = "no answer, so nothing runs; --yes runs every call without asking\n"
    assert (ended.code, ended.err) == (1, way_out)


def test_tools_may_exit_wait_and_have_any_files_name(
    proxy: str, upstream: ScriptedUpstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """sys.exit() in a tool ended the command, a coroutine was its result, a file `json` replaced json's."""
    file = tmp_path / "json.py"
    file.write_text(
        "import asyncio, sys\n"
        "def leave() -> str:\n    sys.exit('bye')\n"
        "async def wait() -> str:\n    await asyncio.sleep(0)\n    return 'waited'\n"
    )
    upstream.reply("```tool_code\n[leave(), wait()]\n```", "Done.")
    options = ["--url", f"{proxy}/v1", "--yes", "--tools", str(file)]
    assert asked(capsys, "Go", *options)[0] == 0
    assert "error: SystemExit: bye" in results(upstream)
    assert "waited" in results(upstream)


def test_enter_runs_what_reads_and_not_what_acts(
    proxy: str, upstream: ScriptedUpstream, tools: Path, tmp_path: Path
) -> None:
    upstream.reply(MAIL, "Not sent.", WEATHER, "It is 12 degrees.")
    command = [str(ROOT / "app.py"), "chat", "--url", f"{proxy}/v1", "--tools", str(tools)]
    typed = ["Mail Eve", "", "London?", "", "/quit"]
    shown = converse([*command, "--model", "m"], typed, r"(?:> |always: )$", tmp_path)
    assert shown.index("yes, [N]o, always") < shown.index("[Y]es, no, always")
    assert "the user declined" in str(upstream.requests[1]["messages"])
    assert '"temperature": 12' in results(upstream)


def test_what_fails_in_a_tool_is_for_the_model_and_cannot_write_to_the_terminal(
    proxy: str, upstream: ScriptedUpstream, tools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.reply(MAIL, "No \x1b[2Jnetwork.")
    code, shown = asked(capsys, "Hi", "--url", f"{proxy}/v1", "--yes", "--tools", str(tools))
    assert code == 0
    assert "ConnectionError" in results(upstream)
    assert "\x1b]0;" not in shown
    assert "\x1b[2J" not in shown
    assert r"No \x1b[2Jnetwork." in shown


def test_tools_of_an_mcp_server_are_run(
    proxy: str, upstream: ScriptedUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    both = '```tool_code\n[price(article="tea"), price(article="nothing")]\n```'
    upstream.reply(both, "Tea costs 3.")
    code, _ = asked(capsys, "Prices?", "--url", f"{proxy}/v1", "--yes", "--mcp", SERVER)
    assert code == 0
    assert "What an article costs." in str(upstream.requests[0]["messages"])
    assert '"price": 3' in results(upstream)
    assert "there is no such article" in results(upstream)


REFUSED: dict[str, tuple[str, list[str], str]] = {
    "no file": ("", ["--tools", "nothing.py"], "nothing.py: there is no such file"),
    "broken": ("def f(:", ["--tools", "t.py"], "t.py: SyntaxError"),
    "no functions": ("x = 1", ["--tools", "t.py"], "defines no public function"),
    "a parameter without a schema": (
        "import threading\ndef f(x: threading.Lock): ...",
        ["--tools", "t.py"],
        "t.py: Unable to generate",
    ),
    "twice": (
        "def f(): ...",
        ["--tools", "t.py", "--tools", "t.py"],
        "f: two tools have this name",
    ),
    "no server": (
        "",
        ["--mcp", "no-such-command-here"],
        "no-such-command-here: its command 'no-such-command-here' cannot be started: No such file",
    ),
    "a server that fails": (
        "",
        ["--mcp", f"{sys.executable} -c 'import nothing_here'"],
        "No module named",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_toolboxes_that_cannot_be_opened_are_told_of(
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, options, told = REFUSED[what]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text(source)
    code, shown = asked(capsys, "Hi", "--model", "m", *options)
    assert code == 2
    assert told in re.sub(r"\s+", " ", shown)


def test_a_proxy_that_is_not_there_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    way_out = "does not answer: start the proxy, or name its address with --url"
    assert asked(capsys, "Hi", "--url", url) == (1, f"{url}/models {way_out}\n")
    shown = f"{url}/chat/completions {way_out}\n"
    assert asked(capsys, "Hi", "--url", url, "--model", "m") == (1, shown)
    assert (
        asked(capsys, "Hi", "--modle", "m")[1]
        == "--modle: there is no such flag; did you mean --model?\n"
    )


def test_an_error_of_the_proxy_is_told_and_the_conversation_stays_as_it_was(
    start_proxy: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.reply("Hi.").reply("", status=400).reply("Hi again.")
    command = [str(ROOT / "app.py"), "chat", "--url", f"{start_proxy()}/v1", "--model", "m"]
    shown = converse(command, ["One", "Two", "Three", "/quit"], r"> $", tmp_path)
    assert "Hi again." in shown
    roles = [message["role"] for message in upstream.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext é 語", "plain\n\ttext é 語"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x9b31m", r"\x9b31m"),
        ("a\rb\x08\x00\x7f", r"a\rb\x08\x00\x7f"),
        ("abc\u202edcba", r"abc\u202edcba"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
    ],
)
def test_what_a_terminal_would_obey_is_spelt_out(text: str, shown: str) -> None:
    assert harmless(text) == shown
