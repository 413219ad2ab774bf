"""Tools of an MCP server that the proxy calls, as each client asks for them: a real server, a real proxy."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from agents import Agent, HostedMCPTool, OpenAIResponsesModel, Runner
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI

from tests.clients.conftest import CLIENT_KEY, OPTIONS, PROXY_PYTHON, SharedUpstream
from tests.clients.examples import run_example
from tests.clients.scenarios import MODEL
from tests.support.mcp_http import ShopServer, shop_over_http
from tests.support.processes import proxy

ASK = "What do a pear and a fig cost?"
PROGRAM = (
    "```tool_code\nfirst = price(article='pear')\nfor article in ['fig'] * first['price']:\n"
    "    second = price(article=article)\nprint('both:', first['price'] + second['price'])\n```"
)
"""Its later calls depend on the first."""
CALLS = [{"article": "pear"}, *[{"article": "fig"}] * 3]
ONE_CALL = "```tool_code\nprint('it is', price(article='pear')['price'])\n```"
ANSWER = "They cost 6."


@pytest.fixture(scope="module")
def mcp_proxy(
    shared_upstream: SharedUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, ShopServer]]:
    """The proxy's URL, without a path, and the server that its requests may name."""
    log = tmp_path_factory.mktemp("proxy") / "log"
    with shop_over_http() as server:
        options = (*OPTIONS, "--mcp-hosts", f"127.0.0.1:{server.port}")
        command = (PROXY_PYTHON, "app.py")
        with proxy(shared_upstream.base_url, log, *options, command=command) as (_, url):
            yield url, server
    sys.stderr.write(log.read_text()[-4000:])


@pytest.fixture
def shop(mcp_proxy: tuple[str, ShopServer]) -> ShopServer:
    mcp_proxy[1].requests.clear()
    return mcp_proxy[1]


@pytest.fixture
def url(mcp_proxy: tuple[str, ShopServer], upstream: SharedUpstream, shop: ShopServer) -> str:
    return mcp_proxy[0]


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=CLIENT_KEY, max_retries=0) as connected:
        yield connected


def mcp_tool(shop: ShopServer, approval: str = "never") -> Any:
    return {
        "type": "mcp",
        "server_label": "shop",
        "server_url": shop.url,
        "require_approval": approval,
    }


def plain(client: openai.OpenAI, **request: Any) -> Any:
    return client.responses.create(model=MODEL, **request)


def streamed(client: openai.OpenAI, **request: Any) -> Any:
    with client.responses.stream(model=MODEL, **request) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def background(client: openai.OpenAI, **request: Any) -> Any:
    response = client.responses.create(model=MODEL, background=True, **request)
    while response.status in ("queued", "in_progress"):
        time.sleep(0.02)
        response = client.responses.retrieve(response.id)
    return response


EACH_WAY = pytest.mark.parametrize("create", [plain, streamed, background])


def prompts(upstream: SharedUpstream) -> list[str]:
    """The prompts, as texts without what ends a list."""
    return [json.dumps(request["messages"])[:-1] for request in upstream.requests]


@EACH_WAY
def test_a_program_of_several_calls_is_one_request_and_two_turns(
    client: openai.OpenAI, upstream: SharedUpstream, shop: ShopServer, create: Any
) -> None:
    upstream.reply(PROGRAM, ANSWER)
    response = create(client, input=ASK, tools=[mcp_tool(shop)])
    assert response.status == "completed"
    kinds = [item.type for item in response.output]
    assert kinds == ["mcp_list_tools", *["mcp_call"] * 4, "message"]
    listed, *calls, _ = response.output
    assert [tool.name for tool in listed.tools] == ["price"]
    assert [json.loads(call.arguments) for call in calls] == CALLS == shop.calls
    assert {call.status for call in calls} == {"completed"}
    assert json.loads(calls[0].output) == {"article": "pear", "price": 3}
    assert response.output_text == ANSWER
    assert "both: 6" in prompts(upstream)[1]


@pytest.mark.parametrize("stores", [True, False], ids=["previous_response_id", "items"])
def test_the_next_prompt_begins_with_the_last_and_a_listed_server_is_not_listed_again(
    client: openai.OpenAI, upstream: SharedUpstream, shop: ShopServer, stores: bool
) -> None:
    upstream.reply(PROGRAM, ANSWER, "Bye.")
    tools = [mcp_tool(shop)]
    first = plain(client, input=ASK, tools=tools, store=stores)
    listings, calls = shop.listings, len(shop.calls)
    said = {"role": "user", "content": "Thanks."}
    if stores:
        history = {"previous_response_id": first.id, "input": [said]}
    else:
        items = [item.to_dict() for item in first.output]
        history = {"store": False, "input": [{"role": "user", "content": ASK}, *items, said]}
    second = plain(client, tools=tools, **history)
    assert [item.type for item in second.output] == ["message"]
    assert (shop.listings, len(shop.calls)) == (listings, calls)
    _, last, after = prompts(upstream)
    assert after.startswith(last)


