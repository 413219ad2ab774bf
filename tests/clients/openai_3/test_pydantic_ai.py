"""PydanticAI agents, over all three APIs: function tools, the three output modes, streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ANSWER,
    ASK,
    FINAL,
    FORECAST,
    FORECAST_VALUE,
    LONDON,
    LOOPS,
    MODEL,
    SILENT_BOTH,
    Forecast,
    create_event,
    get_weather,
    marked,
    send_mail,
)

CLIENT = "PydanticAI"
PACKAGES = ("pydantic-ai-slim",)

TOOLS = [get_weather, create_event, send_mail]


MODELS = {
    "chat": lambda url: OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="k")),
    "responses": lambda url: OpenAIResponsesModel(
        MODEL, provider=OpenAIProvider(base_url=url, api_key="k")
    ),
    "messages": lambda url: AnthropicModel(
        MODEL,
        provider=AnthropicProvider(base_url=url.removesuffix("/v1"), api_key="k"),
        # PydanticAI goes by the names of Anthropic's own models.
        profile=ModelProfile(supports_json_schema_output=True),
    ),
}


@pytest.fixture(params=MODELS)
async def model(base_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Model]:
    yield MODELS[request.param](base_url)


def calls(messages: list[Any]) -> list[Any]:
    return [
        [part.tool_name, part.args_as_dict()]
        for message in messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]


async def run(agent: Agent[None, Any]) -> Any:
    return await agent.run(ASK)


async def run_stream(agent: Agent[None, Any]) -> Any:
    """With each event of the model's stream looked at, as a UI does; then the run's result."""

    async def watch(_: object, events: Any) -> None:
        async for _event in events:
            pass

    return await agent.run(ASK, event_stream_handler=watch)


EITHER = pytest.mark.parametrize(
    "ask", [run, pytest.param(run_stream, marks=pytest.mark.feature("streaming"))]
)


@EITHER
@pytest.mark.parametrize(("replies", "expected"), marked(LOOPS))
async def test_an_agent_calls_its_tools_and_answers(
    model: Model,
    upstream: SharedUpstream,
    ask: Any,
    replies: list[str],
    expected: Any,
) -> None:
    upstream.reply(*replies, chunks=3)
    result = await ask(Agent(model, tools=TOOLS))
    assert (calls(result.all_messages()), result.output) == (expected, replies[-1])


@pytest.mark.feature("streaming")
async def test_run_stream_gives_the_answer_as_it_comes(
    model: Model, upstream: SharedUpstream
) -> None:
    upstream.reply(SILENT_BOTH, ANSWER, chunks=3, delay=0.03)
    async with Agent(model, tools=TOOLS).run_stream(ASK) as result:
        texts = [text async for text in result.stream_text(debounce_by=None)]
    assert texts[-1] == ANSWER
    assert len(texts) > 1 and all(ANSWER.startswith(text) for text in texts)


OUTPUTS: list[Any] = [
    pytest.param(ToolOutput(Forecast), FINAL, id="tool output"),
    pytest.param(NativeOutput(Forecast), FORECAST, id="native output"),
    pytest.param(PromptedOutput(Forecast), FORECAST, id="prompted output"),
]


@pytest.mark.feature("structured output")
@EITHER
@pytest.mark.parametrize("tools", [[], TOOLS], ids=["alone", "with tools"])
@pytest.mark.parametrize(("output", "reply"), OUTPUTS)
async def test_an_output_is_an_object_of_its_class(
    model: Model,
    upstream: SharedUpstream,
    ask: Any,
    tools: Any,
    output: Any,
    reply: str,
) -> None:
    if tools:
        upstream.reply(LONDON)
    upstream.reply(reply, chunks=3)
    result = await ask(Agent(model, output_type=output, tools=tools))
    assert result.output == FORECAST_VALUE


@pytest.mark.feature("structured output")
@pytest.mark.feature("streaming")
@pytest.mark.parametrize(("output", "reply"), OUTPUTS)
async def test_a_streamed_output_ends_as_the_whole(
    model: Model, upstream: SharedUpstream, output: Any, reply: str
) -> None:
    upstream.reply(reply, chunks=3)
    async with Agent(model, output_type=output).run_stream(ASK) as result:
        partial = [value async for value in result.stream_output(debounce_by=None)]
    assert partial[-1] == FORECAST_VALUE
