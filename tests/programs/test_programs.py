"""Programs that span turns: the client sees ordinary tool calls, and the model is asked less often."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from prometheus_client import REGISTRY

from tests.conftest import StartProxy
from tests.support.chat import BOTH, calls
from tests.support.programs import (
    CHAIN,
    HITS,
    LOCAL,
    TOOLS,
    plain,
    result,
    rounds,
    started,
)
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import function


def agent(
    client: openai.OpenAI, ask: Any, turns: int = 12, **request: Any
) -> tuple[list[list[tuple[str, Any]]], str]:
    """An ordinary tool loop: the calls of each turn, and the final answer."""
    messages: list[Any] = [{"role": "user", "content": "Book the cheapest flight to Oslo."}]
    sent_calls = []
    for _ in range(turns):
        completion = ask(client, model="m", messages=messages, tools=TOOLS, **request)
        message = completion.choices[0].message
        if not message.tool_calls:
            return sent_calls, message.content
        sent_calls.append(calls(completion))
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = LOCAL[call.function.name](**json.loads(call.function.arguments))
            content = result if isinstance(result, str) else json.dumps(result)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    raise AssertionError("the agent does not come to an end")


PROGRAMS: list[tuple[str, str, list[list[tuple[str, Any]]], str]] = [
    (
        "a chain of three",
        CHAIN,
        [[("search", {"to": "Oslo"})], [("book", {"id": "a2"})], [("check", {"id": "a2"})]],
        "a2 on time",
    ),
    (
        "a condition",
        '```tool_code\nif search("Rome"):\n    book("r")\nelse:\n    print(check("none"))\n```',
        [[("search", {"to": "Rome"})], [("check", {"id": "none"})]],
        '{"late": 10}',
    ),
    (
        "a loop over results, whose calls go out together",
        '```tool_code\nstates = {}\nfor f in search("Oslo"):\n    states[f["id"]] = check(f["id"])\n'
        "print(states)\n```",
        [[("search", {"to": "Oslo"})], [("check", {"id": "a1"}), ("check", {"id": "a2"})]],
        "{'a1': {'late': 10}, 'a2': 'on time'}",
    ),
    (
        "independent calls first, then one that needs both",
        '```tool_code\na = search("Oslo")\nb = search("Rome")\nx = book(id=str(len(a) + len(b)))\nx\n```',
        [[("search", {"to": "Oslo"}), ("search", {"to": "Rome"})], [("book", {"id": "2"})]],
        "{'booked': '2', 'note': ''}",
    ),
    (
        "a helper function, a while loop and a call in an argument",
        "```tool_code\ndef best(city):\n    flights = search(city)\n    n = 0\n"
        "    while n < len(flights) and flights[n]['price'] > 60:\n        n += 1\n"
        "    return flights[n]['id']\nprint(book(best('Oslo'), note=check('a2'))['note'])\n```",
        [
            [("search", {"to": "Oslo"})],
            [("check", {"id": "a2"})],
            [("book", {"id": "a2", "note": "on time"})],
        ],
        "on time",
    ),
    (
        "try and except around a call",
        "```tool_code\ntry:\n    x = search('Oslo')\n    y = x['nothing']\nexcept TypeError:\n"
        "    book('fallback')\nprint('ok')\n```",
        [[("search", {"to": "Oslo"})], [("book", {"id": "fallback"})]],
        "ok",
    ),
]


@BOTH
@pytest.mark.parametrize(
    ("reply", "expected", "output"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_a_program_resumes_with_its_results_without_the_model(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    ask: Any,
    reply: str,
    expected: Any,
    output: str,
) -> None:
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply(Reply(reply, chunks=9), "Done.")
    sent_calls, answer = agent(client, ask)
    assert (sent_calls, answer) == (expected, "Done.")
    assert len(upstream.requests) == 2
    prompt_text = upstream.requests[1]["messages"]
    assert [m["role"] for m in prompt_text] == ["system", "user", "assistant", "user"]
    assert prompt_text[2]["content"] == reply
    assert f"Its output:\n\n```text\n{output}\n```" in prompt_text[3]["content"]


def test_one_call_at_a_time_holds_over_turns(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\nfor i in 'abc':\n    check(i)\nprint('end')\n```", "Done.")
    sent_calls, _ = agent(client, plain, parallel_tool_calls=False)
    assert sent_calls == [[("check", {"id": i})] for i in "abc"]
    assert len(upstream.requests) == 2


def test_a_repeated_request_gets_the_same_calls_with_the_same_ids(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(CHAIN)
    messages, message = started(client)
    messages.append(result(message.tool_calls[0], HITS))
    answers = [plain(client, model="m", messages=messages, tools=TOOLS) for _ in range(2)]
    first, second = [answer.choices[0].message.tool_calls for answer in answers]
    assert first == second
    assert calls(answers[0]) == [("book", {"id": "a2"})]


def test_a_conversation_may_branch_at_an_earlier_point(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(CHAIN)
    messages, message = started(client)
    for flights, best in ((HITS, "a2"), ('[{"id": "b", "price": 1}]', "b"), (HITS, "a2")):
        history = [*messages, result(message.tool_calls[0], flights)]
        branch = plain(client, model="m", messages=history, tools=TOOLS)
        assert calls(branch) == [("book", {"id": best})]
        second = branch.choices[0].message
        history += [
            second.model_dump(exclude_none=True),
            result(second.tool_calls[0], json.dumps({"booked": best})),
        ]
        third = plain(client, model="m", messages=history, tools=TOOLS)
        assert calls(third) == [("check", {"id": best})]
    assert len(upstream.requests) == 1


def test_results_may_come_in_any_order_and_over_several_requests(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply("```tool_code\na = check('1')\nb = check('2')\nbook(id=f'{a}{b}')\n```")
    messages, message = started(client)
    one, two = message.tool_calls
    only_second = [*messages, result(two, "B")]
    again = plain(client, model="m", messages=only_second, tools=TOOLS)
    assert [call.id for call in again.choices[0].message.tool_calls] == [one.id]
    both = [*messages, result(two, "B"), result(one, "A")]
    assert calls(plain(client, model="m", messages=both, tools=TOOLS)) == [("book", {"id": "AB"})]


ABANDONED: list[tuple[str, Callable[[list[Any], Any], list[Any]]]] = [
    (
        "the user says something in between",
        lambda messages, call: [
            *messages,
            result(call, HITS),
            {"role": "user", "content": "Stop."},
        ],
    ),
    (
        "the client has edited the arguments",
        lambda messages, call: [
            messages[0],
            json.loads(json.dumps(messages[1]).replace("Oslo", "Rome")),
            result(call, HITS),
        ],
    ),
    (
        "the ids are not ours",
        lambda messages, call: json.loads(
            json.dumps([*messages, result(call, HITS)]).replace(call.id, "call_of_somebody_else")
        ),
    ),
    ("there is no result", lambda messages, call: messages),
]


def with_field(message: dict[str, Any], name: str) -> dict[str, Any]:
    """The message, with one more field in the arguments of each call."""
    changed: dict[str, Any] = json.loads(json.dumps(message))
    for call in changed["tool_calls"]:
        arguments = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps({**arguments, name: "search"})
    return changed


def test_a_program_resumes_although_a_framework_adds_a_field_to_the_arguments(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """Langroid writes the tool's name into the arguments, as ``request``."""
    upstream.reply(CHAIN, "The model is asked.")
    messages, message = started(client)
    messages = [messages[0], with_field(messages[1], "request")]
    messages.append(result(message.tool_calls[0], HITS))
    answer = plain(client, model="m", messages=messages, tools=TOOLS)
    assert calls(answer) == [("book", {"id": "a2"})]
    messages += [with_field(answer.choices[0].message.model_dump(), "note")]
    messages.append(result(answer.choices[0].message.tool_calls[0], "{}"))
    asked = plain(client, model="m", messages=messages, tools=TOOLS)
    assert asked.choices[0].message.content == "The model is asked."
    assert 'search(to="Oslo")' in upstream.requests[1]["messages"][2]["content"]


