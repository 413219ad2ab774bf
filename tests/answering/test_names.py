"""A marked call runs by its own name or an equal one; any other name is answered with diagnostics."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.support.chat import BOTH, calls
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import function, strings

NAMES = "send_mail read_file research mcp__fs__search_files mcp__prod__delete mcp__a__copy_it mcp__b__copy_it"
TOOLS: list[Any] = [function(name, strings("x")) for name in [*NAMES.split(), "mcp__fs__list"]]
TOOLS[-1]["function"]["annotations"] = {"readOnlyHint": True}
ASK: list[Any] = [{"role": "user", "content": "Go."}]

SYNTAXES = {
    "Python": "```tool_code\n{name}(x='1')\n```",
    "Python in a tag": "<tool_code>\n{name}(x='1')\n</tool_code>",
    "Python in braces": "```{{tool_code}}\n{name}(x='1')\n```",
    "a colon": "```tool_code:\n{name}(x='1')\n```",
    "JSON": "```tool_code\n{json}\n```",
    "JSON in a tag": "<tool_code>\n{json}\n</tool_code>",
    "Hermes in the label": "```tool_code\n<tool_call>\n{json}\n</tool_call>\n```",
    "XML in the label": "```tool_code\n<function={name}>\n<parameter=x>\n1\n</parameter>\n</function>\n```",
    "Mistral in the label": "```tool_code\n[TOOL_CALLS][{json}]\n```",
    "ReAct in the label": '```tool_code\nAction: {name}\nAction Input: {{"x": "1"}}\n```',
    "YAML in the label": "```tool_code\nname: {name}\narguments:\n  x: '1'\n```",
    "GLM in the label": "```tool_code\n<tool_call>{name}\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n"
    "</tool_call>\n```",
    "Hermes": "<tool_call>\n{json}\n</tool_call>",
    "Qwen Coder": "<function={name}>\n<parameter=x>\n1\n</parameter>\n</function>",
    "Claude": '<invoke name="{name}">\n<parameter name="x">1</parameter>\n</invoke>',
    "Mistral": "[TOOL_CALLS][{json}]",
    "Mistral Small 3.2": '[TOOL_CALLS]{name}[ARGS]{{"x": "1"}}',
    "Gemma": '<|tool_call>call:{name}{{x:<|"|>1<|"|>}}<tool_call|>',
    "LFM": "<|tool_call_start|>[{name}(x='1')]<|tool_call_end|>",
    "harmony": "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    '{{"x": "1"}}<|call|>',
    "DSML": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="{name}">\n'
    '<｜DSML｜parameter name="x" string="true">1</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "ReAct": 'Action: {name}\nAction Input: {{"x": "1"}}',
}
MEANT = {
    "send_mail": "send_mail",
    "sendMail": "send_mail",
    "SEND_MAIL": "send_mail",
    "functions.send_mail": "send_mail",
    "functions.sendMail": "send_mail",
    "search_files": "mcp__fs__search_files",
    "searchFiles": "mcp__fs__search_files",
    "fs.search_files": "mcp__fs__search_files",
    "fs.read_file": "read_file",
    "list": "mcp__fs__list",
}
UNKNOWN = {
    "snd_mail": "send_mail",
    "evil.read_file": "read_file",
    "delete": "mcp__prod__delete",
    "copy_it": "mcp__a__copy_it",
    "pay_bill": "send_mail",
}
"""Names that mean no tool, and one that the model is told."""


def written(syntax: str, name: str) -> str:
    call = json.dumps({"name": name, "arguments": {"x": "1"}})
    return SYNTAXES[syntax].format(name=name, json=call)


@BOTH
@pytest.mark.parametrize("name", MEANT)
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_a_marked_call_is_made_by_an_equal_name(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str, name: str
) -> None:
    if name == "list" and "{name}(" in SYNTAXES[syntax]:
        pytest.skip("a built-in")
    upstream.reply(Reply(f"I do it.\n\n{written(syntax, name)}", chunks=3))
    completion = ask(client, model="m", messages=ASK, tools=TOOLS)
    assert calls(completion) == [(MEANT[name], {"x": "1"})]
    assert completion.choices[0].message.content in ("I do it.\n\n", "I do it.")
    assert len(upstream.requests) == 1


@BOTH
@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("syntax", SYNTAXES)
def test_another_name_in_a_marked_call_is_answered_with_the_nearest(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, syntax: str, name: str
) -> None:
    """It reached the user as markup."""
    text = f"I do it.\n\n{written(syntax, name)}"
    upstream.reply(Reply(text, chunks=3), "I cannot.")
    completion = ask(client, model="m", messages=ASK, tools=TOOLS)
    assert (calls(completion), completion.choices[0].message.content) == (
        [],
        "I do it.\n\nI cannot.",
    )
    first, second = (request["messages"] for request in upstream.requests)
    assert second[: len(first)] == first
    assert UNKNOWN[name] in second[-1]["content"]
    assert "error:" in second[-1]["content"]


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_what_does_not_become_a_call_is_shown_in_the_end(
    client: openai.OpenAI, upstream: ScriptedUpstream, syntax: str
) -> None:
    text = f"I do it.\n\n{written(syntax, 'snd_mail')}"
    upstream.reply(text, text)
    completion = client.chat.completions.create(model="m", messages=ASK, tools=TOOLS)
    assert calls(completion) == []
    assert (completion.choices[0].message.content or "").replace("python", "tool_code") == text
    assert len(upstream.requests) == 2


OWN = {
    "another library": "import re\nm = re.search('a', 'b')",
    "an own function": "def sendMail(x):\n    return x\nprint(sendMail(x='1'))",
    "a later one": "def go():\n    return sendMail(x='1')\ndef sendMail(x):\n    return x\nprint(go())",
    "a variable": "sendMail = print\nsendMail('1')",
    "a parameter": "print((lambda sendMail: sendMail('1'))(str))",
    "a built-in": "print(list('ab'))",
}


@pytest.mark.parametrize("code", OWN.values(), ids=OWN)
def test_names_that_a_program_binds_are_its_own(
    client: openai.OpenAI, upstream: ScriptedUpstream, code: str
) -> None:
    upstream.reply(f"```tool_code\n{code}\n```", "Done.")
    completion = client.chat.completions.create(model="m", messages=ASK, tools=TOOLS)
    assert (calls(completion), completion.choices[0].message.content) == ([], "Done.")
    assert "error:" not in upstream.requests[1]["messages"][-1]["content"]


TAGS = {
    "a code element": "<code>npm(i)</code>",
    "a command": "<code>npm i</code>",
    "code of Llama": "<|python_tag|>print(6 * 7)",
    "a sentence": "<tool_call>get the weather</tool_call>",
    "nothing": "<tool_call></tool_call>",
}


@pytest.mark.parametrize("text", TAGS.values(), ids=TAGS)
def test_a_tag_without_a_readable_call_is_text_among_words(
    client: openai.OpenAI, upstream: ScriptedUpstream, text: str
) -> None:
    upstream.reply(f"Like this: {text}")
    completion = client.chat.completions.create(model="m", messages=ASK, tools=TOOLS)
    assert (calls(completion), completion.choices[0].message.content) == ([], f"Like this: {text}")


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>send the mail</tool_call>",
        "Now: <tool_call>please use send_mail now</tool_call>",
    ],
)
def test_a_tag_without_a_readable_call_is_asked_about_if_it_is_alone_or_names_a_tool(
    client: openai.OpenAI, upstream: ScriptedUpstream, text: str
) -> None:
    upstream.reply(text, "NO")
    completion = client.chat.completions.create(model="m", messages=ASK, tools=TOOLS)
    assert (calls(completion), completion.choices[0].message.content) == ([], text)
    assert "Answer NO" in upstream.requests[1]["messages"][-1]["content"]


KEYS = ["tool_call", "function_call", "tool_use", "call", "name", "function", "tool"]


@pytest.mark.parametrize("key", KEYS)
def test_each_of_these_keys_holds_the_name_of_a_call(
    client: openai.OpenAI, upstream: ScriptedUpstream, key: str
) -> None:
    upstream.reply(json.dumps({key: "send_mail", "parameters": {"x": "1"}}))
    completion = client.chat.completions.create(model="m", messages=ASK, tools=TOOLS)
    assert calls(completion) == [("send_mail", {"x": "1"})]
