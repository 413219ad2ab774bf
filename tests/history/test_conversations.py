"""An agent's conversation is the same prompts and calls over every API and with every history, and each
prompt begins with the one before."""

from __future__ import annotations

import itertools
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.conftest import StartProxy
from tests.support.agents import broken_prefixes
from tests.support.examples import example_count
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.three_apis import PATHS, fetch
from tests.support.tools import function, strings

Json = dict[str, Any]
NUMBER: Json = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = {
    "get_weather": function("get_weather", strings("city")),
    "book": function("book", NUMBER),
    "search": function("search", strings("q")),
    "add": function("add", NUMBER),
}
SYSTEM = {"role": "system", "content": "S."}
CITIES = ("Oslo", "São", "x y")
INTERPRETER: Json = {"type": "code_interpreter", "container": {"type": "auto"}}
MOST_REQUESTS = 40


def run(name: str, arguments: Json) -> str:
    """A tool's result; "x y" and odd numbers fail."""
    if name in ("get_weather", "search"):
        city = next(iter(arguments.values()))
        return "Error: no such city" if city == "x y" else json.dumps({"degrees": len(city)})
    n = int(arguments["n"])
    return f"Error: {n} is odd" if n % 2 else str(n + 2)


def raising(name: str) -> Callable[..., str]:
    def call(**arguments: Any) -> str:
        result = run(name, arguments)
        if result.startswith("Error: "):
            raise ValueError(result)
        return result

    return call


def statement(dice: random.Random) -> str:
    city, n = dice.choice(CITIES), dice.randint(0, 5)
    return dice.choice(
        (
            f"get_weather(city={city!r})",
            f"x = search(q={city!r})",
            f"x = get_weather(city={city!r})\nprint(x['degrees'])",
            f"add(n={n})",
            f"y = book(n=add(n={n}))\nprint(y)",
            "for k in [2, 4]:\n    z = book(n=k)\nprint('all', z)",
            f"try:\n    book(n={n})\nexcept Exception as error:\n    print('failed', error)",
            f"print([get_weather(city='Oslo'), search(q={city!r})])",
            f"print('only {n}')",
            f"w = search(q={city!r})\nif w['degrees'] > 3:\n    print(get_weather(city={city!r}))",
        )
    )


MISTAKES = ("```tool_code\nget_weather(town='Oslo')\n```", "```tool_code\nbook(n='two'\n```")


def program_reply(dice: random.Random) -> Reply:
    """A turn of the model: words, a program in some syntax, with thoughts or prose, or a mistake."""
    code = "\n".join(statement(dice) for _ in range(dice.choice((1, 1, 2))))
    block = f"```tool_code\n{code}\n```"
    text = dice.choice(
        (
            "It is done.",
            "Well.\n\nNothing more to say.",
            block,
            block,
            f"Let me see.\n\n{block}",
            f"{block}\n\nThat is all.",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
            '<tool_call>\n{"name": "search", "arguments": {"q": "Oslo"}}\n</tool_call>',
            *MISTAKES,
            "```python\nbook(n=2)\n```\n\nShall I?",
            '{"name": "book", "arguments": {"n": 4}}',
        )
    )
    # In one piece: of a refused reply the model is shown what had arrived, which is a matter of time.
    return Reply(text, reasoning=dice.choice(("", "", "I think.")))


def native_reply(dice: random.Random) -> Reply:
    """Calls of the upstream's own, of client and proxy in one message."""
    if dice.random() < 0.4:
        return program_reply(dice)
    calls = []
    for _ in range(dice.choice((1, 1, 2, 3))):
        name, parameter = dice.choice(
            (("get_weather", "city"), ("search", "q"), ("add", "n"), ("book", "n"))
        )
        value = dice.randint(0, 5) if parameter == "n" else dice.choice(CITIES)
        calls.append({"name": name, "arguments": {parameter: value}, "id": f"c{dice.random()}"})
    words, thoughts = dice.choice(("", "Let me see.")), dice.choice(("", "I think."))
    return Reply(words, reasoning=thoughts, tool_calls=calls, finish_reason="tool_calls")


CELL_LINES = (
    "print(1 + 1)",
    "q = 5\nq",
    "w = get_weather(city='Oslo')\nprint(w)",
    "s = search(q='Oslo')\nprint(s)",
    "1/0",
    "print(book(n=2))",
)


def cell_reply(dice: random.Random) -> Reply:
    """A cell, which no later one needs: over chat a conversation may lose its container."""
    if dice.random() < 0.5:
        return program_reply(dice)
    code = "\n".join(dice.choices(CELL_LINES, k=dice.choice((1, 2))))
    words = dice.choice(("", "Let me see.\n\n"))
    return Reply(f"{words}```python\n{code}\n```", reasoning=dice.choice(("", "I think.")))


