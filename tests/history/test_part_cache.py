"""A message that came before is read once: what a warm parse returns equals what a cold one does."""

from __future__ import annotations

import gc
import json
import random
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from emulator.core.errors import BadRequest
from emulator.core.part_cache import PartCache
from emulator.core.protocol import Message, parse_chat, parse_conversation
from emulator.fronts.anthropic.request import MessagesRequest
from emulator.fronts.responses import items
from emulator.fronts.responses.request import parse_request
from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream

Json = dict[str, Any]
Parse = Callable[[bytes, str, PartCache | None], Any]
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
PARTS = [{"type": "text", "text": "é \U0001f600"}, {"type": "image_url", "image_url": {"url": "u"}}]


def chat_body(dice: random.Random) -> Json:
    kinds: list[Json] = [
        {"role": "user", "content": f"Question {dice.randint(0, 5)}."},
        {"role": "user", "content": PARTS},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "4", "is_error": dice.random() < 0.5},
        {"role": "assistant", "content": "Done.", "extra": {"a": [1, 1.0, True, None]}},
        {"role": "system", "content": "S.", "approval": True, "model_view": {"a": 1}},
    ]
    return {"model": "m", "messages": dice.choices(kinds, k=20), "metadata": {"a": "b"}}


def messages_body(dice: random.Random) -> Json:
    use = {"type": "tool_use", "id": "t", "name": "get_weather", "input": {"n": 1}}
    kinds: list[Json] = [
        {"role": "user", "content": f"Question {dice.randint(0, 5)}."},
        {"role": "user", "content": [{"type": "text", "text": "é"}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "4"}]},
        {"role": "assistant", "content": "Done.", "extra": 1.0},
    ]
    return {"model": "m", "max_tokens": 9, "messages": dice.choices(kinds, k=20)}


