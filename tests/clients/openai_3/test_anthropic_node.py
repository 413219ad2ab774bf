"""The Anthropic SDK for TypeScript: create, stream, and its tool runner, which sends threads."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.clients.conftest import SharedUpstream
from tests.clients.openai_3.conftest import AskNode, ways
from tests.clients.scenarios import ANSWER, ASK, CALLING_CELL, CALLING_RAN, LOOPS, TURNS, marked

CLIENT = "Anthropic SDK for TypeScript"
PACKAGES = ("npm:@anthropic-ai/sdk",)


@ways("create", "stream")
@pytest.mark.parametrize(("reply", "text", "calls"), marked(TURNS))
def test_a_turn_gives_calls_or_talk(
    ask_node: AskNode,
    upstream: SharedUpstream,
    way: str,
    reply: str,
    text: str | None,
    calls: list[Any],
) -> None:
    upstream.reply(reply, chunks=3)
    assert ask_node("anthropic_node", way, prompt=ASK) == {"result": {"text": text, "calls": calls}}


@ways("run", "run_streamed")
@pytest.mark.parametrize(("replies", "calls"), marked(LOOPS))
def test_the_runners_model_sees_the_whole_conversation(
    ask_node: AskNode, upstream: SharedUpstream, way: str, replies: list[str], calls: list[Any]
) -> None:
    upstream.reply(*replies, chunks=3)
    expected = {"text": replies[-1], "calls": calls}
    assert ask_node("anthropic_node", way, prompt=ASK) == {"result": expected}
    prompts = [request["messages"] for request in upstream.requests]
    assert all(later[: len(before)] == before for before, later in pairwise(prompts))


@pytest.mark.feature("functions in code")
@pytest.mark.usefixtures("interpreter")
def test_the_runner_runs_the_calls_of_code(ask_node: AskNode, upstream: SharedUpstream) -> None:
    upstream.reply(CALLING_CELL, ANSWER, chunks=3)
    _, call, (_, _, printed) = CALLING_RAN
    expected = {"text": ANSWER, "calls": [call], "printed": printed}
    assert ask_node("anthropic_node", "run_code", prompt=ASK) == {"result": expected}


def test_an_upstream_error_keeps_its_status(ask_node: AskNode, upstream: SharedUpstream) -> None:
    upstream.reply(status=401)
    assert ask_node("anthropic_node", "create", prompt=ASK)["error"]["status"] == 401
