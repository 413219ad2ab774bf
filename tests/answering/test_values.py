"""What stands inside of a value ends nothing, and no value arrives other than it was written."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.support.chat import ASK, BOTH, calls
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER, SEND_MAIL

TOOLS = [GET_WEATHER, SEND_MAIL]
TAGS = "Close </tool_call> and </function>, then <|im_end|> or </s>.\nBye.\n"
MAIL = [("send_mail", {"to": "a@b.c", "body": TAGS})]
IN_JSON = json.dumps({"name": "send_mail", "arguments": {"to": "a@b.c", "body": TAGS}})

WRITTEN = {
    "Hermes": (f"<tool_call>\n{IN_JSON}\n</tool_call>", MAIL),
    "Mistral": (f"[TOOL_CALLS][{IN_JSON}]", MAIL),
    "Liquid": (f"<|tool_call_start|>[send_mail(to='a@b.c', body={TAGS!r})]<|tool_call_end|>", MAIL),
    "tool_code": (f"<tool_code>\nsend_mail(to='a@b.c', body={TAGS!r})\n</tool_code>", MAIL),
    "Qwen3-Coder": (
        "<tool_call>\n<function=send_mail>\n<parameter=to>\na@b.c\n</parameter>\n"
        f"<parameter=body>\n{TAGS}\n</parameter>\n</function>\n</tool_call>",
        MAIL,
    ),
    "Claude": (
        '<function_calls>\n<invoke name="send_mail">\n<parameter name="to">a@b.c</parameter>\n'
        f'<parameter name="body">{TAGS}</parameter>\n</invoke>\n</function_calls>',
        MAIL,
    ),
    "GLM": (
        "<tool_call>send_mail\n<arg_key>to</arg_key>\n<arg_value>a@b.c</arg_value>\n"
        f"<arg_key>body</arg_key>\n<arg_value>{TAGS}</arg_value>\n</tool_call>",
        MAIL,
    ),
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
@pytest.mark.parametrize(("written", "meant"), WRITTEN.values(), ids=WRITTEN)
def test_a_value_arrives_as_it_was_written(
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
}


@BOTH
@pytest.mark.parametrize("written", ASKED.values(), ids=ASKED)
def test_what_is_no_call_and_no_answer_is_asked_about_and_never_shown(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, written: str
) -> None:
    upstream.reply(written, PARIS)
    completion = ask(client, model="m", messages=ASK, tools=TOOLS)
    assert calls(completion) == [("get_weather", {"location": "Paris"})]
    assert not completion.choices[0].message.content
    assert len(upstream.requests) == 2
