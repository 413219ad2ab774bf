"""Upstreams that do not write chunks as OpenAI does: the answer is right, repaired, or a 502 that quotes what
came; in all APIs, plain and streamed, whether the upstream or the proxy makes the calls."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.conftest import StartProxy
from tests.support.mutations import mutated
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.three_apis import APIS, Api, Outcome, ask
from tests.support.tools import function

WEATHER = function(
    "get_weather",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
Json = dict[str, Any]
Calls = tuple[tuple[str, Json], ...]
OSLO = '{"city": "Oslo"}'
TO_OSLO = ("get_weather", {"city": "Oslo"})
TO_ROME = ("get_weather", {"city": "Rome"})
COUNT = int(os.environ.get("FUZZ_CHUNKS", "60"))


def chunk(delta: Any, finish: Any = None, **fields: Any) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **fields}
    return {"id": "c-1", "object": "chat.completion.chunk", "created": 5, "choices": [choice]}


def content(value: Any) -> list[Any]:
    return [chunk({"role": "assistant", "content": value}), chunk({}, "stop")]


def calls(*pieces: Any, finish: str = "tool_calls") -> list[Any]:
    return [*(chunk({"tool_calls": [piece]}) for piece in pieces), chunk({}, finish)]


def piece(
    index: Any = None, key: Any = None, name: Any = None, arguments: Any = None, **fields: Any
) -> Json:
    inner = {n: v for n, v in (("name", name), ("arguments", arguments)) if v is not None}
    marks = {n: v for n, v in (("index", index), ("id", key)) if v is not None}
    return {**marks, "type": "function", "function": inner, **fields}


def without(event: Json, *names: str) -> Json:
    [choice] = event["choices"]
    kept = {name: value for name, value in choice.items() if name not in names}
    return {**event, "choices": [kept]}


def document(message: Json, **fields: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": "stop", **fields}
    return json.dumps({"object": "chat.completion", "choices": [choice]}, indent=1).encode()


def reply(events: list[Any] | bytes, *, done: bool = True) -> Reply:
    if isinstance(events, bytes):
        return Reply(frames=[events])
    frames = [
        event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode() + b"\n\n"
        for event in events
    ]
    return Reply(frames=[*frames, *([b"data: [DONE]\n\n"] if done else [])])


# fmt: off
HELLO = Outcome(200, "Hello!")
# What came, and what an answer of text is.
TEXTS: dict[str, tuple[list[Any] | bytes, Outcome]] = {
    "no index": ([without(event, "index") for event in content("Hello!")], HELLO),
    "an index as text": ([chunk({"content": "Hello!"}, "stop", index="0")], HELLO),
    "an index from one": ([chunk({"content": "Hello!"}, "stop", index=1)], HELLO),
    "two choices": (
        [{"choices": [
            {"index": 0, "delta": {"content": "Hello!"}, "finish_reason": "stop"},
            {"index": 1, "delta": {"content": "Bye"}},
        ]}],
        HELLO,
    ),
    "parts (Mistral)": (content([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo!"}]), HELLO),
    "a reference (Mistral)": (
        content([{"type": "text", "text": "Hello!"}, {"type": "reference", "reference_ids": [1]}]),
        HELLO,
    ),
    "thinking parts (Mistral)": (
        [
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
            *content([{"type": "text", "text": "Hello!"}]),
        ],
        Outcome(200, "Hello!", reasoning="Hm."),
    ),
    "a list of strings": (content(["Hello", "!"]), HELLO),
    "a message instead of a delta": (
        [without(chunk(None, "stop", message={"content": "Hello!"}), "delta")], HELLO,
    ),
    "a JSON answer": (document({"role": "assistant", "content": "Hello!"}), HELLO),
    "a JSON answer without a reason": (document({"content": "Hello!"}, finish_reason=None), HELLO),
    "no blank line at the end": (
        b"data: " + json.dumps(chunk({"content": "Hello!"}, "stop")).encode(), HELLO,
    ),
    "empty events": ([b"data:\n\n", *content("Hello!"), b"data: [DONE] \n\n"], HELLO),
    "a role that is none": ([chunk({"role": 5, "content": "Hello!"}, "stop")], HELLO),
    "no id": ([{"choices": event["choices"]} for event in content("Hello!")], HELLO),
    "usage that is none": ([{**event, "usage": ["many"]} for event in content("Hello!")], HELLO),
    "usage in floats": (
        [{**event, "usage": {"prompt_tokens": 3.0, "completion_tokens": "2"}} for event in content("Hello!")],
        HELLO,
    ),
    "log probabilities that are none": ([chunk({"content": "Hello!"}, "stop", logprobs=[1])], HELLO),
    "log probabilities of no bytes": (
        [chunk({"content": "Hello!"}, "stop", logprobs={
            "content": [{"token": "Hello!", "logprob": -1, "bytes": [None]}]
        })],
        HELLO,
    ),
    "log probabilities without alternatives": (
        [chunk({"content": "Hello!"}, "stop", logprobs={"content": [{"token": "Hello!", "logprob": -1}]})],
        HELLO,
    ),
    "alternatives that are none": (
        [chunk({"content": "Hello!"}, "stop", logprobs={
            "content": [{"token": "Hello!", "logprob": -1, "top_logprobs": ["Hi!"]}]
        })],
        HELLO,
    ),
    "null tool calls": (
        [chunk({"content": "Hello!", "tool_calls": None, "function_call": None}, "stop")], HELLO,
    ),
    "no tool calls": ([chunk({"content": "Hello!", "tool_calls": ""}, "stop")], HELLO),
    "an unknown reason": ([chunk({"content": "Hello!"}, "eos_token")], HELLO),
    "text for tool_calls": ([chunk({"tool_calls": "get_weather"})], Outcome(502, error='"get_weather"')),
    "numbers for tool_calls": ([chunk({"tool_calls": [17, 4]})], Outcome(502, error="17")),
    "text for a function": ([chunk({"tool_calls": [{"function": "f"}]})], Outcome(502, error='"f"')),
    "a number for a name": (calls(piece(0, "a", 17)), Outcome(502, error="17")),
    "a number for content": (content(17), Outcome(502, error="17")),
    "an object for content": (content([{"type": "image_url"}]), Outcome(502, error="image_url")),
    "text for a delta": ([chunk("Hello!")], Outcome(502, error='"Hello!"')),
    "text for a choice": ([{"choices": ["Hello!"]}], Outcome(502, error='"Hello!"')),
    "text for choices": ([{"choices": "Hello!"}], Outcome(502, error='"Hello!"')),
    "a list": ([[1, 2]], Outcome(502, error="[1, 2]")),
    "no JSON": ([b"data: {Hello!\n\n"], Outcome(502, error="{Hello!")),
    "a page": (b"<html>It works!</html>", Outcome(502, error="<html>It works!")),
    "a number for a reason": ([chunk({"content": ""}, 17)], Outcome(502, error="17")),
    "an index that is none": ([chunk({}, index="first")], Outcome(502, error='"first"')),
    "an error of another shape": ([{"error": {"detail": [1]}}], Outcome(502, error="[1]")),
    "too deep": (
        [b'data: {"choices": [{"delta": {"content": ' + b"[" * 500 + b"]" * 500 + b"}}]}\n\n"],
        Outcome(502, error="levels"),
    ),
}
# What came, and the calls in it; a request without tools never gets one.
CALLS: dict[str, tuple[list[Any] | bytes, Calls]] = {
    "indices that are no integers": (calls(piece("first", "a", "get_weather", OSLO)), (TO_OSLO,)),
    "indices as floats": (calls(piece(0.0, "a", "get_weather", OSLO)), (TO_OSLO,)),
    "numbers for ids": (calls(piece(0, 17, "get_weather", OSLO)), (TO_OSLO,)),
    "one call without a list": (
        [chunk({"tool_calls": piece(0, "a", "get_weather", OSLO)}), chunk({}, "tool_calls")],
        (TO_OSLO,),
    ),
    "parallel calls that alternate": (
        calls(
            piece(0, "a", "get_weather", ""),
            piece(1, "b", "get_weather", ""),
            piece(0, arguments='{"city": '),
            piece(1, arguments='{"city": '),
            piece(0, arguments='"Oslo"}'),
            piece(1, arguments='"Rome"}'),
        ),
        (TO_OSLO, TO_ROME),
    ),
    "a rising index without id or name": (
        calls(
            piece(0, "a", "get_weather", '{"ci'), piece(1, arguments='ty": "Os'), piece(2, arguments='lo"}')
        ),
        (TO_OSLO,),
    ),
    "function_call": (
        [
            chunk({"function_call": {"name": "get_weather", "arguments": ""}}),
            chunk({"function_call": {"arguments": OSLO}}),
            chunk({}, "function_call"),
        ],
        (TO_OSLO,),
    ),
    "a JSON answer": (
        document({"content": None, "tool_calls": [
            {"id": city, "type": "function", "function": {"name": "get_weather", "arguments": {"city": city}}}
            for city in ("Oslo", "Rome")
        ]}),
        (TO_OSLO, TO_ROME),
    ),
    "in the content too": (
        [
            chunk({"content": f'<tool_call>\n{{"name": "get_weather", "arguments": {OSLO}}}\n</tool_call>'}),
            *calls(piece(0, "a", "get_weather", OSLO)),
        ],
        (TO_OSLO,),
    ),
    "in the content afterwards": (
        [
            *calls(piece(0, "a", "get_weather", OSLO))[:1],
            chunk({"content": f'<tool_call>\n{{"name": "get_weather", "arguments": {OSLO}}}\n</tool_call>'}),
            chunk({}, "stop"),
        ],
        (TO_OSLO,),
    ),
    "a fence of tool_code": (content('```tool_code\nget_weather(city="Oslo")\n```'), (TO_OSLO,)),
}
MODES = {
    "relayed": ({}, None),
    "emulated": ({}, WEATHER),
    "native": ({"tools": "native"}, WEATHER),
}
MODE = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
def start_mode(start_proxy: StartProxy) -> Any:
    return lambda mode: start_proxy(upstream_retries=0, **MODES[mode][0])


@MODE
@pytest.mark.parametrize("case", TEXTS)
def test_an_odd_text_is_read_or_quoted(
    start_mode: Any, upstream: ScriptedUpstream, mode: str, case: str
) -> None:
    events, expected = TEXTS[case]
    url, tool = start_mode(mode), MODES[mode][1]
    upstream.default = reply(events)
    for api in APIS:
        for stream in (False, True):
            got = ask(url, api, tool, stream=stream)
            if expected.status == 502:
                assert expected.error in got.error and (stream or got.status == 502), (api, stream)
            elif api == "messages":  # which returns no reasoning that it cannot sign, unless asked
                assert (got.text, got.error) == (expected.text, ""), (api, stream)
            else:
                assert got == expected, (api, stream)


@pytest.mark.parametrize("mode", ["emulated", "native"])
@pytest.mark.parametrize("case", CALLS)
def test_an_oddly_written_call_is_read(
    start_mode: Any, upstream: ScriptedUpstream, mode: str, case: str
) -> None:
    events, expected = CALLS[case]
    url, tool = start_mode(mode), MODES[mode][1]
    upstream.default = reply(events)
    for api in APIS:
        for stream in (False, True):
            got = ask(url, api, tool, stream=stream)
            assert (got.calls, got.error) == (expected, ""), (api, stream)


def test_without_tools_a_call_is_an_error_unless_the_reply_has_words(
    start_mode: Any, upstream: ScriptedUpstream
) -> None:
    url = start_mode("relayed")
    call = calls(piece(0, "a", "get_weather", OSLO))
    for api in APIS:
        for stream in (False, True):
            upstream.reply(reply(call), reply([*content("Hello!")[:1], *call]))
            assert "get_weather" in ask(url, api, None, stream=stream).error
            assert ask(url, api, None, stream=stream).text == "Hello!"


GOOD: list[list[Any]] = [
    content("Hello!"),
    [*content([{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}])[:1], *content("Hello!")],
    [chunk({"reasoning_content": "Hm."}), *content('```tool_code\nget_weather("Oslo")\n```')],
    calls(
        piece(0, "a", "get_weather", '{"city": '), piece(0, arguments='"Oslo"}'),
        piece(1, "b", "get_weather", OSLO),
    ),
    [chunk({"function_call": {"name": "get_weather", "arguments": OSLO}}), chunk({}, "function_call")],
    [
        *content("Hello!"),
        {"id": "c-1", "choices": [], "usage": {
            "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 1},
        }},
    ],
    [
        chunk({"content": "Hello!"}, logprobs={"content": [
            {"token": "Hello!", "logprob": -0.5, "bytes": None, "top_logprobs": []}
        ]}),
        chunk({}, "stop"),
    ],
    [{"error": {"message": "it broke", "code": 5}}],
    [{"choices": [{"index": 0, "finish_reason": "stop", "message": {
        "content": "Hello!", "tool_calls": [piece(0, "a", "get_weather", OSLO)]
    }}]}],
]
# fmt: on


def test_no_chunk_makes_the_proxy_fail(start_mode: Any, upstream: ScriptedUpstream) -> None:
    """`make fuzz` tries thousands (FUZZ_CHUNKS)."""
    urls = {mode: start_mode(mode) for mode in MODES}
    statuses: Counter[int] = Counter()

    @settings(max_examples=COUNT, suppress_health_check=[*HealthCheck])
    @given(
        st.randoms(use_true_random=False),
        st.sampled_from([*MODES]),
        st.sampled_from(APIS),
        st.booleans(),
    )
    def send(dice: random.Random, mode: str, api: Api, stream: bool) -> None:
        events = mutated(dice, dice.choice(GOOD))
        frames = [_frame(event) for event in (events if isinstance(events, list) else [events])]
        note(f"{frames}"[:3000])
        upstream.default = Reply(frames=[*frames, b"data: [DONE]\n\n"])
        got = ask(urls[mode], api, MODES[mode][1], stream=stream)
        statuses[got.status] += 1
        assert got.status in (200, 502) and "The proxy failed" not in got.error
        assert got.status == 200 or got.error

    send()
    assert statuses[200]


def _frame(event: Any) -> bytes:
    text = json.dumps(event).encode("utf-8", "replace").replace(b"\n", b" ")
    return b"data: " + text + b"\n\n"
