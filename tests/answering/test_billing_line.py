"""Claude Code's billing line, which changes with each request, reaches no model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.raw_http import fetch
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

LINE = "x-anthropic-billing-header: cc_version=2.1.197; cc_entrypoint=cli; cch={};"
ASK = {"role": "user", "content": "Hi"}
HELLO = {"role": "assistant", "content": "Hello."}


def blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def messages(system: Any, *turns: Any) -> dict[str, Any]:
    return {"system": system, "messages": [ASK, *turns], "max_tokens": 50}


def chat(*system: Any) -> dict[str, Any]:
    return {"messages": [*system, ASK]}


def turn(content: Any, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": content}


# What the client sends, and the system messages that the model gets.
SHAPES: list[Any] = [
    pytest.param(messages(f"{LINE}\nBe brief."), ["Be brief."], id="first line of a text"),
    pytest.param(messages(f"Be\n{LINE}\nbrief."), ["Be\nbrief."], id="line inside a text"),
    pytest.param(messages(f"Be brief.\n{LINE}"), ["Be brief.\n"], id="last line of a text"),
    pytest.param(messages(f"{LINE}\r\nBe brief."), ["Be brief."], id="CRLF"),
    pytest.param(messages(f"{LINE}\n\nBe brief."), ["\nBe brief."], id="only its own line end"),
    pytest.param(messages(LINE), [], id="the whole text"),
    pytest.param(messages(blocks(LINE)), [], id="the only block"),
    pytest.param(messages(blocks(LINE, "Be brief.")), ["Be brief."], id="first block"),
    pytest.param(messages(blocks("Be", LINE, "brief.")), ["Be\n\nbrief."], id="block in between"),
    pytest.param(
        messages(blocks(f"{LINE}\nYou are Claude.", "Be brief.")),
        ["You are Claude.\n\nBe brief."],
        id="first line of a block with instructions",
    ),
    pytest.param(
        messages(blocks("You are Claude.", f"Be\n{LINE}\nbrief.")),
        ["You are Claude.\n\nBe\nbrief."],
        id="line inside a block",
    ),
    pytest.param(
        messages("Be brief.", HELLO, turn(f"{LINE}\nBe kind."), ASK),
        ["Be brief.", "Be kind."],
        id="system turn",
    ),
    pytest.param(
        messages("Be brief.", HELLO, turn(blocks(LINE, "Be kind.")), ASK),
        ["Be brief.", "Be kind."],
        id="block of a system turn",
    ),
    pytest.param(
        messages("Be brief.", HELLO, turn(LINE), ASK), ["Be brief."], id="a whole system turn"
    ),
    pytest.param(chat(turn(f"{LINE}\nBe brief.")), ["Be brief."], id="chat"),
    pytest.param(chat(turn(f"Be\n{LINE}\nbrief.")), ["Be\nbrief."], id="chat, line inside"),
    pytest.param(chat(turn(LINE), turn("Be brief.")), ["Be brief."], id="chat, a message"),
    pytest.param(chat(turn(blocks(f"{LINE}\nBe brief."))), ["Be brief."], id="chat, part's line"),
    pytest.param(chat(turn(blocks(LINE, "Be brief."))), ["Be brief."], id="chat, whole part"),
    pytest.param(
        chat(turn("Be brief."), HELLO, ASK, turn(f"{LINE}\nBe kind.")),
        ["Be brief.", "Be kind."],
        id="chat, later message",
    ),
    pytest.param(
        chat(turn(f"{LINE}\nBe brief.", "developer")), ["Be brief."], id="chat, developer"
    ),
    pytest.param(
        chat(turn(f"Write no {LINE}")), ["Write no " + LINE.format(1)], id="a mention within a line"
    ),
]


def sent(proxy: str, upstream: ScriptedUpstream, body: dict[str, Any], value: int) -> Any:
    """The messages that the model gets when the line has this value."""
    upstream.reply("Hello.")
    path = "messages" if "max_tokens" in body else "chat/completions"
    status, _, data = fetch(f"{proxy}/v1/{path}", filled({"model": "m", **body}, value))
    assert status == 200, data
    return upstream.requests[-1]["messages"]


def filled(value: Any, number: int) -> Any:
    match value:
        case str():
            return value.replace("{}", str(number))
        case list():
            return [filled(one, number) for one in value]
        case dict():
            return {name: filled(one, number) for name, one in value.items()}
    return value


@pytest.mark.parametrize(("body", "expected"), SHAPES)
def test_a_system_text_loses_the_billing_line_and_nothing_else(
    proxy: str, upstream: ScriptedUpstream, body: dict[str, Any], expected: list[Any]
) -> None:
    """A block that began with the line was dropped as a whole, with its instructions; in the other shapes the
    line stayed."""
    system = ("system", "developer")
    got = sent(proxy, upstream, body, 1)
    assert [one["content"] for one in got if one["role"] in system] == expected
    others = [one for one in body["messages"] if one["role"] not in system]
    assert [one for one in got if one["role"] not in system] == others


TOOL = function("look", strings("name"))
CLIENT_TOOL = {"name": "look", "input_schema": TOOL["function"]["parameters"]}


@pytest.mark.parametrize(("body", "expected"), SHAPES[:-1])
def test_requests_that_differ_in_the_billing_line_have_equal_prompts(
    proxy: str, upstream: ScriptedUpstream, body: dict[str, Any], expected: list[Any]
) -> None:
    tools = {"tools": [CLIENT_TOOL if "max_tokens" in body else TOOL]}
    one, other = (sent(proxy, upstream, {**body, **tools}, value) for value in (1, 2))
    assert one == other


@pytest.mark.parametrize("content", [f"{LINE}\nWhat is this?", blocks(LINE, "What is this?")])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_billing_line_quoted_by_a_user_or_the_model_stays(
    proxy: str, upstream: ScriptedUpstream, content: Any, role: str
) -> None:
    for body in (messages("Be brief.", turn(content, role), ASK), chat(turn(content, role), ASK)):
        assert LINE.format(1) in str(sent(proxy, upstream, body, 1))
