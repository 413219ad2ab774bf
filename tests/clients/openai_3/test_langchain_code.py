"""LangChain's ChatOpenAI over Responses with code_interpreter bound: invoke, stream, turns, create_agent; and
ChatAnthropic's code that calls functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.conftest import SharedUpstream
from tests.clients.langchain import EITHER
from tests.clients.scenarios import (
    ANSWER,
    ASK,
    AUTO,
    CALLING_CELL,
    CALLING_RAN,
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

CLIENT = "LangChain"
PACKAGES = ("langchain", "langchain-openai", "langchain-anthropic")

WEATHER: Any = tool(get_weather)
Connect = Callable[..., ChatOpenAI]
# LangChain's own shape of messages, and the one that all of its providers share.
EITHER_SHAPE = pytest.mark.parametrize("shape", [None, "v1"], ids=["responses shape", "v1 shape"])


@pytest.fixture
def connect(interpreter: str) -> Connect:
    def model(**options: Any) -> ChatOpenAI:
        options = {"use_responses_api": True, "include": [OUTPUTS], "max_retries": 0} | options
        return ChatOpenAI(model=MODEL, base_url=interpreter, **options)

    return model


def steps(messages: list[BaseMessage]) -> list[Any]:
    made: list[Any] = []
    for block in [block for message in messages for block in message.content_blocks]:
        match block:
            case {"type": "server_tool_call", "name": name, "args": {"code": code}}:
                made.append([name, code, ""])
            case {"type": "server_tool_result", "output": output}:
                made[-1][2] = "".join(one["logs"] for one in output)
            case {"type": "tool_call", "name": name, "args": arguments}:
                made.append([name, arguments])
    return made


def turn(ask: Any, bound: Any, history: list[BaseMessage]) -> AIMessage:
    """Ask until the model answers; ``history`` grows by all that was said."""
    while True:
        message = ask(bound, history)
        history.append(message)
        if not message.tool_calls:
            return message
        history += [WEATHER.invoke(call) for call in message.tool_calls]


@EITHER
@EITHER_SHAPE
@pytest.mark.parametrize(("replies", "expected"), marked(CODE_RUNS))
def test_code_runs_and_calls_functions(
    connect: Connect,
    container: str,
    upstream: SharedUpstream,
    ask: Any,
    shape: str | None,
    replies: list[str],
    expected: list[Any],
) -> None:
    upstream.reply(*replies, chunks=3)
    tools = [AUTO | {"container": container}, WEATHER]
    history: list[BaseMessage] = [HumanMessage(ASK)]
    answer = turn(ask, connect(output_version=shape).bind_tools(tools), history)
    assert (steps(history), answer.text) == (expected, replies[-1])
    assert answer.usage_metadata
    assert answer.usage_metadata["total_tokens"] > 0


@pytest.mark.feature("code over turns")
@EITHER
@pytest.mark.parametrize(
    "options",
    [{}, {"output_version": "v1"}, {"store": False}, {"use_previous_response_id": True}],
    ids=["sent back", "v1 shape", "not stored", "kept"],
)
def test_a_conversation_keeps_its_variables(
    connect: Connect, upstream: SharedUpstream, ask: Any, options: dict[str, Any]
) -> None:
    bound = connect(**options).bind_tools([AUTO])
    history: list[BaseMessage] = []
    for replies, ran in CODE_TURNS:
        upstream.reply(*replies, chunks=3)
        history.append(HumanMessage(ASK))
        answer = turn(ask, bound, history)
        assert (steps([answer]), answer.text) == (ran, replies[-1])


@pytest.mark.feature("functions in code")
@pytest.mark.feature("code over turns")
@EITHER
@EITHER_SHAPE
def test_the_output_of_a_resumed_cell_is_in_the_history(
    connect: Connect, container: str, upstream: SharedUpstream, ask: Any, shape: str | None
) -> None:
    upstream.reply(CALLING_CELL, ANSWER, "Yes.", chunks=3)
    tools = [AUTO | {"container": container}, WEATHER]
    bound = connect(output_version=shape).bind_tools(tools)
    history: list[BaseMessage] = [HumanMessage(ASK)]
    turn(ask, bound, history)
    history.append(HumanMessage("Sure?"))
    assert turn(ask, bound, history).text == "Yes."
    assert upstream.outputs_told() == [CALLING_RAN[-1][-1]]


@pytest.mark.feature("code interpreter")
@pytest.mark.feature("structured output")
def test_structured_output_comes_after_code(
    connect: Connect, container: str, upstream: SharedUpstream
) -> None:
    upstream.reply(SUM, FORECAST)
    structured = connect().with_structured_output(
        Forecast, include_raw=True, tools=[AUTO | {"container": container}]
    )
    told: Any = structured.invoke(ASK)
    assert (steps([told["raw"]]), told["parsed"]) == ([SUM_RAN], FORECAST_VALUE)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("replies", "expected"), marked(CODE_RUNS))
def test_an_agent_runs_code_and_calls_functions(
    connect: Connect,
    container: str,
    upstream: SharedUpstream,
    streamed: bool,
    replies: list[str],
    expected: list[Any],
) -> None:
    upstream.reply(*replies, chunks=3)
    agent = create_agent(connect(), [AUTO | {"container": container}, WEATHER])
    given: Any = {"messages": [HumanMessage(ASK)]}
    if streamed:
        *_, state = agent.stream(given, stream_mode="values")
    else:
        state = agent.invoke(given)
    messages = state["messages"]
    assert (steps(messages), messages[-1].text) == (expected, replies[-1])


@pytest.mark.feature("files")
@pytest.mark.usefixtures("matplotlib")
@EITHER
def test_a_plot_is_cited_and_fetched(connect: Connect, upstream: SharedUpstream, ask: Any) -> None:
    upstream.reply(PLOT, PLOT_ANSWER, chunks=3)
    model = connect()
    message = ask(model.bind_tools([AUTO]), ASK)
    assert message.text == PLOT_ANSWER
    notes = {
        note["value"]["filename"]: note["value"]
        for block in message.content_blocks
        for note in block.get("annotations", [])
    }
    with openai.OpenAI(base_url=model.openai_api_base) as client:
        note = notes[PLOT_FILE]
        content = client.containers.files.content.retrieve(
            note["file_id"], container_id=note["container_id"]
        )
        assert image_size(content.read()) == PLOT_SIZE


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.feature("functions in code")
def test_an_agents_code_calls_functions_over_messages(
    interpreter: str, upstream: SharedUpstream, stream: bool
) -> None:
    """The agent sends the calls' callers and the container back."""
    upstream.reply(CALLING_CELL, ANSWER, chunks=3)
    url = interpreter.removesuffix("/v1")
    model: Any = ChatAnthropic(
        model_name=MODEL, base_url=url, api_key="k", max_retries=0, streaming=stream,
        reuse_last_container=True,
    )  # fmt: skip
    version = "code_execution_20260120"
    weather: Any = tool(get_weather, extras={"allowed_callers": [version]})
    agent = create_agent(model, [{"type": version, "name": "code_execution"}, weather])
    *_, called, _, answer = agent.invoke({"messages": [HumanMessage(ASK)]})["messages"]
    assert [call["args"] for call in called.tool_calls] == [CALLING_RAN[1][1]]
    assert called.content[-1]["caller"]["tool_id"] == called.content[0]["id"]
    result, text = answer.content
    assert result["tool_use_id"] == called.content[0]["id"]
    assert (result["content"]["stdout"], text["text"]) == (CALLING_RAN[2][2], ANSWER)
    first, second = (request["messages"] for request in upstream.requests)
    assert second[: len(first)] == first
