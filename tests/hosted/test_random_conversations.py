"""For anything that a model writes, and any owner of its tools, each prompt begins with the one before."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import hypothesis
import openai
import pytest
from hypothesis import strategies as st

from tests.support.agents import broken_prefixes, converse
from tests.support.examples import example_count
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.programs import CHAIN, LOCAL, TOOLS
from tests.support.scripted import Reply, ScriptedUpstream

BLOCKS = [
    "book('a1')",
    "x = check('a2')",
    "x = check('a1')\nprint(x)",
    "for i in ('a1', 'a2'):\n    check(i)\nprint('end')",
    "x = search('Oslo')\nprint('seen')\nprint(x[0]['prize'])",
    "x = search('Oslo')\nprint(x)\ny = check('a2')\nbook(y)",
    "print([check('a1'), check('a2')], search('Rome'))",
    "search('Nowhere')\nbook('a1')",
    "book(identity='x')",
]
WORDS = ["Done.", "It is on time.\n\nAnything else?", "I cannot tell."]


def reply(chance: random.Random) -> Reply:
    before = chance.choice(("", "I look.\n\n", "One moment: \n"))
    block = f"{before}```tool_code\n{chance.choice(BLOCKS)}\n```"
    text = chance.choice([CHAIN, block, block, block, *WORDS])
    return Reply(text, chunks=chance.choice((None, 5)))


@pytest.mark.parametrize("order", ["auto", "dataflow"])
def test_each_prompt_begins_with_the_one_before(
    start_proxy: Any, upstream: ScriptedUpstream, order: str
) -> None:
    server = HostedFunctions(LOCAL, [])
    client = openai.OpenAI(
        base_url=start_proxy(
            hosted=server,
            order=order,
        ),
        api_key="k",
        max_retries=0,
    )

    @hypothesis.settings(max_examples=example_count(25))
    @hypothesis.given(seed=st.integers(0, 2**32))
    def converse_at_random(seed: int) -> None:
        chance = random.Random(seed)
        upstream.default = lambda _: reply(chance)
        server.definitions = [tool for tool in TOOLS if chance.random() < 0.6]
        own = [tool for tool in TOOLS if tool not in server.definitions]
        before = len(upstream.requests)
        with suppress(openai.InternalServerError, KeyError):  # it may give up on such a model
            spoken = [f"Question {n} of {seed}." for n in range(3)]
            converse(client, spoken, tools=[*own, SERVER], local=LOCAL, turns=40)
        assert broken_prefixes(upstream.requests[before:]) == []

    converse_at_random()
