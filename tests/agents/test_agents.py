"""Coding agents do three tasks: call by call, thinking in the text, and as whole programs.

The agent, its files and commands are real. The model is scripted, and reads what it needs in the prompt
(obedient.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agents.agents import AGENTS, Agent
from tests.agents.obedient import STYLES, Obedient, Style
from tests.agents.tasks import TASKS, Task
from tests.conftest import StartProxy
from tests.support.metrics import count_requests
from tests.support.scripted import ScriptedUpstream


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.environment.name)
def test_an_agent_does_a_task(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    home: Path,
    record_property: Callable[[str, object], None],
    agent: Agent,
    style: Style,
    task: Task,
) -> None:
    if not agent.environment.installed:
        pytest.skip(f"{agent.title} is not installed")
    work = home / "work"
    work.mkdir()
    for name, text in task.files.items():
        (work / name).write_text(text)
    url = start_proxy()
    model = Obedient(task, style, str(work))
    upstream.default = model
    requests = count_requests(url)
    run = agent.run(task.prompt, url, home, work)
    told = f"{run.stdout}\n{run.stderr}"
    assert (upstream.failures, model.failures) == ([], []), told
    assert run.returncode == 0, told
    found = re.search(task.answer.replace("{0}", r"(\w+)"), run.stdout)
    assert found is not None, told
    for name, text in task.afterwards.items():
        assert (work / name).read_text() == text, told
    assert model.turns == (2 if style == "as a program" else len(task.steps) + 1), told
    record_property("environment", agent.environment.name)
    record_property("style", style)
    record_property("requests", requests())
    record_property("turns", model.turns)
    record_property("aside", model.aside)
