"""`tool-emulator run`: the proxy is real, the agent a small program (tests/agents/test_run.py: real ones)."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pexpect
import pytest

from app import main
from emulator.cli.terminal.agents import AGENTS
from tests.support.command_line import command_line, environment, served
from tests.support.environments import ROOT
from tests.support.processes import Process, free_port
from tests.support.scripted import Body, Reply, ScriptedUpstream

AGENT = f"""#!{sys.executable}
import json, os, pathlib, signal, sys, urllib.request
home = pathlib.Path(os.environ["HOME"])
config = (home / ".codex/config.toml").read_text()
url = config.split('base_url = "')[1].split('"')[0]
with urllib.request.urlopen(url + "/models") as answer:
    models = json.load(answer)
print(json.dumps({{"arguments": sys.argv[1:], "variables": dict(os.environ), "folder": os.getcwd(),
                  "config": config, "url": url, "models": models}}), flush=True)
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("waits", flush=True)
    while True:
        signal.pause()
if "wait" in sys.argv:
    signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
    print("waits", flush=True)
    while True:
        signal.pause()
sys.exit(3)
"""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """PATH begins with a folder that has a `codex`, and the user has keys and folders of settings."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "codex"
    program.write_text(AGENT)
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "GITHUB_TOKEN": "secret",
    }


def is_gone(url: str) -> bool:
    import urllib.error
    import urllib.request

    try:
        urllib.request.urlopen(url + "/models", timeout=5)
    except urllib.error.URLError as error:
        return isinstance(error.reason, ConnectionRefusedError)
    return False


def test_an_agent_runs_with_its_own_proxy_and_home(
    tmp_path: Path, upstream: ScriptedUpstream, variables: dict[str, str]
) -> None:
    ended = command_line(
        *("--base-url", upstream.base_url, "run", "codex", "--", "--version", "--", "--help"),
        home=tmp_path,
        variables=variables,
    )
    assert ended.code == 3, ended
    seen = json.loads(ended.out)
    assert seen["arguments"] == ["--version", "--", "--help"]
    assert seen["folder"] == str(tmp_path)
    assert [model["id"] for model in seen["models"]["data"]] == ["scripted"]
    assert 'model = "scripted"\n' in seen["config"]
    inherited = {name: seen["variables"].get(name) for name in variables}
    assert inherited == variables | {"XDG_CONFIG_HOME": None, "GITHUB_TOKEN": None}
    home = Path(seen["variables"]["HOME"])
    assert home != tmp_path
    assert not home.exists()
    assert is_gone(seen["url"])
    assert [file.name for file in tmp_path.iterdir()] == ["bin"]
    assert "The inspector shows each request: http://127.0.0.1:" in ended.err
    # A hosted model would cost money.
    assert upstream.requests == []


class Slow(dict[str, Any]):
    """Answers of a server that takes its time."""

    def __getitem__(self, path: str) -> Any:
        time.sleep(1)
        return super().__getitem__(path)


def test_an_agent_is_told_the_window_of_a_slow_server(
    tmp_path: Path, upstream: ScriptedUpstream, variables: dict[str, str]
) -> None:
    """The wait for it began before the proxy had started, and was over when it had."""
    model = {"id": "small", "object": "model", "created": 1, "owned_by": "library"}
    upstream.at_root = Slow(
        {
            "/v1/models": {"object": "list", "data": [model]},
            "/api/version": {"version": "0.20"},
            "/api/ps": {"models": [{"name": "small", "context_length": 16_384}]},
        }
    )
    command = ("--base-url", upstream.base_url, "run", "codex")
    ended = command_line(*command, home=tmp_path, variables=variables)
    assert "model_context_window = 16384\n" in json.loads(ended.out)["config"]
    assert upstream.requests == []


@pytest.mark.parametrize("model", ["small:latest", "small", None])
def test_a_model_that_is_not_loaded_is_loaded_first(
    tmp_path: Path, upstream: ScriptedUpstream, variables: dict[str, str], model: str | None
) -> None:
    """An Ollama that has just started says no window, and Claude Code assumed a million tokens."""
    row = {"id": "small:latest", "object": "model", "created": 1, "owned_by": "library"}
    upstream.at_root = {"/v1/models": {"object": "list", "data": [row]}, "/api/ps": {"models": []}}

    def load(_: Body) -> str:
        loaded = {"name": "small:latest", "context_length": 16_384}
        upstream.at_root |= {"/api/ps": {"models": [loaded]}}
        return "Hm"

    upstream.reply(load)
    named = ("--model", model) if model else ()
    command = ("--base-url", upstream.base_url, "run", "codex", *named)
    ended = command_line(*command, home=tmp_path, variables=variables)
    assert "model_context_window = 16384\n" in json.loads(ended.out)["config"]
    [request] = upstream.requests
    assert (request["model"], request["max_tokens"]) == ("small:latest", 1)
    assert ended.err.count("The server loads small:latest") == 1


