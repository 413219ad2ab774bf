"""Codex CLI with its own settings but for the provider: three tasks, call by call and as whole programs.

The model is scripted, the agent, its sandbox, the files and the commands are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import StartProxy
from tests.support.scripted import ScriptedUpstream

CODEX = Path(__file__).parent / "node" / "node_modules" / ".bin" / "codex"

pytestmark = pytest.mark.skipif(not CODEX.exists(), reason="make test-agents installs Codex")

CONFIG = """\
model = "scripted"
model_provider = "proxy"

[model_providers.proxy]
name = "Tool Use API Emulator"
base_url = "{url}/v1"
wire_api = "responses"
"""


@dataclass(frozen=True)
class Task:
    prompt: str
    commands: tuple[str, ...]
    """What the model has the agent run, in order."""
    answer: str
    output: str
    """What the last command must have printed."""


TASKS = {
    "write and run": Task(
        "Write hello.py, run it and tell its output.",
        ("echo 'print(1234 + 1)' > hello.py", "python3 hello.py"),
        "It printed 1235.",
        "1235",
    ),
    "count lines": Task(
        "How many lines have the text files here?",
        ("ls", "cat a.txt b.txt | wc -l"),
        "There are 5 lines.",
        "5",
    ),
    "mend until the test passes": Task(
        "Mend add.py so that test_add.py passes.",
        (
            "python3 test_add.py || true",
            "sed -i 's/a - b/a + b/' add.py",
            "python3 test_add.py && echo passed",
        ),
        "The test passes.",
        "passed",
    ),
}
FILES = {
    "a.txt": "one\ntwo\n",
    "b.txt": "three\nfour\nfive\n",
    "add.py": "def add(a, b):\n    return a - b\n",
    "test_add.py": "from add import add\nassert add(1, 2) == 3\n",
}


def block(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])


def call(command: str) -> str:
    return f"exec_command(cmd={json.dumps(command)})"


def call_by_call(task: Task) -> list[str]:
    return [*(block(call(command)) for command in task.commands), task.answer]


def thinking(task: Task) -> list[str]:
    return [f"<think>What now?</think>{reply}" for reply in call_by_call(task)]


def as_a_program(task: Task) -> list[str]:
    *before, last = map(call, task.commands)
    return [block(*before, f"out = {last}", "print(out)"), task.answer]


@pytest.fixture
def home() -> Iterator[Path]:
    """Codex keeps its sandbox's helper in its home, which must therefore not lie in /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        yield Path(made)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("write", [call_by_call, thinking, as_a_program])
def test_codex_does_a_task(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    home: Path,
    write: Callable[[Task], list[str]],
    task: Task,
) -> None:
    work = home / "work"
    work.mkdir()
    for name, text in FILES.items():
        (work / name).write_text(text)
    (home / "config.toml").write_text(CONFIG.format(url=start_proxy()))
    replies = write(task)
    upstream.reply(*replies)
    run = subprocess.run(
        [CODEX, "exec", "--skip-git-repo-check", "--sandbox", "workspace-write", task.prompt],
        cwd=work,
        env={**os.environ, "CODEX_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (run.returncode, run.stdout.strip()) == (0, task.answer), run.stderr
    assert len(upstream.requests) == len(replies), "a program goes on without the model"
    assert task.output in upstream.requests[-1]["messages"][-1]["content"]