@EACH_WAY
def test_a_call_waits_for_approval(
    client: openai.OpenAI, upstream: SharedUpstream, shop: ShopServer, create: Any
) -> None:
    upstream.reply(ONE_CALL, ANSWER)
    tools = [mcp_tool(shop, "always")]
    first = create(client, input=ASK, tools=tools)
    *_, asked = first.output
    assert (first.status, asked.type, shop.calls) == ("completed", "mcp_approval_request", [])
    assert (asked.server_label, asked.name, asked.arguments) == (
        "shop",
        "price",
        '{"article":"pear"}',
    )
    decision: Any = {
        "type": "mcp_approval_response",
        "approval_request_id": asked.id,
        "approve": True,
    }
    second = create(client, input=[decision], tools=tools, previous_response_id=first.id)
    call, message = second.output
    assert (call.type, call.approval_request_id, call.status) == (
        "mcp_call",
        asked.id,
        "completed",
    )
    assert (message.content[0].text, shop.calls) == (ANSWER, CALLS[:1])
    assert "it is 3" in prompts(upstream)[1]


def test_an_unknown_approval_and_a_host_that_is_not_allowed_are_errors_that_name_the_place(
    client: openai.OpenAI, shop: ShopServer
) -> None:
    decision: Any = {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_0",
        "approve": True,
    }
    with pytest.raises(openai.BadRequestError) as caught:
        plain(client, input=[decision], tools=[mcp_tool(shop)])
    assert caught.value.param == "input[0].approval_request_id"
    with pytest.raises(openai.BadRequestError) as caught:
        other = {**mcp_tool(shop), "server_url": "http://127.0.0.1:9/mcp"}
        plain(client, input=ASK, tools=[{"type": "namespace", "name": "n", "tools": []}, other])
    assert caught.value.param == "tools[1].server_url"


# OpenAI's Agents SDK


@pytest.mark.parametrize("is_streamed", [False, True], ids=["run", "run_streamed"])
@pytest.mark.parametrize("approve", [True, False])
async def test_an_agent_asks_its_program_for_approval(
    url: str, upstream: SharedUpstream, shop: ShopServer, approve: bool, is_streamed: bool
) -> None:
    upstream.reply(ONE_CALL, ANSWER)
    asked: list[Any] = []

    def decide(request: Any) -> Any:
        asked.append(request.data)
        return {"approve": True} if approve else {"approve": False, "reason": "Too dear."}

    tool = HostedMCPTool(tool_config=mcp_tool(shop, "always"), on_approval_request=decide)
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=CLIENT_KEY) as connected:
        model = OpenAIResponsesModel(MODEL, connected)
        agent: Agent[None] = Agent(name="Buyer", model=model, tools=[tool])
        if is_streamed:
            result: Any = Runner.run_streamed(agent, ASK)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, ASK)
    assert result.final_output == ANSWER
    assert [(one.name, one.server_label) for one in asked] == [("price", "shop")]
    assert shop.calls == (CALLS[:1] if approve else [])
    assert ("it is 3" if approve else "Too dear.") in prompts(upstream)[1]
    assert shop.listings <= 1


# LangChain


@pytest.mark.parametrize("version", ["v0", "responses/v1"])
def test_a_langchain_model_gets_calls_and_results_as_content(
    url: str, upstream: SharedUpstream, shop: ShopServer, version: Any
) -> None:
    upstream.reply(PROGRAM, ANSWER, "Bye.")
    model = ChatOpenAI(
        model=MODEL,
        base_url=f"{url}/v1",
        max_retries=0,
        use_responses_api=True,
        output_version=version,
    ).bind_tools([mcp_tool(shop)])
    asked = HumanMessage(ASK)
    answer = model.invoke([asked])
    assert isinstance(answer, AIMessage)
    assert (answer.text, shop.calls) == (ANSWER, CALLS)
    assert model.invoke([asked, answer, HumanMessage("Thanks.")]).text == "Bye."
    assert len(shop.calls) == 4
    _, last, after = prompts(upstream)
    if version == "responses/v1":  # v0 sends only the words of an answer back
        assert after.startswith(last)


# Anthropic's SDK


def message(claude: anthropic.Anthropic, **request: Any) -> Any:
    return claude.beta.messages.create(model=MODEL, max_tokens=99, **request)


