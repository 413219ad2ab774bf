"""PydanticAI's OpenAIResponsesModel with its CodeExecutionTool: plain, streamed, typed, over two runs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, CodeExecutionTool, NativeOutput, ToolOutput
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ToolCallPart,
    UploadedFile,
)
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ASK,
    CODE,
    CODE_RUNS,
    CODE_TURNS,
    FINAL,
    FORECAST,
    FORECAST_VALUE,
    MODEL,
    PLOT,
    PLOT_ANSWER,
    PLOT_FILE,
    PLOT_SIZE,
    SUM,
    SUM_ANSWER,
    SUM_RAN,
    Forecast,
    get_weather,
    image_size,
    marked,
)

CLIENT = "PydanticAI"
PACKAGES = ("pydantic-ai-slim",)

SETTINGS = OpenAIResponsesModelSettings(
    openai_include_code_execution_outputs=True, openai_include_raw_annotations=True
)


@pytest.fixture
async def model(interpreter: str) -> OpenAIResponsesModel:
    provider = OpenAIProvider(base_url=interpreter, api_key="client-key")
    return OpenAIResponsesModel(MODEL, provider=provider, settings=SETTINGS)


def agent(model: OpenAIResponsesModel, **options: Any) -> Agent[None, Any]:
    code = NativeTool(CodeExecutionTool())
    return Agent(model, capabilities=[code], tools=[get_weather], **options)


async def run(agent: Agent[None, Any], **options: Any) -> Any:
    return await agent.run(ASK, **options)


async def run_stream(agent: Agent[None, Any], **options: Any) -> Any:
    """With each event of the model's stream looked at, as a UI does; then the run's result."""

    async def watch(_: object, events: Any) -> None:
        async for _event in events:
            pass

    return await agent.run(ASK, event_stream_handler=watch, **options)


EITHER = pytest.mark.parametrize(
    "ask", [run, pytest.param(run_stream, marks=pytest.mark.feature("streaming"))]
)


def parts(messages: list[ModelMessage], kind: type[Any]) -> list[Any]:
    return [
        part
        for message in messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, kind)
    ]


def steps(messages: list[ModelMessage]) -> list[Any]:
    returned = {part.tool_call_id: part.content for part in parts(messages, NativeToolReturnPart)}
    return [
        [CODE, part.args_as_dict()["code"], "".join(returned[part.tool_call_id].get("logs", []))]
        if isinstance(part, NativeToolCallPart)
        else [part.tool_name, part.args_as_dict()]
        for part in parts(messages, NativeToolCallPart | ToolCallPart)
    ]


@EITHER
@pytest.mark.parametrize(("replies", "expected"), marked(CODE_RUNS))
async def test_an_agent_runs_code_and_calls_functions(
    model: OpenAIResponsesModel,
    upstream: SharedUpstream,
    ask: Any,
    replies: list[str],
    expected: list[Any],
) -> None:
    upstream.reply(*replies, chunks=3)
    result = await ask(agent(model))
    assert (steps(result.all_messages()), result.output) == (expected, replies[-1])


@pytest.mark.feature("streaming")
@pytest.mark.feature("code interpreter")
async def test_run_stream_gives_the_answer_as_it_comes(
    model: OpenAIResponsesModel, upstream: SharedUpstream
) -> None:
    upstream.reply(SUM, SUM_ANSWER, chunks=3, delay=0.03)
    async with agent(model).run_stream(ASK) as result:
        texts = [text async for text in result.stream_text(debounce_by=None)]
    assert texts[-1] == SUM_ANSWER
    assert len(texts) > 1 and all(SUM_ANSWER.startswith(text) for text in texts)
    assert steps(result.all_messages()) == [SUM_RAN]


@pytest.mark.feature("code interpreter")
@pytest.mark.feature("structured output")
@EITHER
@pytest.mark.parametrize(
    ("output", "reply"),
    [
        pytest.param(ToolOutput(Forecast), FINAL, id="tool output"),
        pytest.param(NativeOutput(Forecast), FORECAST, id="native output"),
    ],
)
async def test_an_output_after_code_is_an_object_of_its_class(
    model: OpenAIResponsesModel, upstream: SharedUpstream, ask: Any, output: Any, reply: str
) -> None:
    upstream.reply(SUM, reply, chunks=3)
    result = await ask(agent(model, output_type=output))
    assert (steps(result.all_messages())[0], result.output) == (SUM_RAN, FORECAST_VALUE)


# Whoever asks for none of these is sent no cell back: PydanticAI holds that to be a reasoning model's affair.
KEEPING: list[OpenAIResponsesModelSettings] = [
    {"openai_send_reasoning_ids": True},
    {"openai_send_reasoning_ids": True, "openai_store": False},
    {"openai_previous_response_id": "auto"},
]


@pytest.mark.feature("code over turns")
@pytest.mark.parametrize("settings", KEEPING, ids=["sent back", "not stored", "kept"])
async def test_a_second_run_continues_the_first(
    model: OpenAIResponsesModel,
    upstream: SharedUpstream,
    settings: OpenAIResponsesModelSettings,
) -> None:
    history: list[ModelMessage] = []
    for replies, ran in CODE_TURNS:
        upstream.reply(*replies, chunks=3)
        result = await run(agent(model), message_history=history, model_settings=settings)
        assert (steps(result.new_messages()), result.output) == (ran, replies[-1])
        history = result.all_messages()


@pytest.mark.feature("code over turns")
async def test_the_model_sees_the_output_of_cells_that_the_client_omits(
    model: OpenAIResponsesModel, upstream: SharedUpstream
) -> None:
    upstream.reply(SUM, SUM_ANSWER, "Yes.")
    first = await run(agent(model))
    await run(agent(model), message_history=first.all_messages(), model_settings=KEEPING[0])
    assert upstream.outputs_told() == [SUM_RAN[-1]]


@pytest.mark.feature("files")
@pytest.mark.usefixtures("matplotlib")
@EITHER
async def test_a_plot_is_a_file_of_the_run_and_cited(
    model: OpenAIResponsesModel, upstream: SharedUpstream, ask: Any
) -> None:
    upstream.reply(PLOT, PLOT_ANSWER, chunks=3)
    result = await ask(agent(model))
    [shown] = parts(result.all_messages(), FilePart)
    assert image_size(shown.content.data) > (0, 0)
    [text] = parts(result.all_messages(), TextPart)
    notes = {note["filename"]: note for note in text.provider_details["annotations"]}
    note = notes[PLOT_FILE]
    content = await model.client.containers.files.content.retrieve(
        note["file_id"], container_id=note["container_id"]
    )
    assert (result.output, image_size(content.content)) == (PLOT_ANSWER, PLOT_SIZE)


@pytest.mark.feature("files")
async def test_code_can_read_an_uploaded_file(
    model: OpenAIResponsesModel, upstream: SharedUpstream
) -> None:
    data = await model.client.files.create(file=("data.csv", b"1,2"), purpose="user_data")
    upstream.reply("```tool_code\nprint(open('/mnt/data/data.csv').read())\n```", SUM_ANSWER)
    code = NativeTool(CodeExecutionTool(files=[UploadedFile(data.id, provider_name=model.system)]))
    result = await run(Agent(model, capabilities=[code]))
    [[_, _, logs]] = steps(result.all_messages())
    assert logs == "1,2\n"
