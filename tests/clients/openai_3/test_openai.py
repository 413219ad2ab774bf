"""The official Python SDK: create, stream, parse; with and without asyncio; and its accumulator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ANSWER,
    ASK,
    BOTH_CALLS,
    BOTH_CITIES,
    FORECAST,
    FORECAST_VALUE,
    MODEL,
    SILENT_BOTH,
    TURNS,
    Forecast,
    marked,
)
from tests.support.scripted import Reply
from tests.support.tools import CREATE_EVENT, GET_WEATHER

CLIENT = "openai-python 3"
PACKAGES = ("openai",)

TOOLS: list[Any] = [GET_WEATHER, CREATE_EVENT]
MESSAGES: list[Any] = [{"role": "user", "content": ASK}]
Complete = Callable[..., ChatCompletion]


def create(base_url: str, **request: Any) -> ChatCompletion:
    with openai.OpenAI(base_url=base_url, max_retries=0) as client:
        return client.chat.completions.create(model=MODEL, **request)


def stream_helper(base_url: str, **request: Any) -> ChatCompletion:
    with (
        openai.OpenAI(base_url=base_url, max_retries=0) as client,
        client.chat.completions.stream(model=MODEL, **request) as stream,
    ):
        for _ in stream:
            pass
        return stream.get_final_completion()


def accumulated(base_url: str, **request: Any) -> ChatCompletion:
    """Raw chunks through the accumulator that the SDK offers to others."""
    state: Any = ChatCompletionStreamState()
    with openai.OpenAI(base_url=base_url, max_retries=0) as client:
        for chunk in client.chat.completions.create(model=MODEL, stream=True, **request):
            state.handle_chunk(chunk)
    return state.get_final_completion()


def awaited(base_url: str, **request: Any) -> ChatCompletion:
    async def ask() -> ChatCompletion:
        async with openai.AsyncOpenAI(base_url=base_url, max_retries=0) as client:
            return await client.chat.completions.create(model=MODEL, **request)

    return asyncio.run(ask())


def awaited_stream(base_url: str, **request: Any) -> ChatCompletion:
    async def ask() -> ChatCompletion:
        state: Any = ChatCompletionStreamState()
        async with openai.AsyncOpenAI(base_url=base_url, max_retries=0) as client:
            stream = await client.chat.completions.create(model=MODEL, stream=True, **request)
            async for chunk in stream:
                state.handle_chunk(chunk)
        return state.get_final_completion()

    return asyncio.run(ask())


STREAMED = pytest.mark.feature("streaming")
EVERY_WAY = pytest.mark.parametrize(
    "complete",
    [
        create,
        awaited,
        pytest.param(stream_helper, marks=STREAMED),
        pytest.param(accumulated, marks=STREAMED),
        pytest.param(awaited_stream, marks=STREAMED),
    ],
)


def calls(completion: ChatCompletion) -> list[Any]:
    made = completion.choices[0].message.tool_calls or []
    return [
        [call.function.name, json.loads(call.function.arguments)]
        for call in made
        if call.type == "function"
    ]


@EVERY_WAY
@pytest.mark.parametrize(("reply", "text", "expected"), marked(TURNS))
def test_a_turn_gives_calls_or_talk(
    base_url: str,
    upstream: SharedUpstream,
    complete: Complete,
    reply: str,
    text: str | None,
    expected: list[Any],
) -> None:
    upstream.reply(reply, chunks=3)
    completion = complete(base_url, messages=MESSAGES, tools=TOOLS)
    choice = completion.choices[0]
    assert (choice.message.content, calls(completion)) == (text, expected)
    assert choice.finish_reason == ("tool_calls" if expected else "stop")
    assert completion.usage is None or completion.usage.total_tokens == 10


@pytest.mark.feature("result answered")
@EVERY_WAY
def test_a_result_is_answered(base_url: str, upstream: SharedUpstream, complete: Complete) -> None:
    upstream.reply(SILENT_BOTH, ANSWER)
    first = complete(base_url, messages=MESSAGES, tools=TOOLS).choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "12"}
        for call in first.tool_calls or []
    ]
    second = complete(base_url, messages=[*MESSAGES, first, *results], tools=TOOLS)
    assert (second.choices[0].message.content, calls(second)) == (ANSWER, [])


@pytest.mark.feature("structured output")
@pytest.mark.parametrize("tools", [None, [openai.pydantic_function_tool(Forecast)]])
def test_parse_gives_an_object(base_url: str, upstream: SharedUpstream, tools: Any) -> None:
    upstream.reply(FORECAST)
    extra = {"tools": tools} if tools else {}
    with openai.OpenAI(base_url=base_url, max_retries=0) as client:
        completion = client.chat.completions.parse(
            model=MODEL, messages=MESSAGES, response_format=Forecast, **extra
        )
    assert completion.choices[0].message.parsed == FORECAST_VALUE


@pytest.mark.feature("structured output")
@pytest.mark.feature("streaming")
def test_a_stream_gives_an_object(base_url: str, upstream: SharedUpstream) -> None:
    upstream.reply(FORECAST, chunks=3)
    with (
        openai.OpenAI(base_url=base_url, max_retries=0) as client,
        client.chat.completions.stream(
            model=MODEL, messages=MESSAGES, response_format=Forecast
        ) as stream,
    ):
        completion = stream.get_final_completion()
    assert completion.choices[0].message.parsed == FORECAST_VALUE


@pytest.mark.feature("structured output")
@pytest.mark.feature("streaming")
async def test_an_asynchronous_stream_gives_an_object(
    base_url: str, upstream: SharedUpstream
) -> None:
    upstream.reply(FORECAST, chunks=3)
    async with (
        openai.AsyncOpenAI(base_url=base_url, max_retries=0) as client,
        client.chat.completions.stream(
            model=MODEL, messages=MESSAGES, response_format=Forecast
        ) as stream,
    ):
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.parsed == FORECAST_VALUE


@pytest.mark.feature("structured output")
def test_parse_gives_a_calls_arguments_as_an_object(
    base_url: str, upstream: SharedUpstream
) -> None:
    upstream.reply("```tool_code\nForecast(city='London', days=[{'high': 12, 'low': 3.5}])\n```")
    with openai.OpenAI(base_url=base_url, max_retries=0) as client:
        completion = client.chat.completions.parse(
            model=MODEL, messages=MESSAGES, tools=[openai.pydantic_function_tool(Forecast)]
        )
    [call] = completion.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == FORECAST_VALUE


@pytest.mark.feature("streaming")
def test_the_stream_helper_reports_each_call_once(base_url: str, upstream: SharedUpstream) -> None:
    upstream.reply(BOTH_CITIES, chunks=3)
    with (
        openai.OpenAI(base_url=base_url, max_retries=0) as client,
        client.chat.completions.stream(model=MODEL, messages=MESSAGES, tools=TOOLS) as stream,
    ):
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    assert [(event.index, json.loads(event.arguments)) for event in done] == [
        *enumerate(BOTH_CALLS)
    ]


def test_an_upstream_error_keeps_its_class_and_message(
    base_url: str, upstream: SharedUpstream
) -> None:
    upstream.reply(status=429, headers={"retry-after": "7", "x-should-retry": "false"})
    with pytest.raises(openai.RateLimitError) as raised:
        create(base_url, messages=MESSAGES, tools=TOOLS)
    assert raised.value.response.headers["retry-after"] == "7"


def test_a_bad_request_names_the_place(base_url: str, upstream: SharedUpstream) -> None:
    bad = {"type": "function", "function": {"name": "f", "parameters": {"type": 5}}}
    with pytest.raises(openai.BadRequestError) as raised:
        create(base_url, messages=MESSAGES, tools=[GET_WEATHER, bad])
    assert raised.value.param == "tools[1].function.parameters.type"


def test_an_error_in_a_stream_is_raised(base_url: str, upstream: SharedUpstream) -> None:
    upstream.reply(Reply("Hello there", chunks=2, fault="error_event", after=2))
    with pytest.raises(openai.APIError, match="scripted failure"):
        stream_helper(base_url, messages=MESSAGES, tools=TOOLS)


def test_the_models_are_those_of_the_upstream(base_url: str, upstream: SharedUpstream) -> None:
    with openai.OpenAI(base_url=base_url, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["scripted"]
        assert client.models.retrieve("scripted").object == "model"