def piece_reply(dice: random.Random) -> Reply:
    """A cell that writes a file, or another turn; perhaps in pieces."""
    code = "open('numbers.csv', 'w').write('1')\nprint('written')"
    reply = Reply(f"```tool_code\n{code}\n```") if dice.random() < 0.2 else cell_reply(dice)
    return replace(reply, chunks=dice.choice((None, 5)))


class Ended(Exception):
    """The model's replies were unusable to the last attempt."""


class Agent(ABC):
    """A loop over one API. ``calls_run`` are the client's calls that it ran."""

    api = ""

    def __init__(
        self, replicas: Sequence[str], key: str, tools: list[Json], *, runs_code: bool
    ) -> None:
        """The ``replicas`` answer in turns."""
        self._urls, self._key = itertools.cycle(replicas), key
        self._tools, self._runs_code = tools, runs_code
        self.calls_run: list[tuple[str, Json]] = []
        self.history: list[Json] = []

    def say(self, text: str) -> None:
        """Ask, and make all calls, until the answer is words. Raises `Ended`."""
        self.add([{"role": "user", "content": text}])
        for _ in range(MOST_REQUESTS):
            calls = self.answer()
            if not calls:
                return
            results = []
            for key, name, arguments in calls:
                self.calls_run.append((name, arguments))
                result = run(name, arguments)
                results.append((key, result, result.startswith("Error: ")))
            self.add(self.as_sent(results))

    def ask(self, body: Json, path: str = "") -> Json:
        body = body if path else {"model": "m", **body}
        headers = {"authorization": f"Bearer {self._key}"}
        status, _, raw = fetch(next(self._urls) + (path or PATHS[self.api]), body, headers)
        answer: Json = json.loads(raw)
        if status == 502:
            raise Ended
        assert status == 200, answer
        return answer

    def add(self, parts: list[Json]) -> None:
        self.history += parts

    @abstractmethod
    def as_sent(self, results: list[tuple[str, str, bool]]) -> list[Json]:
        """The results, each with its call's id and whether it is a failure, as this API has them."""

    @abstractmethod
    def answer(self) -> list[tuple[str, str, Json]]:
        """Ask; return the calls of the answer."""


class ChatAgent(Agent):
    api = "chat"

    def as_sent(self, results: list[tuple[str, str, bool]]) -> list[Json]:
        return [
            {"role": "tool", "tool_call_id": key, "content": text, "is_error": failed}
            for key, text, failed in results
        ]

    def answer(self) -> list[tuple[str, str, Json]]:
        tools = [*self._tools, SERVER, *([INTERPRETER] if self._runs_code else ())]
        answer = self.ask({"messages": [SYSTEM, *self.history], "tools": tools})
        message = answer["choices"][0]["message"]
        self.history.append({name: value for name, value in message.items() if value is not None})
        calls = [(c["id"], c["function"]) for c in message.get("tool_calls") or ()]
        return [(key, made["name"], json.loads(made["arguments"])) for key, made in calls]


class ResponsesAgent(Agent):
    """Sends all items back."""

    api = "responses"
    last = ""
    answered = 0
    """The length of the history with the last answer."""

    @property
    def new(self) -> list[Json]:
        return self.history[self.answered :]

    def sent_input(self) -> Json:
        return {"input": self.history, "store": False}

    def as_sent(self, results: list[tuple[str, str, bool]]) -> list[Json]:
        return [
            {
                "type": "function_call_output",
                "call_id": key,
                "output": text,
                "status": "incomplete" if failed else "completed",
            }
            for key, text, failed in results
        ]

    def answer(self) -> list[tuple[str, str, Json]]:
        tools = [{"type": "function", "strict": False, **one["function"]} for one in self._tools]
        body: Json = {"instructions": "S.", "tools": [*tools, SERVER]}
        if self._runs_code:
            body["tools"].append(INTERPRETER)
            body["include"] = ["code_interpreter_call.outputs"]
        answer = self.ask(body | self.sent_input())
        self.last = answer["id"]
        self.history += answer["output"]
        self.answered = len(self.history)
        return [
            (item["call_id"], item["name"], json.loads(item["arguments"]))
            for item in answer["output"]
            if item["type"] == "function_call"
        ]


class PreviousResponseAgent(ResponsesAgent):
    def sent_input(self) -> Json:
        return {"input": self.new} | ({"previous_response_id": self.last} if self.last else {})


class ConversationAgent(ResponsesAgent):
    conversation = ""

    def sent_input(self) -> Json:
        self.conversation = self.conversation or self.ask({}, "/v1/conversations")["id"]
        return {"input": self.new, "conversation": self.conversation}