LEG = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "class": {"$ref": "#/$defs/class", "default": "economy"},
    },
    "required": ["to"],
}
TRIP = {
    "type": "object",
    "properties": {
        "legs": {"type": "array", "items": LEG},
        "direct": {"type": "boolean", "default": False},
    },
    "required": ["legs"],
    "$defs": {"class": {"type": "string"}},
}
ADDED: list[tuple[str, Any, bool]] = [
    ("a default", {"legs": [{"to": "Oslo"}], "direct": False}, True),
    ("a default inside", {"legs": [{"to": "Oslo", "class": "economy"}]}, True),
    ("null for what is absent", {"legs": [{"to": "Oslo", "class": None}]}, False),
    ("another value", {"legs": [{"to": "Oslo"}], "direct": True}, False),
    ("another value inside", {"legs": [{"to": "Oslo", "class": "first"}]}, False),
    ("one more item", {"legs": [{"to": "Oslo"}, {"to": "Oslo"}]}, False),
    ("nothing of what was sent", {"direct": False}, False),
]


@pytest.mark.parametrize(
    ("arguments", "resumes"), [a[1:] for a in ADDED], ids=[a[0] for a in ADDED]
)
def test_a_client_may_fill_in_the_schemas_defaults(
    client: openai.OpenAI, upstream: ScriptedUpstream, arguments: Any, resumes: bool
) -> None:
    """Claude Code sends its Edit back with ``replace_all=False``: the program ended after each edit."""
    tools: Any = [function("search", TRIP), *TOOLS[1:]]
    upstream.reply('```tool_code\nbook(id=search(legs=[{"to": "Oslo"}])[0]["id"])\n```', "Done.")
    question: Any = {"role": "user", "content": "Go."}
    first = plain(client, model="m", messages=[question], tools=tools).choices[0].message
    [call] = first.tool_calls or ()
    call.function.arguments = json.dumps(arguments)
    history = [question, first.model_dump(exclude_none=True), result(call, HITS)]
    answer = plain(client, model="m", messages=history, tools=tools)
    assert (calls(answer) == [("book", {"id": "a1"})]) is resumes
    assert len(upstream.requests) == (1 if resumes else 2)


