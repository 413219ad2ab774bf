"""A request that wants to see a call, or to be asked first, withholds the tools that act."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from emulator.answering.user_request import Request
from emulator.protocol import Message
from emulator.tools.toolset import Toolset
from tests.conftest import StartProxy
from tests.support.chat import BOTH
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER, SEND_MAIL, function, strings

ROWS = [
    line.split("\t")
    for line in (Path(__file__).parent / "withheld_calls.tsv").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
FIRST = "Invite Ana to lunch, but ask me first."
MAIL = '{"calls": [{"name": "send_mail", "arguments": {"to": "ana@x.example", "body": "Lunch?"}}]}'
SHOWN = "```python\nsend_mail(**{'to': 'ana@x.example', 'body': 'Lunch?'})\n```"
SCHEMA = {"profiles": ({"name": "constrained", "pattern": ".", "grammar": "json_schema"},)}
PROMPT = {"profiles": ({"name": "constrained", "pattern": ".", "grammar": "prompt"},)}


def withheld(text: str, name: str) -> bool:
    parameters = {**strings("value"), "x-read-only": False}
    [tool] = Toolset.parse([function(name, parameters)]).tools
    return Request([Message(role="user", content=text)]).withholds(tool)


@pytest.mark.parametrize(("kind", "name", "text"), [(k, n, t) for k, _, n, t in ROWS])
def test_only_a_call_that_the_user_withholds_is_withheld(kind: str, name: str, text: str) -> None:
    assert withheld(text, name) == (kind == "withheld")


def test_a_long_request_withholds_nothing() -> None:
    """It describes later steps, other people and standing rules."""
    assert withheld("Ask me first. " + "Read on. " * 50, "send_mail")
    assert not withheld("Ask me first. " + "Read on. " * 100, "send_mail")


def ways(body: dict[str, Any]) -> list[str]:
    """What the schema of a request upstream allows: "say", or names of functions."""
    schema = body["response_format"]["json_schema"]["schema"]
    found: list[str] = []
    for part in schema.get("anyOf", [schema]):
        listed = part["properties"].get("calls")
        items = listed["items"].get("anyOf", [listed["items"]]) if listed else []
        found += [item["properties"]["name"]["const"] for item in items] or ["say"]
    return found


@pytest.mark.parametrize(
    ("request_text", "fields", "allowed"),
    [
        ("Invite Ana to lunch.", {}, ["say", "get_weather", "send_mail"]),
        (FIRST, {}, ["say", "get_weather"]),
        (FIRST, {"tools": [SEND_MAIL]}, ["say"]),
        (FIRST, {"tool_choice": "required"}, ["get_weather", "send_mail"]),
    ],
)
def test_the_schema_leaves_out_what_the_user_withholds(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    request_text: str,
    fields: dict[str, Any],
    allowed: list[str],
) -> None:
    upstream.reply(MAIL if "send_mail" in allowed else '{"say": "Shall I?"}')
    proxy = start_proxy(**SCHEMA)
    body = {
        "messages": [{"role": "user", "content": request_text}],
        "tools": [GET_WEATHER, SEND_MAIL],
    }
    status, _, _ = send(f"{proxy}/v1/chat/completions", {"model": "m", **body, **fields})
    assert status == 200
    assert ways(upstream.requests[0]) == allowed


@BOTH
@pytest.mark.parametrize(
    "settings", [SCHEMA, PROMPT, {"profile": "tiny"}], ids=["schema", "prompt", "tiny"]
)
def test_a_withheld_call_is_shown_and_made_once_the_user_agrees(
    start_proxy: StartProxy, upstream: ScriptedUpstream, ask: Any, settings: Any
) -> None:
    """With words around it the model would have been asked; here nothing but the request tells."""
    upstream.reply(MAIL, MAIL)
    history: list[Any] = [{"role": "user", "content": FIRST}]
    with openai.OpenAI(base_url=f"{start_proxy(**settings)}/v1", api_key="any") as client:
        message = ask(client, model="m", messages=history, tools=[SEND_MAIL]).choices[0].message
        assert (message.content, message.tool_calls or []) == (SHOWN, [])
        history += [{"role": "assistant", "content": SHOWN}, {"role": "user", "content": "Yes."}]
        message = ask(client, model="m", messages=history, tools=[SEND_MAIL]).choices[0].message
    [call] = message.tool_calls
    assert json.loads(call.function.arguments)["to"] == "ana@x.example"
    [_, second] = upstream.requests
    assert any(json.dumps({"say": SHOWN}) == each["content"] for each in second["messages"])


@BOTH
def test_after_a_result_the_request_still_withholds(
    start_proxy: StartProxy, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply('{"calls": [{"name": "get_weather", "arguments": {"location": "Oslo"}}]}', MAIL)
    history: list[Any] = [{"role": "user", "content": f"Check the weather in Oslo. {FIRST}"}]
    offered = [GET_WEATHER, SEND_MAIL]
    with openai.OpenAI(base_url=f"{start_proxy(**SCHEMA)}/v1", api_key="any") as client:
        message = ask(client, model="m", messages=history, tools=offered).choices[0].message
        [call] = message.tool_calls
        result = {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}
        history += [message.to_dict(), result]
        message = ask(client, model="m", messages=history, tools=offered).choices[0].message
    assert (message.content, message.tool_calls or []) == (SHOWN, [])
    assert ways(upstream.requests[1]) == ["say", "get_weather"]
