"""Commands and patches as agents' own prompts teach them: whole, character by character, and cut off."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest

from emulator.reading.events import BlockDelta, BlockEnd, BlockStart
from emulator.reading.readers import READERS, Unreadable, calls_tool
from tests.support.agent_syntaxes import AGENT_SYNTAXES, PATCH, WORDS, AgentSyntax
from tests.support.chat import BOTH, plain
from tests.support.replies import split_pieces
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings


def called_tool(
    reply: str, tools: Sequence[str], cuts: Sequence[int] = ()
) -> tuple[list[str], str]:
    """The calls in the complete blocks of a reply, as Python, and the remaining prose."""
    found, words, block = [], "", ""
    for event in split_pieces(reply, cuts, tools):
        match event:
            case BlockStart(dialect, raw):
                block = ""
            case BlockDelta(text, written):
                block, raw = block + text, raw + written
            case BlockEnd(written, closed=closed):
                reader = READERS[dialect](tools)
                try:
                    statements = [*reader.feed(block), *reader.close()]
                except Unreadable:
                    continue
                calls = [one.source for one in statements if calls_tool(one.source, tools)]
                found += [call for one in calls for call in _calls(one)] if closed else []
                words += "" if calls else raw + written
            case _:
                words += event.raw
    return found, words


def _calls(source: str) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]


every_syntax = pytest.mark.parametrize("syntax", AGENT_SYNTAXES, ids=lambda one: one.name)


@every_syntax
def test_a_syntax_of_agents_is_read_whole_and_by_character(syntax: AgentSyntax) -> None:
    text = syntax.reply
    for cuts in ((), range(1, len(text))):
        assert tuple(called_tool(text, syntax.tools, cuts)[0]) == syntax.calls


@every_syntax
def test_a_truncated_reply_calls_nothing_else(syntax: AgentSyntax) -> None:
    for end in range(len(syntax.reply)):
        found = tuple(called_tool(syntax.reply[:end], syntax.tools)[0])
        assert found in ((), syntax.calls), syntax.reply[:end]


@pytest.mark.parametrize("case", WORDS)
def test_prose_about_commands_stays_prose(case: str) -> None:
    tools, text = WORDS[case]
    for cuts in ((), range(1, len(text))):
        assert called_tool(text, tools, cuts) == ([], text)


WORD_LIST: Any = {
    "type": "object",
    "properties": {"command": {"type": "array", "items": {"type": "string"}}},
    "required": ["command"],
}
SHELL: Any = {"type": "function", "function": {"name": "shell", "parameters": WORD_LIST}}
BASH = function("bash", strings("command"))
CUSTOM: Any = {"type": "custom", "custom": {"name": "apply_patch"}}
LS = ["bash", "-lc", "ls"]


@BOTH
@pytest.mark.parametrize(
    ("tool", "reply", "wanted"),
    [
        (BASH, "```bash\nls\n```", "ls"),
        (SHELL, "```bash\nls\n```", LS),
        (BASH, json.dumps({"command": LS}), "ls"),
        (SHELL, json.dumps({"command": LS}), LS),
        (BASH, json.dumps({"command": ["ls", "a b"]}), "ls 'a b'"),
        (SHELL, "[tool_call: shell for 'ls']", LS),
        (CUSTOM, f"```\n{PATCH}\n```", PATCH),
        (CUSTOM, PATCH, PATCH),
    ],
)
def test_a_command_is_converted_to_the_type_that_the_tool_takes(
    client: openai.OpenAI, upstream: ScriptedUpstream, ask: Any, tool: Any, reply: str, wanted: Any
) -> None:
    if tool is CUSTOM:
        ask = plain  # the SDK's helper for streams fails on custom tools
    upstream.reply(reply, *["RUN"] * reply.startswith("```bash"))  # of a shell the model is asked
    messages: Any = [{"role": "user", "content": "Go on."}]
    completion = ask(client, model="m", messages=messages, tools=[tool])
    [call] = completion.choices[0].message.tool_calls
    if call.type == "custom":
        assert call.custom.input == wanted
    else:
        assert json.loads(call.function.arguments) == {"command": wanted}
