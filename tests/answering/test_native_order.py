"""Native upstreams: words that came before a call are sent before it, over each API, plain and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.answering.test_native import call, frames, piece
from tests.conftest import StartProxy
from tests.support.raw_http import fetch
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.three_apis import APIS, PATHS, Api, request_body
from tests.support.tools import GET_WEATHER

Json = dict[str, Any]


def weather(city: str, index: int = 0) -> Json:
    return call("get_weather", json.dumps({"location": city}), index)


def markup(city: str) -> str:
    inside = json.dumps({"name": "get_weather", "arguments": {"location": city}})
    return f"<tool_call>\n{inside}\n</tool_call>"


def words(*texts: str) -> list[Json]:
    return [{"content": text} for text in texts]


OBJECT = '{"location": "Rome"}'
ORDERS: dict[str, tuple[list[Json], list[str]]] = {
    "a word that may begin a line of code": ([*words("Sure."), weather("Oslo")], ["Sure.", "Oslo"]),
    "words in pieces": ([*words("Su", "re", "."), weather("Oslo")], ["Sure.", "Oslo"]),
    "two calls": (
        [*words("Both."), weather("Oslo"), weather("Rome", 1)],
        ["Both.", "Oslo", "Rome"],
    ),
    "two calls whose fragments alternate": (
        [
            *words("Both."),
            call("get_weather", '{"location": ', 0),
            call("get_weather", '{"location": ', 1),
            piece(None, '"Oslo"}', 0),
            piece(None, '"Rome"}', 1),
        ],
        ["Both.", "Oslo", "Rome"],
    ),
    "words that came with the call": (
        [{**words("Sure.")[0], **weather("Oslo")}],
        ["Sure.", "Oslo"],
    ),
    "words between calls": (
        [weather("Oslo"), *words("And "), weather("Rome", 1)],
        ["And ", "Oslo", "Rome"],  # only the second call says that the first is complete
    ),
    "the start of a tag": ([*words("Now <tool"), weather("Oslo")], ["Now <tool", "Oslo"]),
    "the start of a fence": ([*words("```js"), weather("Oslo")], ["```js", "Oslo"]),
    "a fence that stays open": (
        [*words("```json\n", OBJECT), weather("Oslo")],
        [f"```json\n{OBJECT}", "Oslo"],
    ),
    "markup, words, markup": (
        words(f"{markup('Oslo')} explanation here {markup('Rome')}"),
        ["explanation here", "Oslo", "Rome"],
    ),
    "markup and words": (
        words(f"I look. {markup('Oslo')}", " I have asked."),
        ["I look. I have asked.", "Oslo"],
    ),
    "markup, a fence, markup": (
        words(f"{markup('Oslo')}\n```python\nx = 1\n```\n{markup('Rome')}"),
        ["```python\nx = 1\n```", "Oslo", "Rome"],
    ),
    "markup, words, a call": (
        [*words(f"{markup('Oslo')} And "), weather("Rome")],
        ["And ", "Oslo", "Rome"],
    ),
    "a call that is in the content too": (
        [*words(f"Hm. {markup('Oslo')}"), weather("Oslo")],
        ["Hm. ", "Oslo"],
    ),
    "markup after words that look like a result": (  # it is marked: no list of words decides
        words(f"{markup('Oslo')}\nOut", f"put: 4 degrees.\n{markup('Rome')}"),
        ["Output: 4 degrees.", "Oslo", "Rome"],
    ),
}
"""Deltas of the upstream -> the words and the calls' cities as clients get them."""


def cut(deltas: list[Json]) -> list[Json]:
    """The same deltas with each character of the content in a delta of its own."""
    return [
        one
        for delta in deltas
        for one in (
            [*words(*str(delta["content"])), {k: v for k, v in delta.items() if k != "content"}]
            if "content" in delta
            else [delta]
        )
    ]


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("api", APIS)
def test_words_before_a_native_call_are_sent_before_it(
    start_proxy: StartProxy, upstream: ScriptedUpstream, api: Api, stream: bool, name: str
) -> None:
    """Also if each character comes alone."""
    deltas, expected = ORDERS[name]
    if api == "chat" and not stream:  # a message has no order of words and calls
        expected = merged(sorted(expected, key=lambda part: part in CITIES))
    upstream.reply(frames(*deltas), frames(*cut(deltas)))
    url = start_proxy(tools="native")
    for _ in range(2):
        assert ask(url, api, stream=stream) == [*map(squeezed, expected)]


