"""smolagents' ToolCallingAgent, whose history is text and whose every answer is a tool call."""

from __future__ import annotations

from typing import Any

import pytest
from smolagents import OpenAIModel, ToolCallingAgent, tool
from smolagents.memory import ActionStep
from smolagents.models import ChatMessage, MessageRole, agglomerate_stream_deltas

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import (
    ANSWER,
    ASK,
    BOTH_CALLS,
    BOTH_CITIES,
    CHAIN,
    LONDON,
    LONDON_CALL,
    MODEL,
    PROSE,
    SILENT_BOTH,
    get_weather,
    send_mail,
)

CLIENT = "smolagents"
PACKAGES = ("smolagents",)

FINAL = f"```tool_code\nfinal_answer({ANSWER!r})\n```"


@tool
def create_event(title: str, place: dict, guests: list) -> str:
    """Put an event into the calendar.

    Args:
        title: What it is
        place: Where it is
        guests: Who comes
    """
    return f"{title} in {place['city']} with {len(guests)} guests"


TOOLS: list[Any] = [tool(get_weather), tool(send_mail), create_event]


@pytest.fixture
def model(base_url: str) -> OpenAIModel:
    return OpenAIModel(MODEL, api_base=base_url, client_kwargs={"max_retries": 0})


def agent(model: OpenAIModel, *, streamed: bool) -> ToolCallingAgent:
    return ToolCallingAgent(
        TOOLS, model, stream_outputs=streamed, verbosity_level=-1, max_steps=6, max_tool_threads=1
    )


def calls(made: ToolCallingAgent) -> list[tuple[str, Any]]:
    """What was called, in the order of the ids: smolagents sorts the calls of a step by them."""
    return [
        (call.name, call.arguments)
        for step in made.memory.steps
        if isinstance(step, ActionStep)
        for call in step.tool_calls or []
        if call.name != "final_answer"
    ]


EITHER = pytest.mark.parametrize(
    "streamed", [False, pytest.param(True, marks=pytest.mark.feature("streaming"))]
)
WEATHER_CALLS = [("get_weather", arguments) for arguments in BOTH_CALLS]
EVENT = "create_event(title='Tea', place={'city': 'Oslo'}, guests=[{'name': 'Ada'}])"
EVENT_CALL = {"title": "Tea", "place": {"city": "Oslo"}, "guests": [{"name": "Ada"}]}
MAIL = "Now: 12 degrees celsius in London"
RUNS = [
    (["single call", "result answered"], [LONDON, FINAL], [("get_weather", LONDON_CALL)]),
    (["parallel calls", "result answered"], [SILENT_BOTH, FINAL], WEATHER_CALLS),
    (["parallel calls", "result answered"], [BOTH_CITIES, FINAL], WEATHER_CALLS),
    (["nested arguments"], [EVENT, FINAL], [("create_event", EVENT_CALL)]),
    (
        ["several tool turns"],
        [LONDON, SILENT_BOTH, FINAL],
        [("get_weather", LONDON_CALL), *WEATHER_CALLS],
    ),
    # The history that comes back is text without call ids, so no program can go on: the model is asked.
    (
        ["several tool turns"],
        [CHAIN, f"send_mail(to='ada@example.org', body={MAIL!r})", FINAL],
        [("get_weather", LONDON_CALL), ("send_mail", {"to": "ada@example.org", "body": MAIL})],
    ),
    # Every answer must be a call; the model that only talks is asked again, and the agent never sees it.
    (["prose"], [PROSE, FINAL], []),
]


@EITHER
@pytest.mark.parametrize(
    ("replies", "expected"),
    [pytest.param(*row[1:], marks=[pytest.mark.feature(name) for name in row[0]]) for row in RUNS],
)
def test_an_agent_calls_its_tools_until_it_answers(
    model: OpenAIModel, upstream: SharedUpstream, streamed: bool, replies: list[str], expected: Any
) -> None:
    upstream.reply(*replies, chunks=3)
    made = agent(model, streamed=streamed)
    assert (made.run(ASK), calls(made)) == (ANSWER, expected)


@pytest.mark.feature("prose")
def test_a_plain_generation_is_prose(model: OpenAIModel, upstream: SharedUpstream) -> None:
    upstream.reply(PROSE, PROSE, chunks=3)
    asked = [ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": ASK}])]
    streamed = agglomerate_stream_deltas(list(model.generate_stream(asked)))
    assert (model.generate(asked).content, streamed.content) == (PROSE, PROSE)
