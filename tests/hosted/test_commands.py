"""`tool-emulator mcp` and `doctor` with the operator's servers, and examples/mcp_curl.sh, as processes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import StartProxy
from tests.support import mcp_faults
from tests.support.command_line import command_line, served
from tests.support.processes import ROOT
from tests.support.scripted import ScriptedUpstream

TABLES = """
[mcp.shop]
url = "{url}"
token = "${{SHOP_TOKEN}}"
allowed_tools = ["price", "order"]
require_approval = {{ never = {{ read_only = true }} }}
[mcp.refused]
url = "{url}"
[mcp.down]
command = "nonesuch"
"""
REFUSED = (
    "it refused a request without credentials (HTTP 401); run tool-emulator mcp login refused, "
    "or set token in [mcp.refused]"
)
MISSING = "its command 'nonesuch' cannot be started: No such file or directory"


@pytest.mark.parametrize("command", ["mcp", "doctor"])
def test_servers_are_shown_with_their_errors(tmp_path: Path, command: str) -> None:
    with mcp_faults.http(tmp_path, token="s3cret") as url:
        (tmp_path / "emulator.toml").write_text(TABLES.format(url=url))
        variables = {"SHOP_TOKEN": "s3cret"}
        arguments = (command,)
        ended = command_line(*arguments, home=tmp_path, variables=variables)
    shown = ended.out + ended.err
    assert ended.code == 1
    assert REFUSED in shown
    assert MISSING in shown
    assert "'broken' is left out: parameters" in shown
    assert "s3cret" not in shown
    # Of the shop's tools price only reads, and order waits for approval.
    assert "run without approval" not in shown
    if command == "mcp":
        assert "def price(" in ended.out and "def order(" in ended.out
        assert "def slow(" not in ended.out
        assert "# wait for approval: order" in ended.out


@pytest.mark.parametrize("command", ["mcp", "doctor"])
def test_acting_tools_that_run_without_approval_are_named(tmp_path: Path, command: str) -> None:
    with mcp_faults.http(tmp_path) as url:
        (tmp_path / "emulator.toml").write_text(
            f'[mcp.shop]\nurl = "{url}"\nallowed_tools = ["price", "order"]\n'
        )
        ended = command_line(command, home=tmp_path)
    assert "run without approval (require_approval): order" in ended.out


def test_a_command_that_is_not_on_path_is_a_line_at_the_start(tmp_path: Path) -> None:
    with served("--port", "0", "--mcp", "time=nonesuch --utc", home=tmp_path) as proxy:
        told = "MCP server time: its command nonesuch is not on PATH"
        assert proxy.wait_for(told).count("nonesuch") == 1


def test_the_example_with_curl_runs(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.reply('```tool_code\nprint(price(article="tea")["price"])\n```', "It is 17:30.")
    proxy = start_proxy(mcp={"time": mcp_faults.stdio(tmp_path / "log")})
    variables = {**os.environ, "PROXY_URL": f"{proxy}/v1", "MODEL": "m"}
    ran = subprocess.check_output(["sh", str(ROOT / "examples" / "mcp_curl.sh")], env=variables)
    types = [item["type"] for item in json.loads(ran)["output"]]
    assert types == ["mcp_list_tools", "mcp_call", "message"]
