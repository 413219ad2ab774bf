"""Words that arrive together are joined in bytes; what else an event says is never lost."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.upstream.joining import Joiner


def event(content: str, *, raw: bool = False, **changes: Any) -> bytes:
    """A chunk as servers write it; ``content`` is JSON already if ``raw``."""
    text = content if raw else json.dumps(content, ensure_ascii=False)
    choice = {"index": 0, "delta": {"content": "\0"}, "logprobs": None, "finish_reason": None}
    choice |= changes.pop("choice", {})
    delta = changes.pop("delta", {})
    choice["delta"] = {**choice["delta"], **delta} if isinstance(choice["delta"], dict) else delta
    chunk = {"id": "c1", "created": 1, "model": "m", "choices": [choice], **changes}
    return json.dumps(chunk, separators=(",", ":")).replace('"\\u0000"', text).encode()


WORDS = [event("Hel"), event("lo, "), event("wörld 😀"), event('"quo\\ted"\n')]


def test_words_of_one_frame_become_one_event() -> None:
    [joined] = Joiner().join(WORDS)
    assert joined == event('Hello, wörld 😀"quo\\ted"\n')


def test_the_frame_is_remembered_between_reads() -> None:
    joiner = Joiner()
    assert joiner.join(WORDS[:2]) == [event("Hello, ")]
    assert joiner.join([*WORDS[1:3], b"[DONE]"]) == [event("lo, wörld 😀"), b"[DONE]"]


TWO = [
    {"index": n, "delta": {"content": "\0"}, "logprobs": None, "finish_reason": None}
    for n in (0, 1)
]
APART = {
    "a finish_reason": [event("a"), event("b", choice={"finish_reason": "stop"})],
    "equal log probabilities": [event(x, choice={"logprobs": {"content": []}}) for x in "ab"],
    "two choices in a chunk": [event(x, choices=TWO) for x in "ab"],
    "a chunk for each choice": [event("a"), event("b", choice={"index": 1})],
    "no index": [event(x, choice={"index": None}) for x in "ab"],
    "a role": [event(x, delta={"role": "assistant"}) for x in "ab"],
    "equal reasoning": [event(x, delta={"reasoning_content": "hm"}) for x in "ab"],
    "equal calls": [event(x, delta={"tool_calls": [{"index": 0}]}) for x in "ab"],
    "equal usage": [event(x, usage={"completion_tokens": 1}) for x in "ab"],
    "an error": [event(x, error={"message": "no"}) for x in "ab"],
    "another id": [event("a"), event("b", id="c2")],
    "half a surrogate pair": [event('"\\ud83d"', raw=True), event('"\\ude00"', raw=True)],
    "an escape cut in two": [event('"\\"', raw=True)[:-1] + b'"', event('"n"', raw=True)],
    "an unknown escape": [event("a"), event('"\\x"', raw=True)],
    "a control character": [event("a"), event('"\n"', raw=True)],
    "bytes that are no UTF-8": [event("a"), event("\0b").replace(b"\\u0000", b"\xff")],
    "half of a character": [
        event("?").replace(b"?", "é".encode()[:1]),
        event("?").replace(b"?", "é".encode()[1:]),
    ],
    "content twice": [event(x).replace(b'"delta":{', b'"delta":{"content":"z",') for x in "ab"],
    "content in another place": [
        b'{"content": "a", "choices": []}',
        b'{"content": "b", "choices": []}',
    ],
    "not a string": [event("null", raw=True), event("null", raw=True)],
    "no JSON": [b'{"content": "a"', b'{"content": "b"'],
}


@pytest.mark.parametrize("events", APART.values(), ids=APART.keys())
def test_what_carries_more_than_words_stays_apart(events: list[bytes]) -> None:
    assert Joiner().join(events) == events


@given(st.randoms(use_true_random=False))
def test_joined_events_say_the_same_in_every_field(chance: random.Random) -> None:
    """Random streams, cut at random places into reads."""
    pieces = ["a", "", "é", "😀", '"', "\\", "\n", "{", "content", "\u2028", '"content":"']
    kinds: list[Any] = [lambda: event("".join(chance.choices(pieces, k=chance.randint(0, 3))))] * 6
    kinds += [lambda: chance.choice(chance.choice([*APART.values()])), lambda: b"[DONE]"]
    events = [chance.choice(kinds)() for _ in range(chance.randint(0, 12))]
    joiner, joined, rest = Joiner(), [], events
    while rest:
        cut = chance.randint(1, len(rest))
        joined += joiner.join(rest[:cut])
        rest = rest[cut:]
    assert said(joined) == said(events)
    assert len(joined) <= len(events)


def said(events: list[bytes]) -> tuple[str, list[Any]]:
    """All words, and what the events say besides, without repetitions of the one before."""
    words, others = "", list[Any]()
    for data in events:
        try:
            other = json.loads(data)
            for choice in other["choices"]:
                words += f"{choice['index']}{choice['delta'].pop('content')}"
        except (ValueError, LookupError, TypeError):
            other = data
        others += [] if others[-1:] == [other] else [other]
    return words.replace("0", ""), others
