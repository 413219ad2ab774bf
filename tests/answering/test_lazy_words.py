"""Words that a lazy grammar leaves free hold nothing that a reader takes for a call, in whichever syntax."""

from __future__ import annotations

import random

import pytest

from emulator.answering.draft_block import DraftBlock
from emulator.answering.grammar.words import words
from emulator.reading.events import BlockDelta, BlockEnd, BlockStart
from emulator.reading.readers import READERS, Unreadable, uses_tool
from emulator.reading.splitter import split
from emulator.reading.tool_names import ToolNames
from tests.support.agent_syntaxes import AGENT_SYNTAXES, AgentSyntax
from tests.support.formats import FORMATS, VARIANTS, reply
from tests.support.gbnf import Grammar, grammar
from tests.support.replies import NAMES, cases

TOOLS = frozenset({*NAMES, *NAMES.values()})


def words_of(names: frozenset[str]) -> Grammar:
    rules = "".join(f"{name} ::= {body}\n" for name, body in words(names).items())
    return grammar(f"root ::= words\n{rules}")


def attempts(text: str, names: frozenset[str]) -> list[str]:
    """The blocks of a reply that are calls, or would be refused as such."""
    found: list[str] = []
    block: DraftBlock | None = None
    for event in split(text, names):
        match event:
            case BlockStart(dialect=dialect, raw=raw):
                block = DraftBlock(dialect, READERS[dialect](names), [raw], in_a_row=False)
            case BlockDelta(code, raw):
                assert block
                block.pieces.append(raw)
                block.text.append(code)
            case BlockEnd():
                assert block
                if is_attempt(block, names):
                    found.append(block.raw)
    return found


def is_attempt(block: DraftBlock, names: frozenset[str]) -> bool:
    offered = ToolNames(names)
    try:
        statements = [*block.reader.feed(block.inner), *block.reader.close()]
    except Unreadable:
        return block.means_a_call(names)
    if block.dialect != "python":
        return bool(statements)
    return any(uses_tool(statement.source, offered) for statement in statements)


REPLIES = [case.reply for case in cases()] + [
    reply(format, variant) for format in FORMATS for variant in VARIANTS
]


def test_no_reply_with_a_call_is_admitted_as_words() -> None:
    held = words_of(TOOLS)
    called = [text for text in REPLIES if attempts(text, TOOLS)]
    assert len(called) > 500
    assert [text for text in called if held.admits(text)] == []


@pytest.mark.parametrize("syntax", AGENT_SYNTAXES, ids=lambda syntax: syntax.name)
def test_nor_what_agents_are_taught(syntax: AgentSyntax) -> None:
    assert not words_of(frozenset(syntax.tools)).admits(syntax.reply)


PIECES = (
    *(
        "`",
        "```",
        "~~~",
        "```python\n",
        "```json\n",
        "```js\n",
        "\n```\n",
        "\n",
        " ",
        "    ",
        "# x\n",
    ),
    *(
        "```",
        "```yaml\n",
        "```text\n",
        "```xml\n",
        "```tool_call\n",
        "<",
        "</",
        "<b>",
        "<t",
        "<get",
    ),
    *("<think>", "</think>", "<tool", "_call>", "<function=", "[THINK]", "_", "search", ">", "/>"),
    *(
        "get_weather",
        "get_wether",
        "(",
        'city="Oslo"',
        ")",
        "()",
        "x = ",
        "print",
        "for c in ",
        ":\n",
    ),
    *(
        '{"',
        '"name"',
        ": ",
        '"get_weather"',
        '"launch"',
        ", ",
        '"arguments"',
        "{}",
        "}",
        "]",
        "{",
        "'",
    ),
    *('"', "name: ", "tool", "arguments:", "Action", "Action: ", "Input: ", "Thought: ", "[", "- "),
    *("Hello there", "The ", "f", "func", "functools", "TOOL_CALLS", "“", "\\", ">>> ", "await "),
    *(
        "functions.",
        "1. ",
        "else:\n",
        "@x\n",
        "ø",
        ". ",
        "|",
        "python_tag",
        "map(",
        "é = ",
        "return ",
    ),
    *("to", "=", "call:", "commentary", "json ", "type", '"type": ', "1", "calls", "tool_calls"),
    *("input", "sentiment_", "analysis", "math.lcm", "get-stock-price", "\t", "**", "\r\n", '"""'),
)


@pytest.mark.parametrize("seed", range(8))
def test_random_words_call_nothing(seed: int) -> None:
    """Pieces of calls in a row, each where the grammar lets it stand."""
    chance, held = random.Random(seed), words_of(TOOLS)
    ended = 0
    for _ in range(60):
        text, stacks = "", held.begun()
        for _ in range(chance.randint(1, 40)):
            piece = chance.choice(PIECES)
            if further := held.read(stacks, piece):
                text, stacks = text + piece, further
        if None in stacks:
            ended += 1
            assert attempts(text, TOOLS) == [], text
    assert ended > 20


@pytest.mark.parametrize(
    "text",
    [
        "`get_weather` tells the weather; get_weather is a function.",
        "- `get_weather`: the weather\n- `get_time`: the time",
        "A file (or more), f(x), <b>bold</b>, a[0] = 1, x < y_1.",
        'She said: "It is warm."\nNote: e.g. this (and that)\n* one\n> two',
        '{"weather": "warm", "name": "Oslo"}',
        'Here:\n\n```json\n{"name": "Alice", "cities": [{"name": "Oslo"}]}\n```\nThat is all.',
        "```js\nconst w = getWeather(1)\nshow(w, {function: 1})\n```\n\n```sql\nSELECT 1\n```",
        "```text\nAction\n```",
        "```go\n\nfunc main() {\n}\n```",
        "東京(Tokyo)の天気は晴れです。\n“Schön”, sagte er.",
        "E = mc^2, \\alpha, C:\\temp, https://example.org/a?b=c&d=1#e",
        "| a | b |\n|---|---|\n| 1 | 2 |",
    ],
)
def test_what_people_read_stays_free(text: str) -> None:
    assert words_of(TOOLS).admits(text)
