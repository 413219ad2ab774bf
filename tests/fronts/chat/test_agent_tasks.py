"""The tasks that `make test-agents-all` gives to coding agents, in an ordinary tool loop: without any agent.

What fails here fails there, and here it costs no installation.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.agents.agents import AGENTS, AIDER, DOCUMENTED_TASK, DOCUMENTED_URL, Agent
from tests.agents.obedient import STYLES, Obedient, Style
from tests.agents.tasks import TASKS, Task
from tests.support.agents import converse
from tests.support.scripted import ScriptedUpstream


def tool(name: str, *parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": [*parameters]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


SHELL = [tool("bash", "command", "description")]
FILES = [tool("write", "filePath", "content"), tool("edit", "filePath", "oldString", "newString")]


@pytest.mark.parametrize("tools", [SHELL, [*SHELL, *FILES]], ids=["a shell", "files too"])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@pytest.mark.parametrize("style", STYLES)
def test_a_tool_loop_does_an_agents_task(
    client: openai.OpenAI,
    upstream: ScriptedUpstream,
    tmp_path: Path,
    style: Style,
    task: Task,
    tools: list[dict[str, Any]],
) -> None:
    def bash(command: str, description: str) -> str:
        run = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return f"Exit code: {run.returncode}\n{run.stdout}{run.stderr}"

    def write(filePath: str, content: str) -> str:  # noqa: N803 - as opencode's tool
        Path(filePath).write_text(content)
        return "Wrote the file."

    def edit(filePath: str, oldString: str, newString: str) -> str:  # noqa: N803
        file = Path(filePath)
        file.write_text(file.read_text().replace(oldString, newString))
        return "Edited the file."

    for name, text in task.files.items():
        (tmp_path / name).write_text(text)
    model = Obedient(task, style, str(tmp_path))
    upstream.default = model
    local = {"bash": bash, "write": write, "edit": edit}
    messages = converse(client, [task.prompt], tools=tools, local=local)
    assert model.failures == []
    assert {name: (tmp_path / name).read_text() for name in task.afterwards} == task.afterwards
    assert task.answer.split("{")[0] in messages[-1]["content"]
    assert model.turns == (2 if style == "as a program" else len(task.steps) + 1)


@pytest.mark.parametrize("agent", [*AGENTS, AIDER], ids=lambda agent: agent.environment.name)
def test_the_page_says_how_an_agent_is_pointed_at_the_proxy(agent: Agent) -> None:
    assert DOCUMENTED_TASK in agent.command
    assert DOCUMENTED_URL in agent.command + "".join(agent.files.values())
    assert len(agent.environment.pins) > 0