def test_a_model_that_cannot_be_loaded_is_the_agents_to_report(
    tmp_path: Path, upstream: ScriptedUpstream, variables: dict[str, str]
) -> None:
    row = {"id": "small", "object": "model", "created": 1, "owned_by": "library"}
    upstream.at_root = {"/v1/models": {"object": "list", "data": [row]}, "/api/ps": {"models": []}}
    upstream.reply(Reply(status=400))
    command = ("--base-url", upstream.base_url, "run", "codex")
    ended = command_line(*command, home=tmp_path, variables=variables)
    assert ended.code == 3, ended
    assert "model_context_window" not in json.loads(ended.out)["config"]


def test_a_projects_settings_are_ignored_unless_the_user_trusts_them(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    (tmp_path / "emulator.toml").write_text("port = 9000\n")
    run = ("run", "codex", "--print-config")
    ended = command_line(*run, home=tmp_path, variables=variables)
    assert "emulator.toml was not read; " in ended.err
    assert ":8001" in ended.out
    named = {**variables, "EMULATOR_CONFIG": "emulator.toml"}
    assert ":9000" in command_line(*run, home=tmp_path, variables=named).out


@pytest.mark.parametrize(("typed", "server"), [("y", "of the project"), ("", "of the user")])
def test_at_a_terminal_the_user_is_asked_whether_to_trust_a_project(
    tmp_path: Path, upstream: ScriptedUpstream, variables: dict[str, str], typed: str, server: str
) -> None:
    away = f"http://127.0.0.1:{free_port()}/v1"
    own, project = (
        (upstream.base_url, away) if server == "of the user" else (away, upstream.base_url)
    )
    (tmp_path / "emulator.toml").write_text(f'base_url = "{project}"\n')
    env = environment(tmp_path, {**variables, "OPENAI_BASE_URL": own})
    command = [str(ROOT / "app.py"), "run", "codex"]
    with closing(
        pexpect.spawn(sys.executable, command, cwd=str(tmp_path), env=env, encoding="utf-8")
    ) as terminal:
        terminal.expect(r"Read it\? \[y/N\] ", timeout=60)
        terminal.sendline(typed)
        terminal.expect(pexpect.EOF, timeout=60)
    assert terminal.exitstatus == 3, terminal.before


@pytest.fixture
def waiting(
    tmp_path: Path, upstream: ScriptedUpstream, variables: dict[str, str]
) -> Iterator[Process]:
    command = ("run", "codex", "--base-url", upstream.base_url, "--", "wait")
    with served(*command, home=tmp_path, variables=variables) as process:
        process.wait_for("waits")
        yield process


def seen_by(process: Process) -> tuple[str, Path]:
    """The proxy's URL and the agent's home."""
    seen = json.loads(next(line for line in process.output.splitlines() if line.startswith("{")))
    return seen["url"], Path(seen["variables"]["HOME"])


def test_ctrl_c_goes_to_the_agent_and_sigterm_ends_everything(waiting: Process) -> None:
    url, home = seen_by(waiting)
    for count in (1, 2):
        waiting.interrupt()
        waiting.wait_until(lambda expected=count: waiting.output.count("interrupted") == expected)
    assert not is_gone(url)
    assert home.exists()
    os.kill(waiting.group, signal.SIGTERM)
    assert waiting.exit_code() == 4
    assert is_gone(url)
    assert not home.exists()


def test_an_agent_that_ignores_a_termination_is_killed(
    tmp_path: Path, upstream: ScriptedUpstream, variables: dict[str, str]
) -> None:
    command = ("run", "codex", "--base-url", upstream.base_url, "--", "deaf")
    with served(*command, home=tmp_path, variables=variables) as process:
        process.wait_for("waits")
        os.kill(process.group, signal.SIGTERM)
        assert process.exit_code() == 128 + signal.SIGKILL
        url, home = seen_by(process)
        assert is_gone(url)
        assert not home.exists()


def _children(process: Process) -> list[int]:
    """The proxy and the agent, in the order of their starts."""
    return [
        *map(int, Path(f"/proc/{process.group}/task/{process.group}/children").read_text().split())
    ]


def test_a_proxy_that_ends_before_its_agent_is_named(waiting: Process) -> None:
    proxy, _ = _children(waiting)
    os.kill(proxy, signal.SIGKILL)
    os.kill(waiting.group, signal.SIGTERM)
    assert waiting.exit_code() == 4
    assert "The proxy ended while the agent ran:" in waiting.output


def test_an_agent_that_cannot_be_executed_is_one_line(
    tmp_path: Path, upstream: ScriptedUpstream, variables: dict[str, str]
) -> None:
    """A traceback: a file without #!, and a script whose interpreter is not there."""
    program = tmp_path / "bin" / "codex"
    for text, reason in (
        ("hello", "Exec format error"),
        ("#!/no/node\n", "No such file or directory"),
    ):
        program.write_text(text)
        command = ("run", "codex", "--base-url", upstream.base_url)
        ended = command_line(*command, home=tmp_path, variables=variables)
        assert (ended.code, ended.err.splitlines()[-1]) == (126, f"{program}: {reason}")


def test_an_agent_that_a_signal_kills_gives_the_shells_exit_code(waiting: Process) -> None:
    os.kill(_children(waiting)[-1], signal.SIGKILL)
    assert waiting.exit_code() == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pi"], 127, "pi is not on PATH; install it: npm install -g @earendil-works/pi-coding-agent"),
        (["codxe"], 2, "; did you mean codex?"),
        ([], 2, "run codex|claude|opencode|copilot|vibe|qwen|pi|cline "),
        (["codex", "exec", "Hi there"], 2, "run codex -- exec 'Hi there'"),
        (["codex", "--bse-url", "x"], 2, "--bse-url: there is no such flag; did you mean --base-url?"),
        (["codex", "--print-confg"], 2, "--print-confg: there is no such flag; did you mean --print-config?"),
        (["codex", "--port", "x"], 2, "--port x: "),
    ],
)  # fmt: skip
def test_an_error_that_prevents_the_start_is_one_line(
    tmp_path: Path, variables: dict[str, str], arguments: list[str], code: int, message: str
) -> None:
    ended = command_line("run", *arguments, home=tmp_path, variables=variables)
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("file", ["", 'base_url = "http://127.0.0.1:9/v1"\n'])
def test_without_a_model_server_the_error_says_how_to_configure_one(
    tmp_path: Path, variables: dict[str, str], file: str
) -> None:
    """Also where the project's own file was not read."""
    if file:
        (tmp_path / "emulator.toml").write_text(file)
    ended = command_line("run", "codex", home=tmp_path, variables=variables)
    assert (ended.code, ended.out) == (2, "")
    for words in ("No model server is configured", "--base-url", "DEEPSEEK_API_KEY", "too small"):
        assert words in ended.err


