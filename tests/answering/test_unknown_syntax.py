"""Text in no known syntax that has all parts of a call: the model is asked about it, and prose is not."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.support.chat import BOTH, calls
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

MAIL = function("send_mail", strings("to", "subject"))
PING = function("ping", {})
ASK: list[Any] = [{"role": "user", "content": "Write to Eve."}]
LABELLED = '```tool_code\nsend_mail(to="eve", subject="Hi")\n```'
MAILED = [("send_mail", {"to": "eve", "subject": "Hi"})]
WRITTEN = [
    '["send_mail(to=eve, subject=Hi there)"]',
    "['send_mail(to=eve, subject=Hi there)', 'send_mail(to=bob, subject=Hi)']",
    "[('send_mail', {'to': 'eve', 'subject': 'Hi'})]",
    '["send_mail", {"to": "eve", "subject": "Hi"}]\n',
    '[["sendMail", {"to": "eve", "subject": "Hi"}]]',
]


@BOTH
@pytest.mark.parametrize("text", WRITTEN)
def test_the_model_is_asked_about_a_call_in_an_unknown_syntax(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, text: str
) -> None:
    upstream.reply(text, LABELLED)
    completion = ask(client, model="m", messages=ASK, tools=[MAIL, PING])
    assert (calls(completion), completion.choices[0].message.content) == (MAILED, text.strip())
    first, second = (request["messages"] for request in upstream.requests)
    assert second[: len(first)] == first
    assert second[len(first)] == {"role": "assistant", "content": text}
    assert "this syntax of a call is unknown" in second[-1]["content"]
    assert text.strip() in second[-1]["content"]


@BOTH
@pytest.mark.parametrize("answer", ["NO", "I only showed it."])
def test_without_a_better_reply_the_text_is_the_answer(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, answer: str
) -> None:
    upstream.reply(WRITTEN[0], answer)
    completion = ask(client, model="m", messages=ASK, tools=[MAIL])
    assert (calls(completion), completion.choices[0].message.content) == ([], WRITTEN[0])


@BOTH
@pytest.mark.parametrize(
    "text",
    [
        "I would call send_mail with to and subject.",
        "I would call send_mail: to = eve, subject = Hi.",
        "send_mail needs (to: who, subject: what).",
        f"You could write {WRITTEN[0]}.",
        f"{WRITTEN[0]} would do it.",
        '["send_mail(to=Eve Smith)"]',
        '["send_mail", "ping"]',
        '["unknown(to=eve, subject=Hi)"]',
        '{"to": "eve"}',
        '{"to": "eve", "subject": "Hi", "cc": "bob"}',
        '{"to": "eve", "subject": "Hi"} is what send_mail takes.',
        '{"to": "eve", "subject": "Hi"}\n{"to": "bob", "subject": "Hi"}',
        "{}",
        '[{"to": "eve", "subject": "send_mail("}]',
        "- send_mail(to, subject)\n- ping()",
    ],
)
def test_prose_and_other_data_are_an_answer(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, text: str
) -> None:
    upstream.reply(text)
    completion = ask(client, model="m", messages=ASK, tools=[MAIL, PING])
    assert (calls(completion), completion.choices[0].message.content) == ([], text)
    assert len(upstream.requests) == 1


NAMELESS = '{"to": "eve", "subject": "Hi"}'


@BOTH
@pytest.mark.parametrize("text", [NAMELESS, f"```json\n{NAMELESS}\n```"])
@pytest.mark.parametrize(("answer", "made"), [("RUN", MAILED), (LABELLED, MAILED), ("NO", [])])
def test_the_model_is_asked_about_arguments_that_only_one_function_takes(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, text: str, answer: str, made: Any
) -> None:
    upstream.reply(text, answer)
    completion = ask(client, model="m", messages=ASK, tools=[MAIL, PING])
    assert (calls(completion), completion.choices[0].message.content) == (made, text)
    assert "send_mail(" in upstream.requests[1]["messages"][-1]["content"]


@BOTH
def test_arguments_that_several_functions_take_are_an_answer(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    upstream.reply(NAMELESS)
    tools = [MAIL, function("draft_mail", strings("to", "subject"))]
    assert calls(ask(client, model="m", messages=ASK, tools=tools)) == []
    assert len(upstream.requests) == 1


@BOTH
def test_about_a_quoted_list_only_run_decides(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any
) -> None:
    page = [{"role": "user", "content": f"What does this say?\n> {WRITTEN[0]}"}]
    upstream.reply(WRITTEN[0], LABELLED)
    completion = ask(client, model="m", messages=page, tools=[MAIL])
    assert calls(completion) == []
