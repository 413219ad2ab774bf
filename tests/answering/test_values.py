"""Markup inside of a value ends nothing, and each value reaches the client exactly as written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.support.chat import ASK, BOTH, calls
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER, SEND_MAIL

TOOLS = [GET_WEATHER, SEND_MAIL]
TAGS = "Close </tool_call> and </function>, then <|im_end|> or </s>.\nBye.\n"
UNFINISHED = (
    "INSERT INTO users VALUES ('Bob')",
    "Enter the building",
    "Your refund",
    "my notes.txt",
    "[a-z]",
    "[TODO]",
    "<Button>",
    "<city name>",
    "{{ title }}",
    "{name}",
    "xxx",
    "...",
    "YOUR_API_KEY",
    "Set YOUR_TOKEN first",
    "/path/to/file.txt",
    "ann@example.com",
)
"""Values that somebody could take for something that is still to be filled in."""


def in_json(body: str) -> str:
    return json.dumps({"name": "send_mail", "arguments": {"to": "a@b.c", "body": body}})


SYNTAXES: dict[str, Callable[[str], str]] = {
    "Hermes": lambda body: f"<tool_call>\n{in_json(body)}\n</tool_call>",
    "Mistral": lambda body: f"[TOOL_CALLS][{in_json(body)}]",
    "Liquid": lambda body: (
        f"<|tool_call_start|>[send_mail(to='a@b.c', body={body!r})]<|tool_call_end|>"
    ),
    "tool_code": lambda body: f"<tool_code>\nsend_mail(to='a@b.c', body={body!r})\n</tool_code>",
    "Qwen3-Coder": lambda body: (
        "<tool_call>\n<function=send_mail>\n<parameter=to>\na@b.c\n</parameter>\n"
        f"<parameter=body>\n{body}\n</parameter>\n</function>\n</tool_call>"
    ),
    "Claude": lambda body: (
        '<function_calls>\n<invoke name="send_mail">\n<parameter name="to">a@b.c</parameter>\n'
        f'<parameter name="body">{body}</parameter>\n</invoke>\n</function_calls>'
    ),
    "GLM": lambda body: (
        "<tool_call>send_mail\n<arg_key>to</arg_key>\n<arg_value>a@b.c</arg_value>\n"
        f"<arg_key>body</arg_key>\n<arg_value>{body}</arg_value>\n</tool_call>"
    ),
    "JSON": in_json,
    "JSON in a fence": lambda body: f"```json\n{in_json(body)}\n```",
    "Python": lambda body: f"send_mail(to='a@b.c', body={body!r})",
    "Python in a fence": lambda body: f"```python\nsend_mail(to='a@b.c', body={body!r})\n```",
    "a variable": lambda body: f"```python\ntext = {body!r}\nsend_mail('a@b.c', text)\n```",
    "an object": lambda body: f"```python\nsend_mail(**{{'to': 'a@b.c', 'body': {body!r}}})\n```",
}
WRITTEN = {
    **{
        name: (written(TAGS), [("send_mail", {"to": "a@b.c", "body": TAGS})])
        for name, written in SYNTAXES.items()
    },
    "Qwen3-Coder without closing tags": (
        "<tool_call>\n<function=get_weather>\n<parameter=location>\nParis\n<parameter=unit>\n"
        "celsius\n</function>\n</tool_call>",
        [("get_weather", {"location": "Paris", "unit": "celsius"})],
    ),
    "an emoji in two escapes": (
        r'<tool_call>{"name": "get_weather", "arguments": {"location": "\ud83d\ude00"}}</tool_call>',
        [("get_weather", {"location": "\U0001f600"})],
    ),
}


@BOTH
@pytest.mark.parametrize("write", SYNTAXES.values(), ids=SYNTAXES)
def test_a_value_that_looks_unfinished_is_a_value(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, write: Callable[[str], str]
) -> None:
    """The call was shown instead, with its special tokens, unless the conversation named the value."""
    for value in UNFINISHED:
        upstream.reply(write(value))
        completion = ask(client, model="m", messages=ASK, tools=TOOLS)
        assert calls(completion) == [("send_mail", {"to": "a@b.c", "body": value})]
        assert not completion.choices[0].message.content
    assert len(upstream.requests) == len(UNFINISHED)


@BOTH
@pytest.mark.parametrize(("written", "meant"), WRITTEN.values(), ids=WRITTEN)
def test_a_value_reaches_the_client_exactly_as_written(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, written: str, meant: Any
) -> None:
    upstream.reply(written)
    completion = ask(client, model="m", messages=ASK, tools=TOOLS)
    assert calls(completion) == meant
    assert not completion.choices[0].message.content
    assert len(upstream.requests) == 1


PARIS = '{"name": "get_weather", "arguments": {"location": "Paris"}}'
ASKED = {
    "half of a surrogate pair": PARIS.replace("Paris", r"\ud83d"),
    "half of a surrogate pair in Python": r"```python"
    "\n"
    r'get_weather(location="\ud83d")'
    "\n```",
    "closing tags alone": "</parameter>\n</function>\n</tool_call>",
    "an argument without its call": "<arg_key>location</arg_key><arg_value>Paris</arg_value>",
    "tags around nothing": "<tool_call></tool_call>",
    "a name without a value": "```python\nget_weather(location=YOUR_CITY)\n```",
    "dots instead of a value": "```python\nget_weather(location=...)\n```",
}


@BOTH
@pytest.mark.parametrize("written", ASKED.values(), ids=ASKED)
def test_a_reply_that_is_neither_a_call_nor_an_answer_is_repaired_and_never_shown(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, written: str
) -> None:
    upstream.reply(written, PARIS)
    completion = ask(client, model="m", messages=ASK, tools=TOOLS)
    assert calls(completion) == [("get_weather", {"location": "Paris"})]
    assert not completion.choices[0].message.content
    assert len(upstream.requests) == 2
