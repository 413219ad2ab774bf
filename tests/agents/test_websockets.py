"""Agents that can speak Responses over a WebSocket do a task over one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.agents import AGENTS
from tests.agents.obedient import STYLES, Obedient, Style
from tests.agents.tasks import TASKS
from tests.agents.test_codex import codex
from tests.conftest import StartProxy
from tests.support.metrics import count_requests
from tests.support.scripted import ScriptedUpstream

Ended = subprocess.CompletedProcess[str]
BY_NAME = {agent.environment.name: agent for agent in AGENTS}


def run_codex(prompt: str, url: str, home: Path) -> Ended:
    return codex(home, url, "--sandbox", "workspace-write", prompt, supports_websockets="true")


def run_copilot(prompt: str, url: str, home: Path) -> Ended:
    variables = {"WIRE_API": "responses", "TRANSPORT": "websockets"}
    over_websockets = {f"COPILOT_PROVIDER_{name}": value for name, value in variables.items()}
    return BY_NAME["copilot"].run(prompt, url, home, home / "work", **over_websockets)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("name", "run"), [("codex", run_codex), ("copilot", run_copilot)])
def test_an_agent_does_a_task_over_one_websocket(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    home: Path,
    name: str,
    run: Callable[[str, str, Path], Ended],
    style: Style,
) -> None:
    if not BY_NAME[name].environment.installed:
        pytest.skip(f"{BY_NAME[name].title} is not installed")
    task, work = TASKS[0], home / "work"
    work.mkdir()
    model = upstream.default = Obedient(task, style, str(work))
    url = start_proxy()
    websockets, answers = count_requests(url, "101"), count_requests(url, "200")
    ended = run(task.prompt, url, home)
    assert (upstream.failures, model.failures) == ([], []), ended
    assert ended.returncode == 0, ended
    assert "It printed 1235." in ended.stdout, ended
    assert {name: (work / name).read_text() for name in task.afterwards} == task.afterwards
    # Agents reconnect before they fall back on HTTP, which would be a second WebSocket.
    assert (websockets(), answers()) == (1, len(task.steps) + 1)
