"""Calls without results, and results without calls: said to the model in their place, and in a note."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.three_apis import APIS, PATHS, Api
from tests.support.tools import GET_WEATHER

Json = dict[str, Any]
Items = list[tuple[str, str]]
"""A question, the model's calls (id and town), results (id and text), or the user's words."""
NONE = "No result of this call came."


def messages_of(api: Api, parts: list[Json]) -> list[Json]:
    """The same conversation in the form of an API."""
    return [one for part in parts for one in _message(api, part)]


def _message(api: Api, part: Json) -> list[Json]:
    match api, part:
        case _, {"user": words}:
            return [{"role": "user", "content": words}]
        case "chat", {"calls": calls}:
            made = [
                {
                    "id": key,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": _town(town)},
                }
                for key, town in calls
            ]
            return [{"role": "assistant", "content": None, "tool_calls": made}]
        case "chat", {"results": results}:
            return [{"role": "tool", "tool_call_id": key, "content": text} for key, text in results]
        case "responses", {"calls": calls}:
            return [
                {
                    "type": "function_call",
                    "call_id": key,
                    "name": "get_weather",
                    "arguments": _town(town),
                }
                for key, town in calls
            ]
        case "responses", {"results": results}:
            return [
                {"type": "function_call_output", "call_id": key, "output": text}
                for key, text in results
            ]
        case "messages", {"calls": calls}:
            made = [
                {"type": "tool_use", "id": key, "name": "get_weather", "input": {"location": town}}
                for key, town in calls
            ]
            return [{"role": "assistant", "content": made}]
        case "messages", {"results": results}:
            blocks = [
                {"type": "tool_result", "tool_use_id": key, "content": text}
                for key, text in results
            ]
            return [{"role": "user", "content": blocks}]
    raise AssertionError(part)


def _town(town: str) -> str:
    return f'{{"location": "{town}"}}'


def body(api: Api, parts: list[Json]) -> Json:
    function = GET_WEATHER["function"]
    messages = messages_of(api, parts)
    match api:
        case "chat":
            return {"model": "m", "messages": messages, "tools": [GET_WEATHER]}
        case "responses":
            tools = [{"type": "function", **function}]
            return {"model": "m", "input": messages, "tools": tools}
        case "messages":
            tool = {"name": "get_weather", "input_schema": function["parameters"]}
            return {"model": "m", "messages": messages, "tools": [tool], "max_tokens": 99}


ASKED = {"user": "Weather?"}
TWO = {"calls": [("c1", "London"), ("c2", "Oslo")]}
ONE = {"calls": [("c1", "London")]}
WARM = {"results": [("c1", "It is warm.")]}
MORE = {"user": "And?"}


def read(town: str, text: str) -> str:
    """A result as the model reads it."""
    return f'```get_weather(location="{town}")\n{text}'


# What the case is, the conversation, texts of the prompt in their order, whether there is a note.
CASES: dict[str, tuple[list[Json], list[str], bool]] = {
    "a result for each": (
        [ASKED, TWO, {"results": [("c2", "Cold."), ("c1", "Warm.")]}],
        ["Cold.", "Warm."],
        False,
    ),
    "one of two": (
        [ASKED, TWO, WARM],
        [read("London", "It is warm."), read("Oslo", NONE)],
        True,
    ),
    "one of two, then words": ([ASKED, TWO, WARM, MORE], ["It is warm.", NONE, "And?"], True),
    "none": ([ASKED, ONE, MORE], [read("London", NONE), "And?"], True),
    "a wrong id": (
        [ASKED, ONE, {"results": [("c9", "It is warm.")]}],
        [read("London", "It is warm.")],
        False,
    ),
    "a wrong id of two": (
        [ASKED, TWO, {"results": [("c9", "It is cold."), ("c1", "It is warm.")]}],
        [read("Oslo", "It is cold."), read("London", "It is warm.")],
        False,
    ),
    "two wrong ids": (
        [ASKED, TWO, {"results": [("c8", "It is cold."), ("c9", "It is warm.")]}],
        ["no longer part", "It is cold.", "It is warm.", NONE, NONE],
        True,
    ),
    "a result without a call": (
        [ASKED, {"results": [("c9", "It is cold.")]}],
        ["no longer part", "It is cold."],
        True,
    ),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("parts", "texts", "has_note"), CASES.values(), ids=CASES)
def test_a_missing_result_is_said_in_its_place_and_noted(
    proxy: str,
    upstream: ScriptedUpstream,
    api: Api,
    parts: list[Json],
    texts: list[str],
    has_note: bool,
) -> None:
    upstream.reply("I see.", "I see.")
    status, headers, answer = send(proxy + PATHS[api], body(api, parts))
    assert status == 200, answer
    assert ("missing-result" in headers.get("x-emulator-notes", "")) == has_note
    prompt = "\n".join(str(message["content"]) for message in upstream.requests[-1]["messages"][1:])
    places = [prompt.find(text) for text in texts]
    assert -1 not in places and places == sorted(places), prompt
    assert any(NONE in text for text in texts) or NONE not in prompt
    if parts[-1] is not MORE:
        return
    later = [*parts, {"user": "Well?"}]
    assert send(proxy + PATHS[api], body(api, later))[0] == 200
    first, second = (one["messages"] for one in upstream.requests)
    assert second[: len(first) - 1] == first[:-1]


def test_a_block_of_messages_is_a_result_in_a_chat(proxy: str, upstream: ScriptedUpstream) -> None:
    """It went to the model's server as it was."""
    upstream.reply("I see.")
    chat = body("chat", [ASKED, ONE])
    block = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "text", "text": "Warm."}],
    }
    words = {"type": "text", "text": "And Oslo?"}
    chat["messages"].append({"role": "user", "content": [block, words]})
    status, headers, _ = send(proxy + PATHS["chat"], chat)
    assert (status, headers.get("x-emulator-notes")) == (200, "no-call")
    prompt = str(upstream.requests[-1]["messages"])
    assert "tool_result" not in prompt
    assert prompt.index("London") < prompt.index("Warm.") < prompt.index("And Oslo?")