@pytest.mark.parametrize("change", [row[1] for row in ABANDONED], ids=[row[0] for row in ABANDONED])
def test_a_history_that_does_not_match_the_program_is_an_ordinary_turn(
    client: openai.OpenAI, upstream: ScriptedUpstream, change: Any
) -> None:
    upstream.reply(CHAIN, "As you like.")
    messages, message = started(client)
    answer = plain(client, model="m", messages=change(messages, message.tool_calls[0]), tools=TOOLS)
    assert answer.choices[0].message.content == "As you like."


def test_a_program_that_fails_on_a_result_is_shown_to_the_model(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(CHAIN, "I am sorry.")
    messages, message = started(client)
    answer = plain(
        client,
        model="m",
        messages=[*messages, result(message.tool_calls[0], "[]")],
        tools=TOOLS,
    )
    assert answer.choices[0].message.content == "I am sorry."
    prompt_text = upstream.requests[1]["messages"][-1]["content"]
    assert "The program made its calls, then failed" in prompt_text and "line 2" in prompt_text


def test_a_restarted_proxy_resumes_a_program(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Any
) -> None:
    upstream.reply(CHAIN)
    file = str(tmp_path / "programs.sqlite")
    before = openai.OpenAI(base_url=start_proxy(database=file), api_key="k")
    messages, message = started(before)
    after = openai.OpenAI(base_url=start_proxy(database=file), api_key="k")
    history = [*messages, result(message.tool_calls[0], HITS)]
    assert calls(plain(after, model="m", messages=history, tools=TOOLS)) == [("book", {"id": "a2"})]


@pytest.mark.parametrize("settings", [{"programs": "off"}, {"database": "none"}])
def test_without_a_store_the_model_is_asked_at_each_turn(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Any
) -> None:
    client = openai.OpenAI(base_url=start_proxy(**settings), api_key="k")
    upstream.reply(CHAIN, "```tool_code\nbook(id='a2')\n```")
    messages, message = started(client)
    history = [*messages, result(message.tool_calls[0], HITS)]
    assert calls(plain(client, model="m", messages=history, tools=TOOLS)) == [
        ("book", {"id": "a2"})
    ]
    assert len(upstream.requests) == 2


def test_an_answer_reports_the_model_turns_that_it_saved(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.reply(CHAIN)
    messages, message = started(client)
    history = [*messages, result(message.tool_calls[0], HITS)]
    for stream in (False, True):
        with client.chat.completions.with_streaming_response.create(
            model="m", messages=history, tools=TOOLS, stream=stream
        ) as response:
            assert response.headers["x-emulator-turns-saved"] == "1"
            response.read()


CHANCE = """```tool_code
import datetime
import random

ticket = f"{random.randint(1, 10**12)} {datetime.datetime.now()}"
check(id=ticket)
seen = check(id="again")
if seen:
    book(id=ticket)
```"""


def test_chance_and_the_clock_are_the_same_in_each_replay(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    client = openai.OpenAI(base_url=start_proxy(), api_key="k", max_retries=0)
    upstream.reply(CHANCE, "Done.")
    sent_calls, _ = agent(client, plain)
    assert len(upstream.requests) == 2
    (first, _again), (booked,) = sent_calls
    assert first == ("check", booked[1]) and len(booked[1]["id"]) > 20


def test_a_huge_result_means_an_ordinary_turn(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    """What is kept has a bound; what cannot be kept costs a model turn, not an answer."""
    upstream.reply(
        "```tool_code\na = check('1')\nb = check(str(len(a)))\nbook(b)\n```", "As you like."
    )
    messages, message = started(client)
    messages.append(result(message.tool_calls[0], "x" * 5_000_000))
    second = plain(client, model="m", messages=messages, tools=TOOLS)
    assert calls(second) == [("check", {"id": "5000000"})]
    later = second.choices[0].message
    messages += [later.model_dump(exclude_none=True), result(later.tool_calls[0], "b")]
    third = plain(client, model="m", messages=messages, tools=TOOLS)
    assert third.choices[0].message.content == "As you like."


@BOTH
def test_a_program_that_has_made_all_its_calls_is_not_run_again(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    """A program of one call was run twice: when the call's line had closed, and when the block had."""
    upstream.reply('```tool_code\nsearch("Oslo")\n```\n')
    before = runs()
    completion = ask(client, model="m", messages=[{"role": "user", "content": "x"}], tools=TOOLS)
    assert calls(completion) == [("search", {"to": "Oslo"})]
    assert runs() == before + 1


def runs() -> float:
    ran = {"outcome": "read"}
    return REGISTRY.get_sample_value("emulator_program_runs_total", ran) or 0.0


@pytest.mark.parametrize(
    "form", ["<tool_call>\n{}\n</tool_call>", "<function_call> {}", "[TOOL_CALLS][{}]", "{}"]
)
def test_calls_in_several_blocks_are_one_program(
    client: openai.OpenAI, upstream: ScriptedUpstream, form: str
) -> None:
    """The first block's call acts, so the program waits for its result; the later blocks were not read."""
    blocks = [
        form.replace("{}", json.dumps({"name": "book", "arguments": {"id": id_}}))
        for id_ in ("a1", "a2", "a3")
    ]
    upstream.reply(Reply(chunks=[f"{block}\n" for block in blocks]), "Booked.")
    sent = [call for message in rounds(client, TOOLS) for call in message]
    assert sent == ["book(id='a1')", "book(id='a2')", "book(id='a3')"]
    assert len(upstream.requests) == 2


def test_words_after_a_call_in_an_element_end_the_reply(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    call = '<tool_call>\n{"name": "book", "arguments": {"id": "a1"}}\n</tool_call>\n'
    chunks = [call, "It was booked.\n" + "And so on. " * 40, call.replace("a1", "a2")]
    upstream.reply(Reply(chunks=chunks), "Booked.")
    assert rounds(client, TOOLS) == [["book(id='a1')"]]
