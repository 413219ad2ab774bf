"""openai-node, the official JavaScript SDK: create, stream, runTools, parse, and Responses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import SharedUpstream
from tests.clients.javascript import LOOPS, TURNS, rows, ways
from tests.clients.openai_3.conftest import AskNode
from tests.clients.scenarios import ASK, FORECAST, FORECAST_VALUE

CLIENT = "openai-node"
PACKAGES = ("npm:openai",)


@ways("create", "stream", "respond", "respond_streamed")
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
    assert ask_node("openai_node", way, prompt=ASK) == {"result": {"text": text, "calls": calls}}


@ways("run", "run_streamed", "converse", "converse_streamed")
@pytest.mark.parametrize(("replies", "calls"), rows(LOOPS))
def test_the_clients_own_loop_calls_tools_until_the_model_answers(
    ask_node: AskNode, upstream: SharedUpstream, way: str, replies: list[str], calls: list[Any]
) -> None:
    upstream.reply(*replies, chunks=3)
    expected = {"text": replies[-1], "calls": calls}
    assert ask_node("openai_node", way, prompt=ASK) == {"result": expected}


@ways("parse", "parse_streamed", "respond_parsed", "respond_parsed_streamed")
@pytest.mark.feature("structured output")
def test_an_answer_is_an_object_of_the_schema(
    ask_node: AskNode, upstream: SharedUpstream, way: str
) -> None:
    upstream.reply(FORECAST, chunks=3)
    answer = ask_node("openai_node", way, prompt=ASK)
    assert answer == {"result": {"parsed": FORECAST_VALUE.model_dump()}}


def test_an_upstream_error_keeps_its_status(ask_node: AskNode, upstream: SharedUpstream) -> None:
    upstream.reply(status=401)
    assert ask_node("openai_node", "create", prompt=ASK)["error"]["status"] == 401