def streamed_message(claude: anthropic.Anthropic, **request: Any) -> Any:
    with claude.beta.messages.stream(model=MODEL, max_tokens=99, **request) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


@pytest.fixture
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key=CLIENT_KEY, max_retries=0) as connected:
        yield connected


NEW = "mcp-client-2025-11-20"
TOOLSET: Any = {"type": "mcp_toolset", "mcp_server_name": "shop"}


@pytest.mark.parametrize("create", [message, streamed_message])
@pytest.mark.parametrize(
    ("beta", "tools", "kinds"),
    [
        (NEW, [TOOLSET], []),
        ("mcp-client-2025-04-04", [], []),
        ("mcp-client-2026-09-15", [TOOLSET], ["mcp_tool_listing"]),
    ],
)
def test_messages_have_the_calls_and_the_next_prompt_begins_with_the_last(
    claude: anthropic.Anthropic,
    upstream: SharedUpstream,
    shop: ShopServer,
    create: Any,
    beta: str,
    tools: list[Any],
    kinds: list[str],
) -> None:
    upstream.reply(PROGRAM, ANSWER, "Bye.")
    server = {"type": "url", "name": "shop", "url": shop.url}
    offer = {"betas": [beta], "mcp_servers": [server], "tools": tools}
    asked = {"role": "user", "content": ASK}
    first = create(claude, messages=[asked], **offer)
    assert first.stop_reason == "end_turn"
    calls = ["mcp_tool_use", "mcp_tool_result"]
    assert [block.type for block in first.content if block.type not in calls] == [*kinds, "text"]
    uses = [block for block in first.content if block.type == "mcp_tool_use"]
    results = [block for block in first.content if block.type == "mcp_tool_result"]
    assert [use.input for use in uses] == CALLS == shop.calls
    assert {(use.name, use.server_name) for use in uses} == {("price", "shop")}
    assert [use.id for use in uses] == [result.tool_use_id for result in results]
    assert json.loads(results[0].content[0].text) == {"article": "pear", "price": 3}
    assert not any(result.is_error for result in results)
    answer = {"role": "assistant", "content": [block.to_dict() for block in first.content]}
    said = {"role": "user", "content": "Thanks."}
    second = create(claude, messages=[asked, answer, said], **offer)
    assert [block.type for block in second.content] in ([*kinds, "text"], ["text"])
    assert len(shop.calls) == 4
    _, last, after = prompts(upstream)
    assert after.startswith(last)


def test_a_disabled_tool_is_not_offered(
    claude: anthropic.Anthropic, upstream: SharedUpstream, shop: ShopServer
) -> None:
    upstream.reply("I have no tools.")
    server = {"type": "url", "name": "shop", "url": shop.url}
    toolset = {**TOOLSET, "configs": {"price": {"enabled": False}}}
    asked = [{"role": "user", "content": ASK}]
    message(claude, messages=asked, betas=[NEW], mcp_servers=[server], tools=[toolset])
    assert "def price" not in prompts(upstream)[0]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"tools": []}, "mcp_servers.0"),
        ({"tools": [{**TOOLSET, "mcp_server_name": "shed"}, TOOLSET]}, "tools.0.mcp_server_name"),
        (
            {"mcp_servers": [{"type": "url", "name": "shop", "url": "http://127.0.0.1:9/mcp"}]},
            "mcp_servers.0.url",
        ),
    ],
)
def test_an_unusable_server_is_anthropics_error_that_names_the_place(
    claude: anthropic.Anthropic, shop: ShopServer, changes: Any, place: str
) -> None:
    server = {"type": "url", "name": "shop", "url": shop.url}
    request = {"mcp_servers": [server], "tools": [TOOLSET], **changes}
    with pytest.raises(anthropic.BadRequestError) as caught:
        message(claude, messages=[{"role": "user", "content": ASK}], betas=[NEW], **request)
    assert caught.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]
    assert place in str(caught.value)


def test_the_example_runs(
    shared_upstream: SharedUpstream, upstream: SharedUpstream, tmp_path: Path
) -> None:
    """examples/mcp_agent.py, with a server that the operator names."""
    upstream.reply(ONE_CALL, ANSWER)
    with shop_over_http() as server:
        options = (*OPTIONS, "--mcp", f"time={server.url}")
        command = (PROXY_PYTHON, "app.py")
        log = tmp_path / "log"
        with proxy(shared_upstream.base_url, log, *options, command=command) as (_, url):
            shown = run_example("mcp_agent.py", url=f"{url}/v1", folder=tmp_path)
    assert shown == f"{ANSWER}\n"
    assert "it is 3" in json.dumps(upstream.requests[1]["messages"])