def test_no_agent_starts_without_its_upstream(tmp_path: Path, variables: dict[str, str]) -> None:
    away = f"http://127.0.0.1:{free_port()}/v1"
    ended = command_line("run", "codex", "--base-url", away, home=tmp_path, variables=variables)
    assert (ended.code, ended.out) == (1, "")
    assert away in ended.err


def test_an_agent_without_a_client_key_is_not_started(
    tmp_path: Path, upstream: ScriptedUpstream, variables: dict[str, str]
) -> None:
    command = ("run", "codex", "--base-url", upstream.base_url, "--client-keys", "mine")
    ended = command_line(*command, home=tmp_path, variables=variables)
    assert (ended.code, ended.out) == (1, "")
    assert "(--key KEY)" in ended.err


def print_config(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments, "--print-config"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("program", AGENTS)
def test_the_printed_configuration_is_that_of_the_page(
    capsys: pytest.CaptureFixture[str], program: str
) -> None:
    printed = print_config(capsys, program)
    page = (ROOT / "docs" / "agents.md").read_text()
    section = page.split(f"\n## {AGENTS[program].title}\n")[1].split("\n## ")[0]
    lines = printed.splitlines()
    assert [line for line in lines if line.removesuffix(":") not in section] == []
    assert "http://127.0.0.1:8001" in printed
    assert "your-model" in printed
    assert "your-key" in printed


@pytest.mark.parametrize("program", AGENTS)
def test_the_printed_configuration_quotes_the_model(
    capsys: pytest.CaptureFixture[str], program: str
) -> None:
    model = """a"b\\c'$(d)"""
    printed = print_config(capsys, program, "--model", model, "--port", "9000")
    quoted = (json.dumps(model), json.dumps(f"proxy/{model}"), """'a"b\\c'"'"'$(d)'""")
    assert any(form in printed for form in quoted)
    assert "http://127.0.0.1:9000" in printed
