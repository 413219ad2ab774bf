"""Instructor: its modes for OpenAI, its own repairs, parallel tools, streams of parts and of objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import instructor
import openai
import pytest
from instructor import Mode
from instructor.dsl.partial import Partial
from pydantic import BaseModel, field_validator

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ASK,
    FORECAST,
    FORECAST_CALL,
    FORECAST_VALUE,
    MODEL,
    PLAIN_FORECAST,
    PROSE,
    Day,
    Forecast,
)

CLIENT = "Instructor"
PACKAGES = ("instructor",)

MESSAGES: list[Any] = [{"role": "user", "content": ASK}]
# Mode -> what the model writes: a call of the tool that Instructor makes of the class, or JSON.
MODES = {
    Mode.TOOLS: FORECAST_CALL,
    Mode.TOOLS_STRICT: FORECAST_CALL,
    Mode.FUNCTIONS: FORECAST_CALL,
    Mode.JSON: PLAIN_FORECAST,
    Mode.JSON_O1: FORECAST,
    Mode.JSON_SCHEMA: FORECAST,
    Mode.MD_JSON: PLAIN_FORECAST,
    Mode.RESPONSES_TOOLS: FORECAST_CALL,
}
EVERY_MODE = pytest.mark.parametrize(
    ("mode", "reply"), [pytest.param(mode, reply, id=mode.name) for mode, reply in MODES.items()]
)


def same(made: BaseModel, expected: BaseModel) -> bool:
    """Instructor answers with a subclass of the class that it was given, which is no equal of it."""
    return isinstance(made, type(expected)) and made.model_dump() == expected.model_dump()


def client(base_url: str, mode: Mode) -> Any:
    connected = openai.OpenAI(base_url=base_url, max_retries=0)
    return instructor.from_openai(connected, mode=mode)


@pytest.mark.feature("structured output")
@pytest.mark.feature("single call")
@pytest.mark.feature("nested arguments")
@EVERY_MODE
def test_a_reply_is_an_object_of_the_class(
    base_url: str, upstream: SharedUpstream, mode: Mode, reply: str
) -> None:
    upstream.reply(reply)
    made = client(base_url, mode).create(model=MODEL, messages=MESSAGES, response_model=Forecast)
    assert same(made, FORECAST_VALUE)


@pytest.mark.feature("structured output")
async def test_the_asynchronous_client_works_too(base_url: str, upstream: SharedUpstream) -> None:
    upstream.reply(FORECAST_CALL)
    connected = instructor.from_openai(openai.AsyncOpenAI(base_url=base_url, max_retries=0))
    made = await connected.create(model=MODEL, messages=MESSAGES, response_model=Forecast)
    assert same(made, FORECAST_VALUE)


class Hot(Forecast):
    """The weather of some hot days."""

    @field_validator("days")
    @classmethod
    def must_be_hot(cls, days: list[Day]) -> list[Day]:
        if any(day.high < 30 for day in days):
            raise ValueError("that is not hot")
        return days


@pytest.mark.feature("result answered")
@EVERY_MODE
def test_a_value_that_the_clients_validator_refuses_is_requested_again(
    base_url: str, upstream: SharedUpstream, mode: Mode, reply: str
) -> None:
    cold = reply.replace("Forecast(", "Hot(")
    upstream.reply(cold, cold.replace("12", "31"))
    made = client(base_url, mode).create(
        model=MODEL, messages=MESSAGES, response_model=Hot, max_retries=2
    )
    assert same(made, Hot(city="London", days=[Day(high=31, low=3.5)]))
    assert "that is not hot" in str(upstream.requests[1]["messages"])


@pytest.mark.feature("single call")
def test_prose_where_a_call_is_required_never_reaches_the_client(
    base_url: str, upstream: SharedUpstream
) -> None:
    upstream.reply(PROSE, FORECAST_CALL)
    made = client(base_url, Mode.TOOLS).create(
        model=MODEL, messages=MESSAGES, response_model=Forecast, max_retries=1
    )
    assert same(made, FORECAST_VALUE)


class Weather(BaseModel):
    """Look at the weather."""

    location: str
    units: Literal["imperial", "metric"] = "metric"


class Search(BaseModel):
    """Search the web."""

    query: str


@pytest.mark.feature("parallel calls")
def test_parallel_tools_give_several_objects(base_url: str, upstream: SharedUpstream) -> None:
    upstream.reply("```tool_code\nWeather(location='Oslo')\nSearch(query='Who is Ada?')\n```")
    made = client(base_url, Mode.PARALLEL_TOOLS).create(
        model=MODEL, messages=MESSAGES, response_model=Iterable[Weather | Search]
    )
    assert list(made) == [Weather(location="Oslo"), Search(query="Who is Ada?")]


@pytest.mark.feature("streaming")
@EVERY_MODE
def test_parts_of_an_object_are_streamed(
    base_url: str, upstream: SharedUpstream, mode: Mode, reply: str
) -> None:
    upstream.reply(reply.replace("Forecast(", "PartialForecast("), chunks=3)
    parts = client(base_url, mode).create(
        model=MODEL, messages=MESSAGES, response_model=Partial[Forecast], stream=True
    )
    assert list(parts)[-1].model_dump() == FORECAST_VALUE.model_dump()


@pytest.mark.feature("streaming")
def test_several_objects_are_streamed(base_url: str, upstream: SharedUpstream) -> None:
    upstream.reply("```tool_code\nIterableDay(tasks=[Day(high=1, low=0), Day(high=2, low=1)])\n```")
    made = client(base_url, Mode.TOOLS).create_iterable(
        model=MODEL, messages=MESSAGES, response_model=Day
    )
    assert list(made) == [Day(high=1, low=0), Day(high=2, low=1)]
