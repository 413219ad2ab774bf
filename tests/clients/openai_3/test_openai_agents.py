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
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
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
async def test_one_agent_hands_over_to_another(
    model: Model, upstream: SharedUpstream, ask: Any
) -> None:
    upstream.reply("```python\ntransfer_to_weatherman()\n```", LONDON, ANSWER, chunks=3)
    weatherman = Agent("weatherman", model=model, tools=TOOLS)
    result = await ask(Agent("porter", model=model, handoffs=[weatherman]))
    assert (result.last_agent.name, result.final_output) == ("weatherman", ANSWER)
