"""Servers from PyPI and npm, of an earlier protocol, in their own environment; $MCP_SERVERS has its programs.

`make test-mcp` runs this.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.conftest import StartProxy
from tests.support.processes import ROOT
from tests.support.scripted import ScriptedUpstream

PROGRAMS = Path(os.environ.get("MCP_SERVERS", ""))
FILESYSTEM = PROGRAMS.parent / "node_modules" / ".bin" / "mcp-server-filesystem"
pytestmark = pytest.mark.skipif("MCP_SERVERS" not in os.environ, reason="no servers: make test-mcp")


def answer(proxy: str, *tools: dict[str, Any]) -> str:
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="any", max_retries=0)
    asked: Any = [{"role": "user", "content": "Go."}]
    offered: Any = list(tools) or openai.omit
    made = client.chat.completions.create(model="m", messages=asked, tools=offered)
    return str(made.choices[0].message.content)


def test_a_program_commits_a_file_with_mcp_server_git(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Four calls, of which the last needs the first: one request and one further turn of the model."""
    repository = tmp_path / "repository"
    for arguments in (
        ["init", "-q", str(repository)],
        ["-C", str(repository), "config", "user.email", "a@example.org"],
        ["-C", str(repository), "config", "user.name", "A"],
    ):
        subprocess.run(["git", *arguments], check=True)
    (repository / "tea.txt").write_text("green\n")
    program = (
        f"before = git_status(repo_path={str(repository)!r})\n"
        f"git_add(repo_path={str(repository)!r}, files=['tea.txt'])\n"
        f"git_commit(repo_path={str(repository)!r}, message='tea' if 'tea.txt' in before else '')\n"
        f"print(git_log(repo_path={str(repository)!r}))"
    )
    upstream.reply(f"```tool_code\n{program}\n```", "It is committed.")
    row = {"command": str(PROGRAMS / "mcp-server-git"), "args": ["--repository", str(repository)]}
    assert "It is committed." in answer(start_proxy(mcp={"git": {**row, "always": True}}))
    log = ["git", "-C", str(repository), "log", "--format=%s"]
    assert subprocess.check_output(log, text=True) == "tea\n"
    assert "Message: 'tea'" in json.dumps(upstream.requests[1]["messages"])


PAGE = (ROOT / "docs" / "mcp.md").read_text()
CONVERTED = "print(convert_time('Europe/London', '12:00', 'Asia/Kolkata')['target']['timezone'])"


def test_the_examples_of_the_page_work(
    start_proxy: StartProxy, upstream: ScriptedUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.reply(*[f"```tool_code\n{CONVERTED}\n```", "It is 17:30."] * 2)
    proxy = start_proxy(mcp=f"time={PROGRAMS / 'mcp-server-time'}")
    [command] = re.findall(r"^curl .*?\n```", PAGE, re.DOTALL | re.MULTILINE)
    shell = ["sh", "-c", command.removesuffix("```").replace("http://127.0.0.1:8001", proxy)]
    completion = json.loads(subprocess.check_output(shell))
    assert "It is 17:30." in completion["choices"][0]["message"]["content"]
    [source] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(source.replace("http://127.0.0.1:8001", proxy), {})
    assert "It is 17:30." in capsys.readouterr().out
    assert "Asia/Kolkata" in str(upstream.requests[3]["messages"][-1])


def test_a_program_moves_lines_with_server_filesystem(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """A server from npm. What it may not read is a failure that the model sees."""
    if not FILESYSTEM.exists():
        pytest.skip("no npm")
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "teas.txt").write_text("green\nblack\n")
    (tmp_path / "secret.txt").write_text("s3cret")
    program = (
        f"lines = read_text_file(path='{folder}/teas.txt')['content'].split()\n"
        f"write_file(path='{folder}/sorted.txt', content=' '.join(sorted(lines)))\n"
        f"print(read_text_file(path='{tmp_path}/secret.txt'))"
    )
    upstream.reply(f"```tool_code\n{program}\n```", "They are sorted.")
    row = {"command": str(FILESYSTEM), "args": [str(folder)]}
    assert "They are sorted." in answer(start_proxy(mcp={"files": {**row, "always": True}}))
    assert (folder / "sorted.txt").read_text() == "black green"
    seen = json.dumps(upstream.requests[1]["messages"])
    assert "outside allowed directories" in seen
    assert "s3cret" not in seen
