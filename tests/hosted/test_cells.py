"""Hosted calls of code interpreter cells, in chat completions."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from sandbox.fences import probes
from tests.hosted.test_fronts import LOOPS
from tests.support.agents import broken_prefixes, converse
from tests.support.approver import Approver
from tests.support.chat import BOTH
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.programs import INTERPRETER, LOCAL, TOOLS
from tests.support.scripted import Reply, ScriptedUpstream

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")

SEARCH, BOOK, CHECK = TOOLS


def _name(cell: str) -> str:
    return next(name for name, value in globals().items() if value is cell)


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
    upstream.reply(f"```tool_code\n{CELL}\n```", "Booked.")
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
    upstream.reply(f"```tool_code\n{CELL}\n```", "Booked.")
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
    upstream.reply(f"```tool_code\n{CELL}\n```", "Booked.")
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
    upstream.reply(f"```tool_code\n{CELL}\n```", "Booked.")
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


# The next turns

PLAIN = "x = 6 * 7\nprint('plain', x)"
HOSTED = "print('hosted', search('Rome'))"
OWN = "print('own', book('a1')['booked'])"
BOTH_KINDS = "print('both', book('a2')['booked'], check('a2'))"
FAILED = "book('a3')\nraise ValueError('failed here')"
CELLS_OF_AN_ANSWER: list[list[str]] = [
    [PLAIN],
    [HOSTED],
    [OWN],
    [BOTH_KINDS],
    [FAILED, OWN],
    [OWN, HOSTED],
    [HOSTED, BOTH_KINDS, OWN],
    [OWN, PLAIN],
]
PRINTED = {
    PLAIN: "plain 42",
    HOSTED: "hosted []",
    OWN: "own a1",
    BOTH_KINDS: "both a2 on time",
    FAILED: "ValueError: failed here",
}


@pytest.mark.parametrize("cells", CELLS_OF_AN_ANSWER, ids=lambda cells: "+".join(map(_name, cells)))
@pytest.mark.parametrize("api", ["chat", *LOOPS])
def test_the_next_turn_shows_each_cell_once_as_the_model_saw_it(
    start_proxy: Any, upstream: ScriptedUpstream, api: str, cells: list[str]
) -> None:
    url = start_proxy(hosted=HostedFunctions(LOCAL, [SEARCH, CHECK], always=True))
    replies = [f"Step {n}.\n```tool_code\n{cell}\n```" for n, cell in enumerate(cells)]
    upstream.reply(*(Reply(text, reasoning="Hm.") for text in [*replies, "Done."]), "Bye.")
    tools, local = [INTERPRETER, BOOK, SERVER], {"book": LOCAL["book"]}
    if api == "chat":
        client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
        converse(client, ["Go.", "Thanks."], tools=tools, local=local)
    else:
        agent = LOOPS[api](url, tools, local)
        assert [agent.say("Go.").strip(), agent.say("Thanks.")] == ["Done.", "Bye."]
    assert broken_prefixes(upstream.requests) == []
    texts = "\n".join(str(m["content"]) for m in upstream.requests[-1]["messages"][1:])
    for cell in cells:
        assert (texts.count(cell), texts.count(PRINTED[cell])) == (1, 1), texts
    assert "\n\nDone." not in texts.replace("```\n\nDone.", "")


def test_a_cell_calls_no_function_that_the_later_request_does_not_offer(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply("```tool_code\nprint(search('Rome'))\nbook('a1')\n```", "Not booked.")
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    request: dict[str, Any] = {"model": "m", "messages": messages}
    first = client.chat.completions.create(tools=[INTERPRETER, SEARCH, BOOK], **request)
    message = first.choices[0].message
    [call] = message.tool_calls or ()
    messages += [message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "[]"}]
    second = client.chat.completions.create(tools=[INTERPRETER, SEARCH], **request)
    assert second.choices[0].message.tool_calls is None
    assert second.choices[0].message.content == "Not booked."
    assert "book" in upstream.requests[1]["messages"][-1]["content"]