def input_body(dice: random.Random) -> Json:
    kinds: list[Json] = [
        {"role": "user", "content": f"Question {dice.randint(0, 5)}."},
        {"type": "message", "id": "m1", "role": "assistant", "content": [
            {"type": "output_text", "text": "é", "annotations": []}
        ]},
        {"type": "function_call", "id": "f1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "4"},
        {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "cntr_1"},
    ]  # fmt: skip
    return {"model": "m", "input": dice.choices(kinds, k=20)}


def parsed_input(body: bytes, client: str, cache: PartCache | None) -> Any:
    _, normal = parse_request(body, client, cache)
    return items.parse(normal, client=client, cache=cache)


def parsed_messages(body: bytes, client: str, cache: PartCache | None) -> Any:
    return parse_conversation(body, MessagesRequest, client, cache)


FRONTS: dict[str, tuple[Callable[[random.Random], Json], Parse]] = {
    "chat": (chat_body, parse_chat),
    "messages": (messages_body, parsed_messages),
    "input": (input_body, parsed_input),
}

STRANGE = (
    b'"messages":[{"role":"user","content":"planted"}],', b'{"messages":[[', b"[]", b"[[", b"]]", b",,",
    b",", b"}", b"{", b'"', b"\\", b"\\u0061", b"\\u00e9", b"\\ud83d", b"\\n", b"null", b"true", b"1",
    b"1.0", b"-0.0", b"1e400", b"18446744073709551616", b"NaN", b"\xff", b"\xc3\xa9", b" ", b"\n",
    b'"role":"tool",', b'"content":[],', b'"id":5,', b'"a":{"messages":[]},', b'{"role":"user"},',
)  # fmt: skip


def mutated(body: bytes, dice: random.Random) -> bytes:
    """The body with some places changed: text that is repeated, moved, written otherwise or strange."""
    for _ in range(dice.choice((0, 1, 1, 2))):
        places = [match.end() for match in re.finditer(rb'[{\[,":]', body)]
        at, other = dice.choice(places), dice.choice(places)
        change = dice.randint(0, 5)
        if change == 0:
            body = body[:at] + dice.choice(STRANGE) + body[at:]
        elif change == 1:  # a key, an item or half of each comes twice
            body = body[:at] + body[min(at, other) : max(at, other)][:200] + body[at:]
        elif change == 2:
            body = body[:at] + body[at + dice.randint(1, 3) :]
        elif change == 3:
            body = (
                body[:at] + b"".join(b"\\u%04x" % one for one in body[at : at + 1]) + body[at + 1 :]
            )
        elif change == 4:
            body = body.replace(b":", b" : ", dice.randint(1, 40)).replace(b",", b"\n,", 3)
        else:
            old, new = dice.choice(
                ((b"1", b"true"), (b"1", b"1.0"), (b"user", b"system"), (b"4", b"5"))
            )
            body = body.replace(old, new, dice.randint(1, 3))
    return body


def outcome(parse: Parse, body: bytes, client: str, cache: PartCache | None) -> str:
    try:
        value = parse(body, client, cache)
    except BadRequest as error:
        return repr((error.message, error.param, error.code))
    if isinstance(value, list):
        return re.sub(r"\b\w+_[0-9a-f]{24}\b", "new id", repr(value))
    return f"{value!r} {value.model_dump(exclude_unset=True)!r}"


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("front", FRONTS)
def test_a_warm_parse_equals_a_cold_one(front: str, part: int) -> None:
    """Ten thousand bodies, each of them under two client keys."""
    make, parse = FRONTS[front]
    dice = random.Random(f"{front} {part}")
    cache = PartCache(256 * 1024)
    accepted = 0
    for _ in range(834):
        body = mutated(json.dumps(make(dice), ensure_ascii=dice.random() < 0.5).encode(), dice)
        cold = outcome(parse, body, "", None)
        accepted += not cold.startswith("(")
        for client in dice.sample(("a", "b"), 2):
            assert outcome(parse, body, client, cache) == cold, body
    assert accepted > 250


def long_chat(*texts: str) -> bytes:
    messages = [{"role": "user", "content": text} for text in texts]
    return json.dumps({"model": "m", "messages": messages * (20 // len(texts))}).encode()


def test_a_message_is_the_same_object_for_its_own_client_only() -> None:
    cache = PartCache()
    first = parse_chat(long_chat("one", "two"), "a", cache).messages
    again = parse_chat(long_chat("one", "three"), "a", cache).messages
    assert first[0].content == again[0].content == "one"
    assert any(again[0] is one for one in first)
    assert again[1] not in first
    other = parse_chat(long_chat("one", "two"), "b", cache).messages
    assert not {*map(id, other)} & {*map(id, [*first, *again])}


def test_a_second_field_messages_plants_nothing() -> None:
    """Of a key that comes twice the last counts, as for the parser of the body; and only at the top."""
    cache = PartCache()
    parse_chat(long_chat("one"), "a", cache)
    inner = long_chat("one").decode()[:-1]
    twice = f'{inner}, "metadata": {{"messages": [{{"role": "user", "content": "planted"}}]}}, '
    twice += '"messages": [{"role": "user", "content": "last"}]}'
    for client in "ab":
        assert [m.content for m in parse_chat(twice.encode(), client, cache).messages] == ["last"]


def bodies_that_hold_much(dice: random.Random) -> list[bytes]:
    """Of JSON that is short for what it holds in memory."""
    contents: list[Any] = [
        "x" * dice.randint(0, 9),
        "x" * 2000 + "\U0001f600",
        [{"type": "text", "text": ""}] * 40,
        [{"a": [[], {}, [[]], 1.5, 10**9]}] * 40,
        [{f"key {dice.random()}": n for n in range(50)}],
    ]
    return [
        json.dumps(
            {
                "model": "m",
                "messages": [
                    {"role": "user", "content": content, f"extra {n} {dice.random()}": {}}
                    for n in range(200)
                ],
            }
        ).encode()
        for content in contents
    ]


def test_the_tables_are_bounded_by_what_they_hold() -> None:
    """The bytes of the messages alone were counted: 16 MiB of them held 439 MiB."""
    limit = 4 * 2**20
    cache = PartCache(limit)
    dice = random.Random(1)
    for body in bodies_that_hold_much(dice):
        parse_chat(body, "warm", cache)
    cache = PartCache(limit)
    gc.collect()
    tracemalloc.start()
    try:
        for n in range(8):
            for body in bodies_that_hold_much(dice):
                for message in parse_chat(body, f"client {n % 3}", cache).messages:
                    message.memo("a", n, lambda: "made " * 50)
                parse_chat(body, f"client {n % 3}", cache)
        del message
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert limit / 2 < cache.held <= limit
    assert held < 1.25 * limit


def test_the_least_recently_used_client_leaves_first() -> None:
    cache = PartCache(256 * 1024)
    texts = [f"{n} " * 200 for n in range(20)]
    kept = parse_chat(long_chat(*texts), "often", cache).messages
    for n in range(20):
        parse_chat(long_chat(*(f"{n} {text}" for text in texts)), f"client {n}", cache)
        again = parse_chat(long_chat(*texts), "often", cache).messages
        assert all(one is other for one, other in zip(kept, again, strict=True))
    assert 128 * 1024 < cache.held <= 256 * 1024


def test_a_memo_is_made_again_for_another_key_only() -> None:
    message = Message(role="user", content="x")
    assert [message.memo("name", 1, lambda n=n: n) for n in (1, 2)] == [1, 2]  # type: ignore[misc]
    assert message.memos.held == 0  # from now on
    made = [message.memo("name", key, lambda key=key: [key]) for key in (1, 1, 2, 1)]  # type: ignore[misc]
    assert made == [[1], [1], [2], [1]]
    assert made[0] is made[1]
    assert made[0] is not made[3]
    assert message.model_copy(update={"content": "y"}).memo("name", 1, lambda: "new") == "new"
    assert message.model_dump(exclude_unset=True) == {"role": "user", "content": "x"}


def weather(parameter: str) -> Json:
    properties = {parameter: {"type": "string"}}
    function = {"name": "get_weather", "parameters": {"type": "object", "properties": properties}}
    return {"type": "function", "function": function}


def test_a_prompt_does_not_depend_on_earlier_requests(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """What was made of a message for one toolset was not made for another."""
    upstream.default = "Fine."
    arguments = '{"city": "Oslo", "town": "Rome"}'
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": arguments},
    }
    rounds: list[Json] = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": "4 degrees."},
    ]
    question = {"role": "user", "content": "And now?"}
    variants = [
        {"tools": [weather("city")], "messages": [*rounds * 6, question]},
        {"tools": [weather("town")], "messages": [*rounds * 6, question]},
        {"tools": [weather("city")], "messages": [*rounds * 6, *rounds[:1]]},
        {"tools": [weather("city")], "messages": [rounds[0], *rounds[1:] * 7, question]},
    ]
    warm = start_proxy(tools="emulate")
    cold = [start_proxy(tools="emulate", repair_attempts=n) for n in range(len(variants))]
    for urls in ([warm] * len(variants), [warm] * len(variants), cold):
        for url, variant in zip(urls, variants, strict=True):
            status, _, _ = send(f"{url}/v1/chat/completions", {"model": "m", **variant})
            assert status == 200
    prompts = [request["messages"] for request in upstream.requests]
    size = len(variants)
    assert prompts[:size] == prompts[size : 2 * size] == prompts[2 * size :]
    assert prompts[0] != prompts[1]
