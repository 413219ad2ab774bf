"""The agents that are run, and how: their configuration is what docs/agents.md tells its readers to write."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.environments import ROOT, Environment, node_programs

PAGE = ROOT / "docs" / "agents.md"
DOCUMENTED_URL = "http://127.0.0.1:8001"
DOCUMENTED_TASK = '"what to do"'
SECONDS = 120  # for a task, on a slow machine; none takes a tenth of that


@dataclass(frozen=True)
class Agent:
    title: str
    """As its section in docs/agents.md is called."""
    environment: Environment

    @property
    def section(self) -> str:
        found = re.search(
            rf"^## {re.escape(self.title)}\n(.*?)(?=^## |\Z)",
            PAGE.read_text(),
            re.DOTALL | re.MULTILINE,
        )
        assert found is not None, f"docs/agents.md has no section {self.title}"
        return found[1]

    @property
    def files(self) -> dict[str, str]:
        """What the user writes, by path in the home: the blocks that follow a line with ``~/path`` in it."""
        blocks = re.findall(r"`~/([^`]+)`[^\n]*:\n\n```\w+\n(.*?)```", self.section, re.DOTALL)
        return dict(blocks)

    @property
    def command(self) -> str:
        return re.findall(r"```bash\n(.*?)```", self.section, re.DOTALL)[-1]

    def run(
        self, prompt: str, url: str, home: Path, work: Path, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """With these environment variables, which docs/agents.md does not mention."""
        for path, text in self.files.items():
            file = home / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace(DOCUMENTED_URL, url))
        command = self.command.replace(DOCUMENTED_URL, url)
        assert DOCUMENTED_TASK in command, command
        folders = [self.environment.programs, node_programs(), "/usr/local/bin", "/usr/bin", "/bin"]
        return run_within(
            SECONDS,
            ["bash", "-euc", command.replace(DOCUMENTED_TASK, '"$TASK"')],
            cwd=work,
            env={
                "HOME": str(home),
                "PATH": os.pathsep.join(map(str, folders)),
                "TASK": prompt,
                "TERM": "dumb",
                "LANG": "C.UTF-8",
                "NO_COLOR": "1",
                **variables,
            },
        )


def run_within(
    seconds: float, command: list[str], *, cwd: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run it, and show what it has said where it does not end: return code -9."""
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as err,
    ):
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, out.read(), err.read())


def agent(title: str, environment: str) -> Agent:
    return Agent(title, Environment("agents", environment))


AGENTS = (
    agent("Codex CLI", "codex"),
    agent("Claude Code", "claude-code"),
    agent("opencode", "opencode"),
    agent("GitHub Copilot CLI", "copilot"),
    agent("Mistral Vibe", "vibe"),
    agent("Qwen Code", "qwen-code"),
    agent("Pi", "pi"),
    agent("Cline CLI", "cline"),
    agent("Continue CLI", "continue"),
    agent("gptme", "gptme"),
    agent("llm", "llm"),
    agent("mini-swe-agent", "mini-swe-agent"),
    agent("deepagents", "deepagents"),
)
# It calls no tools, and has a test of its own.
AIDER = agent("aider", "aider")