CITIES = ("Oslo", "Rome")


def merged(parts: list[str]) -> list[str]:
    """Neighbours that are words become one."""
    joined: list[str] = []
    for part in parts:
        if joined and part not in CITIES and joined[-1] not in CITIES:
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def ask(url: str, api: Api, *, stream: bool, **fields: Any) -> list[str]:
    """The words and the cities of an answer, in order, without white space at their ends."""
    body = {**request_body(api, GET_WEATHER, stream=stream), **fields}
    status, _, raw = fetch(url + PATHS[api], body)
    assert status == 200, raw
    if stream:
        lines = raw.decode().split("\n")
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        parts = {"chat": chunk_parts, "responses": item_parts, "messages": block_parts}[api](events)
    else:
        answer = json.loads(raw)
        if api == "chat":
            message = answer["choices"][0]["message"]
            calls = [one["function"]["arguments"] for one in message.get("tool_calls") or ()]
            parts = [message["content"] or "", *map(city, calls)]
        elif api == "responses":
            parts = [*map(item_part, answer["output"])]
        else:
            parts = [*map(block_part, answer["content"])]
    return [squeezed(part) for part in merged(parts) if part.strip()]


def squeezed(text: str) -> str:
    return " ".join(text.split())


def city(arguments: str | Json) -> str:
    made = json.loads(arguments) if isinstance(arguments, str) else arguments
    return str(made["location"])


def item_part(item: Json) -> str:
    if item["type"] == "reasoning":
        return ""
    return item["content"][0]["text"] if item["type"] == "message" else city(item["arguments"])


def block_part(block: Json) -> str:
    return block["text"] if block["type"] == "text" else city(block["input"])


def chunk_parts(chunks: list[Json]) -> list[str]:
    parts: list[str] = []
    for delta in (choice["delta"] for chunk in chunks for choice in chunk["choices"]):
        if delta.get("content"):
            parts.append(delta["content"])
        for made in delta.get("tool_calls") or ():
            if "name" in made["function"]:
                parts.append(_CALL)
            parts[-1] += made["function"].get("arguments") or ""
    return [city(part.removeprefix(_CALL)) if part.startswith(_CALL) else part for part in parts]


_CALL = "call: "


def item_parts(events: list[Json]) -> list[str]:
    return [item_part(e["item"]) for e in events if e["type"] == "response.output_item.done"]


def block_parts(events: list[Json]) -> list[str]:
    parts: list[str] = []
    for event in events:
        if event["type"] == "content_block_start":
            parts.append("")
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            parts[-1] += delta.get("text") or delta.get("partial_json") or ""
        if event["type"] == "content_block_stop" and parts[-1].startswith('{"location"'):
            parts[-1] = city(parts[-1])
    return parts


EMPTY = frames({"content": ""}, finish="stop")
ONE = {"parallel_tool_calls": False}
LIMITS: dict[str, tuple[list[Reply], Json, list[str]]] = {
    "an object where a call is required": (
        [frames(*words("See ", OBJECT), weather("Oslo"))],
        {"tool_choice": "required"},
        [f"See {OBJECT}", "Oslo"],
    ),
    "words of a reply that was asked for again": (
        [EMPTY, frames(*words("Now it works."), weather("Oslo"))],
        {},
        ["Now it works.", "Oslo"],
    ),
    "one call at a time, markup first": (
        [frames(*words(markup("Oslo")), weather("Rome"))],
        ONE,
        ["Oslo"],
    ),
    "one call at a time, markup last": (
        [frames(weather("Oslo"), weather("Rome", 1), *words(markup("Rome")))],
        ONE,
        ["Oslo"],
    ),
    "a draft in the thoughts before a call": (
        [frames(*words(f"<think>{markup('Rome')}</think>"), weather("Oslo"))],
        {},
        ["Oslo"],
    ),
}
"""The upstream's replies, fields of the request, and the words and cities as clients get them."""


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_native_call_follows_its_words_whatever_the_request_limits(
    start_proxy: StartProxy, upstream: ScriptedUpstream, api: Api, name: str
) -> None:
    replies, fields, expected = LIMITS[name]
    upstream.reply(*replies)
    url = start_proxy(tools="native")
    assert ask(url, api, stream=True, **fields) == expected
