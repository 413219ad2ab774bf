"""Real agents, started by `tool-emulator run` in front of a scripted model."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from emulator.cli.terminal.agents import AGENTS
from tests.agents import agents
from tests.agents.obedient import Obedient
from tests.agents.tasks import TASKS
from tests.support.command_line import command_line
from tests.support.environments import node_programs
from tests.support.scripted import ScriptedUpstream


@pytest.mark.parametrize(
    "agent",
    [agent for agent in agents.AGENTS if agent.title in {row.title for row in AGENTS.values()}],
    ids=lambda agent: agent.environment.name,
)
def test_an_agent_that_run_starts_does_a_task(
    upstream: ScriptedUpstream, home: Path, agent: agents.Agent
) -> None:
    """With the arguments of its command in docs/agents.md; the rest of its configuration is that of `run`."""
    if not agent.environment.installed:
        pytest.skip(f"{agent.title} is not installed")
    task = TASKS[0]
    model = upstream.default = Obedient(task, "call by call", str(home))
    program, row = next((name, row) for name, row in AGENTS.items() if row.title == agent.title)
    words = shlex.split(agent.command.splitlines()[-1])[1 + len(row.arguments) : -1]
    folders = [str(agent.environment.programs), node_programs(), os.environ["PATH"]]
    ended = command_line(
        *("run", program, "--base-url", upstream.base_url, "--", *words, task.prompt),
        home=home,
        variables={"PATH": os.pathsep.join(folders), "TERM": "dumb"},
    )
    assert (upstream.failures, model.failures) == ([], []), ended
    assert ended.code == 0, ended
    assert "It printed 1235." in ended.out, ended
    assert [file.name for file in home.iterdir()] == [*task.afterwards]
