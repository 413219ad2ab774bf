"""Hosted calls of code interpreter cells, in chat completions."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from sandbox.fences import probes
from tests.support.agents import converse
from tests.support.approver import Approver
from tests.support.chat import BOTH
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.programs import INTERPRETER, LOCAL, TOOLS
from tests.support.scripted import ScriptedUpstream

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")

SEARCH, BOOK, CHECK = TOOLS
CELL = """import math
print(math.floor(1.5))
hits = search('Oslo')
cheap = min(hits, key=lambda f: f['price'])
print(book(cheap['id'])['booked'], check(cheap['id']))"""


@BOTH
def test_a_cell_with_hosted_calls_is_shown_once_and_runs_once(
    start_proxy: Any, upstream: ScriptedUpstream, ask: Any
) -> None:
    server = HostedFunctions(LOCAL, [SEARCH, CHECK])
    client = openai.OpenAI(base_url=start_proxy(hosted=server), api_key="k", max_retries=0)
    upstream.reply(f"```python\n{CELL}\n```", "Booked.")
    tools = [INTERPRETER, BOOK, SERVER]
    messages = converse(client, ["Go."], tools=tools, local=LOCAL, ask=ask)
    assert messages[-1]["content"] == "Booked."
    assert server.made == ["search(to='Oslo')", "check(id='a2')"]
    assert len(upstream.requests) == 2
    assert "1\na2 on time" in upstream.requests[1]["messages"][-1]["content"]
    first, second = (m["reasoning_content"] for m in messages if m.get("reasoning_content"))
    assert first.count("import math") == second.count("import math") == 1
    assert '```python\nshop.search(to="Oslo")\n```' in first
    assert "```text\non time\n```" in second


MADE = ["search", "book", "check"]


def test_a_response_has_the_cell_and_its_calls(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=start_proxy(hosted=HostedFunctions(LOCAL, TOOLS)), api_key="k")
    upstream.reply(f"```python\n{CELL}\n```", "Booked.")
    with client.responses.stream(model="m", input="Go.", tools=[INTERPRETER, SERVER]) as stream:
        done = [event.item for event in stream if event.type == "response.output_item.done"]
        output = stream.get_final_response().output
    kinds = ["mcp_list_tools", "code_interpreter_call", *["mcp_call"] * 3, "message"]
    assert [item.type for item in output] == kinds
    assert sorted(item.type for item in done) == sorted(kinds)
    assert [item.name for item in output if item.type == "mcp_call"] == MADE
    assert {item.status for item in output[1:]} == {"completed"}


def test_a_message_has_the_cell_and_its_calls(start_proxy: Any, upstream: ScriptedUpstream) -> None:
    url = start_proxy(hosted=HostedFunctions(LOCAL, TOOLS))
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    upstream.reply(f"```python\n{CELL}\n```", "Booked.")
    tools: list[Any] = [
        {"type": "code_execution_20250825", "name": "code_execution"},
        {"type": "mcp_toolset", "mcp_server_name": "shop"},
    ]
    servers: list[Any] = [{"type": "url", "name": "shop", "url": "http://shop.example"}]
    with client.beta.messages.stream(
        model="m",
        max_tokens=99,
        messages=[{"role": "user", "content": "Go."}],
        tools=tools,
        mcp_servers=servers,
    ) as stream:
        content = stream.get_final_message().content
    kinds = [block.type for block in content]
    assert [block.name for block in content if block.type == "mcp_tool_use"] == MADE
    assert kinds.count("mcp_tool_result") == 3
    assert kinds.count("server_tool_use") == 1
    assert kinds[-1] == "text"


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_cell_waits_for_the_approval_of_its_call_and_is_shown_once(
    start_app: Any, upstream: ScriptedUpstream, api: str
) -> None:
    server = HostedFunctions(LOCAL, TOOLS, needs_approval=frozenset({"book"}))
    url, _ = start_app(hosted=server, inspector="open")
    person = Approver(url)
    upstream.reply(f"```python\n{CELL}\n```", "Booked.")
    asked = [{"role": "user", "content": "Go."}]
    if api == "chat":
        body: dict[str, Any] = {"tools": [INTERPRETER, SERVER], "stream": True}
        answer = person.ask("/v1/chat/completions", {"model": "m", "messages": asked, **body})
    else:
        tools = [
            {"type": "code_execution_20250825", "name": "code_execution"},
            {"type": "mcp_toolset", "mcp_server_name": "shop"},
        ]
        thinking = {"type": "enabled", "budget_tokens": 1024}
        body = {"tools": tools, "max_tokens": 2000, "thinking": thinking, "messages": asked}
        answer = person.ask("/v1/messages", {"model": "m", **body})
    person.decide("approve")
    status, _, raw = answer.result(60)
    assert status == 200
    assert server.made == ["search(to='Oslo')", "book(id='a2')", "check(id='a2')"]
    assert "1\na2 on time" in upstream.requests[1]["messages"][-1]["content"]
    assert raw.count(b"import math") == 1
    assert raw.count(b"book waits for approval") == 1
    if api == "messages":
        kinds = [block["type"] for block in json.loads(raw)["content"]]
        assert kinds.count("server_tool_use") == kinds.count("code_execution_tool_result") == 1
        assert kinds.count("mcp_tool_use") == kinds.count("mcp_tool_result") == 3
        assert kinds[-1] == "text"
