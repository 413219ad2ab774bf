"""OpenAI's Agents SDK over Chat Completions and over Responses: run, run_streamed, output types, handoffs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    ProgrammaticToolCallingTool,
    Runner,
    ToolSearchTool,
    function_tool,
)
from agents.items import ToolCallItem

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ANSWER,
    ASK,
    FORECAST,
    FORECAST_VALUE,
    LONDON,
    LOOPS,
    MODEL,
    Forecast,
    create_event,
    get_weather,
    marked,
    send_mail,
)

CLIENT = "OpenAI Agents SDK"
PACKAGES = ("openai-agents",)

TOOLS: list[Any] = [
    function_tool(function, strict_mode=False)
    for function in (get_weather, create_event, send_mail)
]


@pytest.fixture(
    params=[OpenAIChatCompletionsModel, OpenAIResponsesModel], ids=["chat", "responses"]
)
async def model(base_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Model]:
    async with openai.AsyncOpenAI(base_url=base_url, max_retries=0) as client:
        yield request.param(MODEL, client)


async def run(agent: Agent[None]) -> Any:
    return await Runner.run(agent, ASK)


async def run_streamed(agent: Agent[None]) -> Any:
    result = Runner.run_streamed(agent, ASK)
    async for _event in result.stream_events():
        pass
    return result


EITHER = pytest.mark.parametrize(
    "ask", [run, pytest.param(run_streamed, marks=pytest.mark.feature("streaming"))]
)


def calls(result: Any) -> list[Any]:
    return [
        [item.raw_item.name, json.loads(item.raw_item.arguments)]
        for item in result.new_items
        if isinstance(item, ToolCallItem)
    ]


@EITHER
@pytest.mark.parametrize(("replies", "expected"), marked(LOOPS))
async def test_an_agent_calls_its_tools_until_it_answers(
    model: Model, upstream: SharedUpstream, ask: Any, replies: list[str], expected: Any
) -> None:
    upstream.reply(*replies, chunks=3)
    result = await ask(Agent("weatherman", model=model, tools=TOOLS))
    assert (calls(result), result.final_output) == (expected, replies[-1])


@EITHER
@pytest.mark.feature("structured output")
@pytest.mark.parametrize("tools", [[], TOOLS], ids=["alone", "with tools"])
async def test_the_final_output_is_an_object_of_its_class(
    model: Model, upstream: SharedUpstream, ask: Any, tools: Any
) -> None:
    if tools:
        upstream.reply(LONDON)
    upstream.reply(FORECAST, chunks=3)
    result = await ask(Agent("weatherman", model=model, tools=tools, output_type=Forecast))
    assert result.final_output == FORECAST_VALUE


@EITHER
@pytest.mark.feature("several tool turns")
async def test_one_agent_hands_the_conversation_to_another(
    model: Model, upstream: SharedUpstream, ask: Any
) -> None:
    upstream.reply("```tool_code\ntransfer_to_weatherman()\n```", LONDON, ANSWER, chunks=3)
    weatherman = Agent("weatherman", model=model, tools=TOOLS)
    result = await ask(Agent("porter", model=model, handoffs=[weatherman]))
    assert (result.last_agent.name, result.final_output) == ("weatherman", ANSWER)


@EITHER
@pytest.mark.parametrize("store", [True, False])
async def test_a_program_calls_its_allowed_tools_and_ends_at_a_direct_call(
    base_url: str, upstream: SharedUpstream, ask: Any, store: bool
) -> None:
    """The SDK refuses calls whose caller their tool does not allow, or whose program it does not know."""
    code = (
        "x = get_weather('London')\nif '12' in x:\n    send_mail('ann', x)\n    get_weather('Oslo')"
    )
    upstream.reply(f"```tool_code\n{code}\n```", ANSWER, chunks=3)
    weather = function_tool(get_weather, strict_mode=False, allowed_callers=["programmatic"])
    mail = function_tool(send_mail, strict_mode=False)
    async with openai.AsyncOpenAI(base_url=base_url, max_retries=0) as client:
        agent = Agent(
            "weatherman",
            model=OpenAIResponsesModel(MODEL, client),
            model_settings=ModelSettings(database=store),
            tools=[weather, mail, ProgrammaticToolCallingTool()],
        )
        result = await ask(agent)
    kinds = [item.to_input_item()["type"] for item in result.new_items]
    assert kinds == [
        *("program", "function_call", "function_call_output"),
        *("program_output", "function_call", "function_call_output", "message"),
    ]
    assert result.final_output == ANSWER


@EITHER
@pytest.mark.feature("several tool turns")
async def test_a_deferred_tool_is_called_after_a_search(
    base_url: str, upstream: SharedUpstream, ask: Any
) -> None:
    """The SDK's runner leaves searches with the execution ``client`` to its user."""
    upstream.reply("```tool_code\nsearch_tools(query='weather')\n```", LONDON, ANSWER, chunks=3)
    deferred = function_tool(get_weather, strict_mode=False, defer_loading=True)
    async with openai.AsyncOpenAI(base_url=base_url, max_retries=0) as client:
        model = OpenAIResponsesModel(MODEL, client)
        result = await ask(Agent("weatherman", model=model, tools=[ToolSearchTool(), deferred]))
    assert result.final_output == ANSWER
    kinds = [item.type for item in result.new_items]
    assert kinds[:3] == ["tool_search_call_item", "tool_search_output_item", "tool_call_item"]
    first, second, _ = (str(request["messages"]) for request in upstream.requests)
    assert ["def get_weather(" in prompt for prompt in (first, second)] == [False, True]
