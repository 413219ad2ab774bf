"""OpenAI's Agents SDK with its CodeInterpreterTool, alone and with functions, over one turn and several."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    CodeInterpreterTool,
    ModelSettings,
    OpenAIResponsesModel,
    Runner,
    function_tool,
)
from agents.items import MessageOutputItem, ToolCallItem

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ANSWER,
    ASK,
    AUTO,
    CALLING_CELL,
    CALLING_RAN,
    CODE,
    CODE_RUNS,
    CODE_TURNS,
    FORECAST,
    FORECAST_VALUE,
    MODEL,
    OUTPUTS,
    PLOT,
    PLOT_ANSWER,
    PLOT_FILE,
    PLOT_SIZE,
    SUM,
    SUM_RAN,
    Forecast,
    get_weather,
    image_size,
    marked,
)

CLIENT = "OpenAI Agents SDK"
PACKAGES = ("openai-agents",)


@pytest.fixture
async def client(interpreter: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=interpreter, max_retries=0) as connected:
        yield connected


def agent(client: openai.AsyncOpenAI, container: str | None = None, **options: Any) -> Agent[None]:
    given: Any = AUTO | ({"container": container} if container else {})
    return Agent(
        "analyst",
        model=OpenAIResponsesModel(MODEL, client),
        tools=[CodeInterpreterTool(given), function_tool(get_weather, strict_mode=False)],
        model_settings=ModelSettings(response_include=[OUTPUTS]),
        **options,
    )


async def run(agent: Agent[None], given: Any = ASK, **options: Any) -> Any:
    return await Runner.run(agent, given, **options)


async def run_streamed(agent: Agent[None], given: Any = ASK, **options: Any) -> Any:
    result = Runner.run_streamed(agent, given, **options)
    told = [
        event.item
        async for event in result.stream_events()
        if event.type == "run_item_stream_event"
    ]
    assert [item.type for item in told] == [item.type for item in result.new_items]
    return result


EITHER = pytest.mark.parametrize(
    "ask", [run, pytest.param(run_streamed, marks=pytest.mark.feature("streaming"))]
)


def steps(result: Any) -> list[Any]:
    made: list[Any] = []
    for item in result.new_items:
        if isinstance(item, ToolCallItem):
            raw: Any = item.raw_item
            if raw.type == "code_interpreter_call":
                made.append([CODE, raw.code, "".join(output.logs for output in raw.outputs)])
            else:
                made.append([raw.name, json.loads(raw.arguments)])
    return made


@EITHER
@pytest.mark.parametrize(("replies", "expected"), marked(CODE_RUNS))
async def test_an_agent_runs_code_and_calls_functions(
    client: openai.AsyncOpenAI,
    container: str,
    upstream: SharedUpstream,
    ask: Any,
    replies: list[str],
    expected: list[Any],
) -> None:
    upstream.reply(*replies, chunks=3)
    result = await ask(agent(client, container))
    assert (steps(result), result.final_output) == (expected, replies[-1])
    assert result.context_wrapper.usage.total_tokens > 0


@pytest.mark.feature("code over turns")
@EITHER
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "sent back"])
async def test_a_conversation_keeps_its_variables(
    client: openai.AsyncOpenAI, upstream: SharedUpstream, ask: Any, kept: bool
) -> None:
    history: list[Any] = []
    previous: dict[str, Any] = {}
    for replies, ran in CODE_TURNS:
        upstream.reply(*replies, chunks=3)
        history.append({"role": "user", "content": ASK})
        result = await ask(agent(client), history, **previous)
        assert (steps(result), result.final_output) == (ran, replies[-1])
        if kept:
            history, previous = [], {"previous_response_id": result.last_response_id}
        else:
            history = result.to_input_list()


@pytest.mark.feature("functions in code")
@pytest.mark.feature("code over turns")
@EITHER
async def test_the_output_of_a_resumed_cell_is_in_the_history(
    client: openai.AsyncOpenAI, container: str, upstream: SharedUpstream, ask: Any
) -> None:
    upstream.reply(CALLING_CELL, ANSWER, "Yes.", chunks=3)
    first = await ask(agent(client, container))
    again = [*first.to_input_list(), {"role": "user", "content": "Sure?"}]
    assert (await ask(agent(client, container), again)).final_output == "Yes."
    assert upstream.outputs_told() == [CALLING_RAN[-1][-1]]


@pytest.mark.feature("code interpreter")
@pytest.mark.feature("structured output")
@EITHER
async def test_the_final_output_after_code_is_an_object_of_its_class(
    client: openai.AsyncOpenAI, container: str, upstream: SharedUpstream, ask: Any
) -> None:
    upstream.reply(SUM, FORECAST, chunks=3)
    result = await ask(agent(client, container, output_type=Forecast))
    assert (steps(result), result.final_output) == ([SUM_RAN], FORECAST_VALUE)


@pytest.mark.feature("files")
@pytest.mark.usefixtures("matplotlib")
@EITHER
async def test_a_plot_is_cited_and_fetched(
    client: openai.AsyncOpenAI, upstream: SharedUpstream, ask: Any
) -> None:
    upstream.reply(PLOT, PLOT_ANSWER, chunks=3)
    result = await ask(agent(client))
    [message] = [item for item in result.new_items if isinstance(item, MessageOutputItem)]
    [text] = message.raw_item.content
    notes = {note.filename: note for note in text.annotations}
    note = notes[PLOT_FILE]
    content = await client.containers.files.content.retrieve(
        note.file_id, container_id=note.container_id
    )
    assert (result.final_output, image_size(content.content)) == (PLOT_ANSWER, PLOT_SIZE)
