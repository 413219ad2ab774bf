"""LangChain's ChatOpenAI over both APIs: bind_tools, with_structured_output in its three methods, streams."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.conftest import SharedUpstream
from tests.clients.langchain import EITHER, invoke, stream
from tests.clients.scenarios import (
    ANSWER,
    ASK,
    FORECAST,
    FORECAST_CALL,
    FORECAST_VALUE,
    LONDON,
    LONDON_CALL,
    MODEL,
    ONE,
    PROSE,
    SILENT_BOTH,
    TURNS,
    TWO,
    Forecast,
    create_event,
    get_weather,
    marked,
)

CLIENT = "LangChain"
PACKAGES = ("langchain", "langchain-openai", "langchain-anthropic")

TOOLS: list[Any] = [tool(get_weather), tool(create_event)]


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def model(base_url: str, request: pytest.FixtureRequest) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL, base_url=base_url, max_retries=0, use_responses_api=request.param
    )


def calls(message: AIMessage) -> list[Any]:
    assert message.invalid_tool_calls == []
    return [[call["name"], call["args"]] for call in message.tool_calls]


@EITHER
@pytest.mark.parametrize(("reply", "text", "expected"), marked(TURNS))
def test_a_model_with_bound_tools_calls_them_or_talks(
    model: ChatOpenAI,
    upstream: SharedUpstream,
    ask: Any,
    reply: str,
    text: str | None,
    expected: Any,
) -> None:
    upstream.reply(reply, chunks=3)
    message = ask(model.bind_tools(TOOLS), ASK)
    assert (message.text or None, calls(message)) == (text, expected)


@EITHER
@pytest.mark.feature("result answered")
def test_results_are_answered(model: ChatOpenAI, upstream: SharedUpstream, ask: Any) -> None:
    upstream.reply(SILENT_BOTH, ANSWER)
    bound = model.bind_tools(TOOLS)
    first = ask(bound, ASK)
    results = [ToolMessage("12", tool_call_id=call["id"]) for call in first.tool_calls]
    history: list[BaseMessage] = [HumanMessage(ASK), first, *results]
    assert ask(bound, history).text == ANSWER


@EITHER
@pytest.mark.feature("single call")
@pytest.mark.parametrize("choice", ["any", "get_weather"])
def test_a_forced_call_is_asked_for_until_it_comes(
    model: ChatOpenAI, upstream: SharedUpstream, ask: Any, choice: str
) -> None:
    upstream.reply(PROSE, LONDON)
    message = ask(model.bind_tools(TOOLS, tool_choice=choice), ASK)
    assert (message.text, calls(message)) == ("", ONE)


METHODS = [("json_schema", FORECAST), ("function_calling", FORECAST_CALL), ("json_mode", FORECAST)]


@pytest.mark.feature("structured output")
@EITHER
@pytest.mark.parametrize(("method", "reply"), METHODS)
def test_structured_output_is_an_object_of_the_class(
    model: ChatOpenAI, upstream: SharedUpstream, ask: Any, method: Any, reply: str
) -> None:
    upstream.reply(reply, chunks=3)
    structured = model.with_structured_output(Forecast, method=method)
    if ask is stream:
        assert list(structured.stream(ASK))[-1] == FORECAST_VALUE
    else:
        assert structured.invoke(ASK) == FORECAST_VALUE


@pytest.mark.feature("structured output")
def test_structured_output_goes_with_tools(model: ChatOpenAI, upstream: SharedUpstream) -> None:
    # Strict tools have no optional arguments.
    upstream.reply('get_weather(location="London", unit="celsius")', FORECAST)
    structured = model.with_structured_output(
        Forecast, method="json_schema", include_raw=True, tools=TOOLS, strict=True
    )
    first: Any = structured.invoke(ASK)
    assert calls(first["raw"]) == [["get_weather", {**LONDON_CALL, "unit": "celsius"}]]
    result = ToolMessage("12", tool_call_id=first["raw"].tool_calls[0]["id"])
    second: Any = structured.invoke([HumanMessage(ASK), first["raw"], result])
    assert (second["parsed"], second["parsing_error"]) == (FORECAST_VALUE, None)


async def test_the_asynchronous_side_works_too(model: ChatOpenAI, upstream: SharedUpstream) -> None:
    upstream.reply(SILENT_BOTH, SILENT_BOTH)
    bound = model.bind_tools(TOOLS)
    assert calls(await bound.ainvoke(ASK)) == TWO
    chunks = [chunk async for chunk in bound.astream(ASK)]
    message: Any = chunks[0]
    for chunk in chunks[1:]:
        message += chunk
    assert calls(message) == TWO


def test_the_client_reads_the_number_of_tokens(base_url: str, upstream: SharedUpstream) -> None:
    upstream.reply(PROSE, PROSE)
    model = ChatOpenAI(model=MODEL, base_url=base_url, max_retries=0, stream_usage=True)
    bound = model.bind_tools(TOOLS)
    for message in (invoke(bound, ASK), stream(bound, ASK)):
        assert message.usage_metadata
        assert message.usage_metadata["total_tokens"] == 10
