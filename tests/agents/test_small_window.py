"""Agents that `tool-emulator run` starts end a task that is longer than the window of the model's server."""

from __future__ import annotations

import json
import os
import shlex
import sys
import urllib.request
from pathlib import Path

import pytest

from emulator.cli.terminal.agents import AGENTS
from tests.agents import agents
from tests.agents.small_window import SCRIPT, TASK, WINDOW
from tests.support.command_line import command_line
from tests.support.environments import node_programs
from tests.support.processes import Process, answers, free_port

REPORTS = 16


@pytest.mark.parametrize("program", ["codex", "claude", "opencode", "copilot"])
def test_an_agent_ends_a_task_that_is_longer_than_the_window(
    tmp_path: Path, home: Path, program: str
) -> None:
    row = AGENTS[program]
    agent = next(agent for agent in agents.AGENTS if agent.title == row.title)
    if not agent.environment.installed:
        pytest.skip(f"{agent.title} is not installed")
    (home / "report.sh").write_text(SCRIPT)
    port = free_port()
    command = [sys.executable, "-m", "tests.agents.small_window", str(port)]
    server = Process(command, tmp_path / "server.log")
    url = f"http://127.0.0.1:{port}"
    try:
        server.wait_until(lambda: answers(f"{url}/facts"))
        words = shlex.split(agent.command.splitlines()[-1])[1 + len(row.arguments) : -1]
        folders = [str(agent.environment.programs), node_programs(), os.environ["PATH"]]
        ended = command_line(
            *("run", program, "--base-url", f"{url}/v1", "--", *words, TASK.format(REPORTS)),
            home=home,
            variables={"PATH": os.pathsep.join(folders), "TERM": "dumb"},
        )
        with urllib.request.urlopen(f"{url}/facts") as response:
            facts = json.load(response)
    finally:
        server.kill()
    assert facts["failures"] == [], ended
    assert (home / "sum.txt").read_text() == str(sum(n * n for n in range(REPORTS + 1))), ended
    assert facts["summaries"] >= 1, facts
    assert (facts["cuts"], facts["longest"] <= WINDOW) == (0, True), facts
