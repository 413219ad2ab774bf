"""Each prompt begins with the bytes of the one before, on every front, whatever the answers hide."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.hosted.test_fronts import LOOPS
from tests.hosted.test_hosted_calls import block, connect, hosted
from tests.support.agents import broken_prefixes
from tests.support.examples import example_count
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.programs import CHAIN, INTERPRETER, LOCAL, TOOLS
from tests.support.scripted import Reply, ScriptedUpstream

SEARCH, BOOK, CHECK = TOOLS


class ChatLoop:
    """An agent over chat completions."""

    def __init__(self, url: str, tools: list[Any], local: Any, other: str) -> None:
        self._clients = itertools.cycle([connect(url), connect(other)])
        self._tools = tools
        self._local = local
        self._messages: list[Any] = []

    def say(self, text: str) -> str:
        self._messages.append({"role": "user", "content": text})
        while True:
            client, request = next(self._clients), {"model": "m", "messages": self._messages}
            completion = client.chat.completions.create(**request, tools=self._tools)
            answer = completion.choices[0].message
            self._messages.append(answer.model_dump(exclude_none=True))
            if not answer.tool_calls:
                return answer.content or ""
            for call in answer.tool_calls:
                assert call.type == "function"
                value = self._local[call.function.name](**json.loads(call.function.arguments))
                content = value if isinstance(value, str) else json.dumps(value)
                self._messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


FRONTS: dict[str, Any] = {"chat": ChatLoop, **LOOPS}
REPLIES: dict[str, list[str]] = {
    "words": [],
    "a program": [CHAIN],
    "words and calls": ["I look.\n\n" + block("check('a1')\ncheck('a2')")],
    "a program that fails": [block("x = search('Oslo')\nprint('seen')\nprint(x[0]['prize'])")],
    "a repaired call": [block("chek('a1')"), block("check('a1')")],
    "a reply that was no use": [block("book(identity='x')"), ""],
    "a new file": [block("open('numbers.csv', 'w').write('1')\nprint(len('ok'))")],
    "a block without a call": [block("print(6 * 7)")],
    "an unmarked call": ['{"name": "check", "arguments": {"id": "a1"}}'],
    "two programs": [block("print(check('a1'))"), block("print(search('Rome'))")],
    "an unlabelled block": ["```python\nprint(check('a2'))\n```", "RUN"],
}
"""The model's replies before its answer, by what they are."""
TOOL_SETS: dict[str, tuple[list[Any], list[Any]]] = {
    "the client's tools": ([SEARCH, BOOK, CHECK], []),
    "hosted and the client's": ([BOOK], [SEARCH, CHECK]),
    "hosted": ([], [SEARCH, BOOK, CHECK]),
    "an interpreter": ([SEARCH, BOOK, CHECK, INTERPRETER], []),
    "an interpreter and hosted": ([BOOK, INTERPRETER], [SEARCH, CHECK]),
}
"""The client's tools, and the hosted ones."""


def reply(replies: Iterator[str], chunks: int | None, exchange: Any) -> Reply:
    return Reply(next(replies, "All right."), chunks=chunks)


@pytest.mark.parametrize("tools", TOOL_SETS)
@pytest.mark.parametrize("front", FRONTS)
def test_each_prompt_begins_with_the_one_before(
    start_proxy: Any, upstream: ScriptedUpstream, tmp_path: Path, front: str, tools: str
) -> None:
    """Two replicas answer in turns."""
    own, theirs = TOOL_SETS[tools]
    server = hosted(*theirs) if theirs else HostedFunctions({}, [])
    store = str(tmp_path / "store.sqlite")
    replicas = [start_proxy(hosted=server, database=store) for _ in range(2)]
    offered = [*own, *([SERVER] if theirs else [])]

    # Each conversation with an interpreter keeps a kernel.
    @hypothesis.settings(max_examples=example_count(2 if INTERPRETER in own else 6))
    @hypothesis.given(seed=st.integers(0, 2**32))
    def converse_at_random(seed: int) -> None:
        chance, number = random.Random(seed), next(numbers)
        agent = FRONTS[front](replicas[0], offered, LOCAL, other=replicas[1])
        before = len(upstream.requests)
        for n, kind in enumerate(chance.choices([*REPLIES], k=5)):
            replies, chunks = iter(REPLIES[kind]), chance.choice((None, 5))
            upstream.default = partial(reply, replies, chunks)
            agent.say(f"Question {n} of {number}.")
        assert broken_prefixes(upstream.requests[before:]) == []

    numbers = itertools.count()
    converse_at_random()
