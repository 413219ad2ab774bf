"""Agents on LangGraph: LangChain's create_agent and LangGraph's own prebuilt one, over several turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ANSWER,
    ASK,
    FORECAST,
    FORECAST_CALL,
    FORECAST_VALUE,
    LONDON,
    LOOPS,
    MODEL,
    SILENT_BOTH,
    TWO,
    Forecast,
    create_event,
    get_weather,
    marked,
    send_mail,
)

CLIENT = "LangGraph"
PACKAGES = ("langgraph", "langchain")

TOOLS: list[Any] = [tool(get_weather), tool(create_event), tool(send_mail)]
QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": ASK}]}


@pytest.fixture
def model(base_url: str) -> ChatOpenAI:
    return ChatOpenAI(model=MODEL, base_url=base_url, max_retries=0)


def prebuilt(model: ChatOpenAI) -> Any:
    # LangGraph calls it deprecated; it is what most agents in the field are made with.
    with pytest.warns(DeprecationWarning):
        return create_react_agent(model, TOOLS)


def created(model: ChatOpenAI) -> Any:
    return create_agent(model, TOOLS)


def invoke(agent: Any) -> list[Any]:
    return agent.invoke(QUESTION)["messages"]


def stream(agent: Any) -> list[Any]:
    """The messages after the last step, with the model streamed token by token."""
    messages: list[Any] = []
    for mode, item in agent.stream(QUESTION, stream_mode=["messages", "values"]):
        if mode == "values":
            messages = item["messages"]
    return messages


EITHER_AGENT = pytest.mark.parametrize("make", [created, prebuilt])
EITHER = pytest.mark.parametrize(
    "run", [invoke, pytest.param(stream, marks=pytest.mark.feature("streaming"))]
)


def calls(messages: list[Any]) -> list[Any]:
    return [
        [call["name"], call["args"]]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]


@EITHER_AGENT
@EITHER
@pytest.mark.parametrize(("replies", "expected"), marked(LOOPS))
def test_an_agent_calls_its_tools_until_it_answers(
    model: ChatOpenAI,
    upstream: SharedUpstream,
    make: Callable[[ChatOpenAI], Any],
    run: Callable[[Any], list[Any]],
    replies: list[str],
    expected: Any,
) -> None:
    upstream.reply(*replies, chunks=4)
    messages = run(make(model))
    assert calls(messages) == expected
    assert messages[-1].content == replies[-1]
    results = [message for message in messages if isinstance(message, ToolMessage)]
    assert [message.status for message in results] == ["success"] * len(expected)


@EITHER_AGENT
@pytest.mark.feature("streaming")
def test_the_answer_comes_token_by_token(
    model: ChatOpenAI, upstream: SharedUpstream, make: Callable[[ChatOpenAI], Any]
) -> None:
    upstream.reply(LONDON, ANSWER, chunks=4, delay=0.03)
    pieces = [
        message.content
        for message, _ in make(model).stream(QUESTION, stream_mode="messages")
        if isinstance(message, AIMessageChunk) and message.content
    ]
    assert (len(pieces) > 3, "".join(pieces)) == (True, ANSWER)


@EITHER
@pytest.mark.feature("structured output")
@pytest.mark.parametrize(
    ("strategy", "reply"),
    [(ProviderStrategy(Forecast), FORECAST), (ToolStrategy(Forecast), FORECAST_CALL)],
    ids=["ProviderStrategy", "ToolStrategy"],
)
def test_an_agents_answer_is_an_object_of_the_class(
    model: ChatOpenAI, upstream: SharedUpstream, run: Any, strategy: Any, reply: str
) -> None:
    # ProviderStrategy makes the tools strict, which have no optional arguments.
    upstream.reply('get_weather(location="London", unit="celsius")', reply, chunks=4)
    agent = create_agent(model, TOOLS, response_format=strategy)
    if run is invoke:
        state = agent.invoke(QUESTION)
    else:
        *_, state = agent.stream(QUESTION, stream_mode="values")
    assert state["structured_response"] == FORECAST_VALUE


@pytest.mark.feature("structured output")
def test_the_prebuilt_agents_last_turn_has_a_form(
    model: ChatOpenAI, upstream: SharedUpstream
) -> None:
    upstream.reply(LONDON, ANSWER, FORECAST)
    with pytest.warns(DeprecationWarning):
        agent = create_react_agent(model, TOOLS, response_format=Forecast)
    assert agent.invoke(QUESTION)["structured_response"] == FORECAST_VALUE


async def test_an_agent_works_asynchronously(model: ChatOpenAI, upstream: SharedUpstream) -> None:
    upstream.reply(SILENT_BOTH, ANSWER)
    state = await created(model).ainvoke(QUESTION)
    assert (calls(state["messages"]), state["messages"][-1].content) == (TWO, ANSWER)
