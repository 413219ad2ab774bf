"""The Vercel AI SDK: generateText, streamText, loops over tools, Output.object."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import SharedUpstream
from tests.clients.javascript import LOOPS, TURNS, rows, ways
from tests.clients.openai_3.conftest import AskNode
from tests.clients.scenarios import ASK, FORECAST, FORECAST_VALUE, PLAIN_FORECAST

CLIENT = "Vercel AI SDK"
PACKAGES = (
    "npm:ai",
    "npm:@ai-sdk/openai-compatible",
)


@ways("create", "stream")
@pytest.mark.parametrize(("reply", "text", "calls"), rows(TURNS))
def test_a_turn_gives_calls_or_talk(
    ask_node: AskNode,
    upstream: SharedUpstream,
    way: str,
    reply: str,
    text: str | None,
    calls: list[Any],
) -> None:
    upstream.reply(reply, chunks=3)
    assert ask_node("ai_sdk", way, prompt=ASK) == {"result": {"text": text, "calls": calls}}


@ways("run", "run_streamed")
@pytest.mark.parametrize(("replies", "calls"), rows(LOOPS))
def test_the_clients_own_loop_calls_tools_until_the_model_answers(
    ask_node: AskNode, upstream: SharedUpstream, way: str, replies: list[str], calls: list[Any]
) -> None:
    upstream.reply(*replies, chunks=3)
    expected = {"text": replies[-1], "calls": calls}
    assert ask_node("ai_sdk", way, prompt=ASK) == {"result": expected}


@ways("parse", "parse_streamed")
@pytest.mark.feature("structured output")
def test_an_answer_is_an_object_of_the_schema(
    ask_node: AskNode, upstream: SharedUpstream, way: str
) -> None:
    upstream.reply(FORECAST, chunks=3)
    answer = ask_node("ai_sdk", way, prompt=ASK)
    assert answer == {"result": {"parsed": FORECAST_VALUE.model_dump()}}


def test_an_upstream_error_keeps_its_status(ask_node: AskNode, upstream: SharedUpstream) -> None:
    upstream.reply(status=401)
    assert ask_node("ai_sdk", "create", prompt=ASK)["error"]["status"] == 401


@pytest.mark.feature("structured output")
def test_without_a_schema_on_the_wire_the_answer_is_json_all_the_same(
    ask_node: AskNode, upstream: SharedUpstream
) -> None:
    upstream.reply(PLAIN_FORECAST)
    answer = ask_node("ai_sdk", "parse_json_object", prompt=ASK)
    assert answer == {"result": {"parsed": FORECAST_VALUE.model_dump()}}