class MessagesAgent(Agent):
    api = "messages"
    _container = ""

    def as_sent(self, results: list[tuple[str, str, bool]]) -> list[Json]:
        blocks = [
            {"type": "tool_result", "tool_use_id": key, "content": text, "is_error": failed}
            for key, text, failed in results
        ]
        return [{"role": "user", "content": blocks}]

    def answer(self) -> list[tuple[str, str, Json]]:
        tools: list[Json] = [
            {
                "name": one["function"]["name"],
                "description": one["function"]["description"],
                "input_schema": one["function"]["parameters"],
            }
            for one in self._tools
        ]
        tools.append({"type": "mcp_toolset", "mcp_server_name": "shop"})
        body: Json = {"messages": self.history, "system": "S.", "max_tokens": 99, "tools": tools}
        body["thinking"] = {"type": "adaptive"}
        if self._runs_code:
            tools.append({"type": "code_execution_20250825", "name": "code_execution"})
        if self._container:
            body["container"] = self._container
        answer = self.ask(body)
        self._container = (answer.get("container") or {}).get("id", "")
        self.history.append({"role": "assistant", "content": answer["content"]})
        return [
            (block["id"], block["name"], block["input"])
            for block in answer["content"]
            if block["type"] == "tool_use"
        ]


AGENTS = (ChatAgent, ResponsesAgent, PreviousResponseAgent, ConversationAgent, MessagesAgent)
KEYS = "abcde"
"""The client key of each."""


def comparable(prompts: list[list[Json]]) -> Any:
    """Ids as numbers, empty fields left out, the results of one message in the order of its calls."""
    numbers: dict[str, int] = {}
    found = []
    for prompt in prompts:
        messages = []
        for message in prompt:
            plain = {name: value for name, value in message.items() if value not in (None, "", [])}
            for call in plain.get("tool_calls", ()):
                call["id"] = numbers.setdefault(call["id"], len(numbers))
            if "tool_call_id" in plain:
                plain["tool_call_id"] = numbers[plain["tool_call_id"]]
            messages.append(plain)
        found.append(_with_results_in_order(messages))
    return found


def _with_results_in_order(messages: list[Json]) -> list[Json]:
    ordered: list[Json] = []
    for is_result, group in itertools.groupby(messages, lambda one: one["role"] == "tool"):
        alike = list(group)
        ordered += sorted(alike, key=lambda one: one["tool_call_id"]) if is_result else alike
    return ordered


KINDS: dict[str, tuple[Callable[[random.Random], Reply], Json, int]] = {
    "programs": (program_reply, {}, 24),
    "programs of calls that leave together": (program_reply, {"order": "dataflow"}, 12),
    "native calls": (native_reply, {"tools": "native"}, 24),
    "native calls one at a time": (native_reply, {"tools": "native", "order": "strict"}, 12),
    "cells": (cell_reply, {"max_kernels": 40}, 6),
    "cells at two replicas": (piece_reply, {"max_kernels": 40}, 3),
}
"""Kind -> the model's replies, settings of the proxy, and the number of conversations."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_is_the_same_over_every_api(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path, kind: str
) -> None:
    """What the model is shown, what the client runs, what the proxy runs. Native models get the client's
    history as it is, without their unusable replies. At two replicas a cell may have lost its variables."""
    reply, settings, examples = KINDS[kind]
    server = HostedFunctions({name: raising(name) for name in TOOLS}, [])
    store = str(tmp_path / "store.sqlite")
    settings = {"hosted": server, "database": store, "client_keys": ",".join(KEYS), **settings}
    replicas = [start_proxy(**settings) for _ in range(1 if kind == "cells" else 2)]

    @hypothesis.settings(max_examples=example_count(examples))
    @hypothesis.given(seed=st.integers(0, 2**32))
    @hypothesis.example(seed=197)
    @hypothesis.example(seed=125_745)  # an agent that ends with results that it did not send
    def converse(seed: int) -> None:
        found = []
        hosted = [name for name in TOOLS if random.Random(f"{seed} {name}").random() < 0.5]
        server.definitions = [TOOLS[name] for name in hosted]
        own = [TOOLS[name] for name in TOOLS if name not in hosted]
        for make, key in zip(AGENTS, KEYS, strict=True):
            dice = random.Random(seed)
            upstream.exchanges.clear()
            server.made.clear()
            upstream.default = lambda _: reply(dice)  # noqa: B023
            agent = make(replicas, key, own, runs_code=kind == "cells")
            with suppress(Ended):
                for number in range(dice.randint(1, 3)):
                    agent.say(f"Question {number} of {seed}.")
            assert "native" in kind or broken_prefixes(upstream.requests) == []
            prompts = comparable([request["messages"] for request in upstream.requests])
            found.append((prompts, agent.calls_run, sorted(server.made)))
        if kind != "cells at two replicas":
            for other in found[1:]:
                assert other == found[0]

    converse()
