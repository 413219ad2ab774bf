"""Each prompt begins with the one before, so that an upstream's cache of prompts serves the whole history."""

from __future__ import annotations

import itertools
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import openai
import pytest
from hypothesis import strategies as st

from emulator.answering.ways.way import PYTHON
from emulator.conversation.call_policy import CallPolicy
from emulator.conversation.profiles import choose
from emulator.core.protocol import Message
from emulator.rendering.foreign_syntax import foreign_call_syntax
from emulator.rendering.prompt import instruct
from emulator.tools.toolset import Toolset
from tests.conftest import StartProxy
from tests.support.agents import broken_prefixes, converse
from tests.support.chat import BOTH, plain
from tests.support.examples import example_count
from tests.support.programs import CHAIN, LOCAL, TOOLS
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import function, strings

REQUESTS = Path(__file__).parents[1] / "data" / "client_requests.jsonl"

RULE: dict[str, Any] = {"role": "system", "content": "From now on be brief."}
HINT: dict[str, Any] = {"role": "developer", "content": "The user is in a hurry."}


def block(code: str) -> str:
    return f"```python\n{code}\n```"


REPAIRED = [block("check(identity='a2')"), block("x = check('a2')\nprint('it is', x)"), "Done."]

CONVERSATIONS: list[tuple[str, list[str], list[str | dict[str, Any]]]] = [
    ("a program and one more", [CHAIN, block("book('a1')"), "Done.", "Bye."], ["Go.", "Thanks."]),
    ("words alone", ["Hello.", "Bye."], ["Hi.", "Bye."]),
    ("a failure, and what the model does then", [
        block("x = search('Oslo')\nprint(x[0]['prize'])"),
        block("book('a2')"),
        "Booked.",
        "Bye.",
    ], ["Go.", "Thanks."]),
    ("a repair, then a program", [*REPAIRED, "Bye."], ["Go.", "Thanks."]),
    ("a repair, then words", [
        block("check(identity='a2')"),
        "It cannot be told.",
        "Bye.",
    ], ["Go.", "Thanks."]),
    ("two repairs", [
        block("check(identity='a2')"),
        block("chek(id='a2')\ncheck('a2', 'b', 'c')"),
        block("check('a2')"),
        "Done.",
        "Bye.",
    ], ["Go.", "Thanks."]),
    ("system messages on the way", [CHAIN, "Done.", "Yes.", "Bye."], [
        {"role": "system", "content": "Be kind."},
        "Go.",
        RULE,
        "Sure?",
        HINT,
        "Thanks.",
    ]),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("profile", ["default", "reasoning"])
@pytest.mark.parametrize(
    ("replies", "spoken"), [row[1:] for row in CONVERSATIONS], ids=[row[0] for row in CONVERSATIONS]
)
def test_each_prompt_begins_with_the_prompt_before(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    ask: Any,
    profile: str,
    replies: list[str],
    spoken: list[Any],
) -> None:
    url = start_proxy(profile=profile)
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    upstream.reply(*(Reply(reply, chunks=7) for reply in replies))
    converse(client, spoken, tools=TOOLS, local=LOCAL, ask=ask)
    assert broken_prefixes(upstream.requests) == []


POOL = [
    CHAIN,
    block("book('a1')"),
    block("x = check('a2')"),
    block("x = check('a1')\nprint(x)"),
    block("# in a loop\nfor i in ('a1', 'a2'):\n    check(i)\nprint('end')"),
    block("x = search('Oslo')\nprint('seen')\nprint(x[0]['prize'])"),
    block("a = check('a2')\nif a:\n  x = )"),
    block("book(identity='x')"),
    block("chek('a1')"),
    "I look.\n\n" + block("print([check('a1'), check('a2')])"),
    "Let me check the status.",
    '{"name": "book", "arguments": {"id": "a1", "note": "one\\ntwo"}}',
    "",
    "```python\nprint('no call')\n```",
]
WORDS = ["Done.", "It is on time.", "I cannot tell."]


@pytest.mark.parametrize("profile", ["default", "reasoning"])
def test_random_replies_keep_each_prompt_a_prefix_of_the_next(
    start_proxy: StartProxy, upstream: ScriptedUpstream, profile: str
) -> None:
    url = start_proxy(profile=profile)
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    number = itertools.count()  # two conversations in the same words may recall nothing

    @hypothesis.settings(max_examples=example_count(15))
    @hypothesis.given(seed=st.integers(0, 2**32), started=st.booleans())
    def converse_at_random(seed: int, started: bool) -> None:
        chance = random.Random(seed)
        upstream.default = lambda _: Reply(
            chance.choice(POOL) if chance.random() < 0.6 else chance.choice(WORDS),
            chunks=chance.choice((None, 5)),
        )
        before = len(upstream.requests)
        spoken: list[Any] = [RULE] if started else []
        for n in range(4):
            spoken += [f"Question {n} of {next(number)}.", *chance.choice(([], [], [HINT], [RULE]))]
        with suppress(openai.InternalServerError):  # it may give up on such a model
            converse(client, spoken, tools=TOOLS, local=LOCAL, turns=40)
        assert broken_prefixes(upstream.requests[before:]) == []

    converse_at_random()


def test_under_the_tiny_profile_the_examples_and_later_system_messages_stay(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """The rest is rebuilt for each turn: such a model needs few functions, next to the question."""
    url = start_proxy(profile="tiny")
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    upstream.reply("Hello.", "Yes.")
    converse(client, ["Hi.", RULE, "Sure?"], tools=TOOLS, local=LOCAL)
    first, second = (request["messages"] for request in upstream.requests)
    assert second[: len(first) - 1] == first[:-1]
    assert RULE in second


def test_the_reasoning_profile_puts_the_tools_into_the_users_message(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=start_proxy(profile="reasoning"), api_key="k", max_retries=0)
    upstream.reply("Hello.", "Yes.")
    opening = {"role": "system", "content": "Be kind."}
    converse(client, [opening, "Hi.", RULE, "Sure?"], tools=TOOLS, local=LOCAL)
    first, second = (request["messages"] for request in upstream.requests)
    assert [m["role"] for m in second] == ["user", "assistant", "user"]
    assert first[0]["content"].startswith("Be kind.\n\nYou can call")
    assert first[0]["content"].endswith("\n\nHi.")
    assert second[2]["content"] == "From now on be brief.\n\nSure?"


# Habits

JSON_CALL = '```json\n{"name": "check", "arguments": {"id": "a2"}}\n```'
TOLD = '{"name": ...'


def told_habit(request: Any) -> bool:
    return TOLD in request["messages"][0]["content"]


def test_a_habit_never_rewrites_the_system_message_of_a_conversation_under_way(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(*[JSON_CALL] * 5, "Done.", "Bye.", "Hello.", "Bye.")
    states = iter("abcdefgh")
    local = {"check": lambda id: next(states)}
    converse(client, ["Go.", "Thanks."], tools=TOOLS, local=local)
    assert broken_prefixes(upstream.requests) == []
    assert not any(map(told_habit, upstream.requests))
    converse(client, ["Another.", "Thanks."], tools=TOOLS, local=local)
    assert list(map(told_habit, upstream.requests[-2:])) == [True, True]


def test_a_change_of_the_models_habit_does_not_change_a_conversations_instructions(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    states = iter("abcdefghijklmnop")
    local = {"check": lambda id: next(states)}
    upstream.reply(*[JSON_CALL] * 4, "Done.", *[block("check('a1')")] * 5, "Done.", "Bye.")
    converse(client, ["Go."], tools=TOOLS, local=local)
    converse(client, ["Another.", "Thanks."], tools=TOOLS, local=local)
    under_way = upstream.requests[5:]
    assert all(map(told_habit, under_way)) and broken_prefixes(under_way) == []


def test_habits_are_those_of_one_client_and_model(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    url = start_proxy(client_keys=("one", "two"))
    one, two = (openai.OpenAI(base_url=url, api_key=key, max_retries=0) for key in ("one", "two"))
    states = iter("abcdefgh")
    upstream.reply(*[JSON_CALL] * 4, "Done.", default := "Hello.", default, default)
    converse(one, ["Go."], tools=TOOLS, local={"check": lambda id: next(states)})
    for client, model in ((one, "m"), (one, "other"), (two, "m")):
        plain(client, model=model, messages=[{"role": "user", "content": "Hi."}], tools=TOOLS)
    assert list(map(told_habit, upstream.requests[-3:])) == [True, False, False]


# What an agent's own prompt teaches

TAUGHT = [
    ("<tool_call>", 'Call as <tool_call>{"name": "f", "arguments": {}}</tool_call>.'),
    ("<function_call>", "Use <function_calls> blocks."),
    ("<function=name>", "<function=read_file>\n<parameter=path>a</parameter>\n</function>"),
    ("<invoke>", '<invoke name="read">'),
    ("<tool_use>", "Answer with <tool_use>."),
    ("<tool_name>", "<tool_name>\n<parameter1_name>value</parameter1_name>\n</tool_name>"),
    ("[tool_call: ...]", "model: [tool_call: ls for path '.']"),
    ("[TOOL_CALLS]", "[TOOL_CALLS][...]"),
    ("<|python_tag|>", "Begin with <|python_tag|>."),
    ("Action: and Action Input:", "Thought: ...\nAction: the tool\nAction Input: its input"),
    ('{"name": ..., "arguments": ...}', 'Write {"name": tool, "arguments": {...}}.'),
    ('{"tool": ...}', 'Answer as {"tool": "search", "query": "..."}.'),
    ('{"action": ...}', 'Answer as {"action": "search", "action_input": "..."}.'),
    ("", "You are a coding agent. Call tools; the name and arguments must fit. Action is good."),
]


@pytest.mark.parametrize(("shown", "taught"), TAUGHT, ids=[row[0] or "none" for row in TAUGHT])
def test_a_prompt_that_teaches_another_syntax_is_answered_by_one_line(
    client: openai.OpenAI, upstream: ScriptedUpstream, shown: str, taught: str
) -> None:
    upstream.reply("Hello.", "Bye.")
    opening = {"role": "developer", "content": taught}
    converse(client, [opening, "Hi.", "Bye."], tools=TOOLS, local=LOCAL)
    system = upstream.requests[0]["messages"][0]["content"]
    line = f"such as {shown}: only a block like this one is run." if shown else "such as"
    assert (line in system) == bool(shown)
    assert broken_prefixes(upstream.requests) == []


def test_a_later_system_message_does_not_rewrite_the_instructions() -> None:
    messages = [Message(role="user", content="Hi"), Message(role="system", content="<tool_call>")]
    assert foreign_call_syntax(messages) == ""


# Size

MAX_WORDS = 767
"""Characters of our words around the stubs, the example of the request's own tools included."""


def sizes(tools: list[Any]) -> tuple[int, int, int]:
    """Characters of the tools as JSON, of their stubs, and of all our words with the stubs."""
    toolset = Toolset.parse(tools)
    hello = [Message(role="user", content="Hi")]
    told = instruct(
        hello, toolset, CallPolicy(), choose("default", "m"), write_instructions=PYTHON.instructions
    )
    as_json = json.dumps(tools, separators=(",", ":"), ensure_ascii=False)
    return len(as_json), len(toolset.stubs), len(told[0]["content"])


def captured() -> list[list[Any]]:
    """The tools of every request that a client was seen to send."""
    found = []
    for line in REQUESTS.read_text().splitlines():
        tools = (json.loads(line)["body"] or {}).get("tools") or []
        shaped = [
            tool if tool["type"] in tool else {"type": tool["type"], tool["type"]: tool}
            for tool in tools
            if tool["type"] in ("function", "custom")
        ]
        if shaped:
            found.append(shaped)
    return found


def test_stubs_are_never_larger_than_the_json_of_their_tools() -> None:
    seen = [sizes(tools) for tools in captured()]
    assert len(seen) > 60
    assert [row for row in seen if row[1] > row[0]] == []
    assert {whole - stubs for _, stubs, whole in seen} <= set(range(MAX_WORDS))


def test_an_agents_instructions_and_stubs_are_smaller_than_its_tools_json() -> None:
    """Codex's tools took 7,295 characters as JSON, and 7,404 in our words."""
    lines = "\n".join(f"- Rule {n}: keep the path relative, and never guess." for n in range(9))
    tools = [
        function(f"tool_{n}", strings("path", "content", optional=("mode",)), f"Do {n}.\n{lines}")
        for n in range(10)
    ]
    agents = [row for row in map(sizes, [tools, *captured()]) if row[0] > 3_000]
    assert len(agents) > 1
    assert [row for row in agents if row[2] >= row[0]] == []
