"""What `make bench-bfcl` measures with: replies in many styles, and the page it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessage

from benchmarks.bfcl_styles import PROSE, STYLES, Call
from benchmarks.report import write_section
from emulator.tools.toolset import Toolset
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import CREATE_EVENT, function

LCM = function(
    "math.lcm",
    {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "note": {"type": "string"},
            "class": {"type": "boolean"},
        },
        "required": ["a", "class"],
    },
)
TOOLS: list[Any] = [LCM, CREATE_EVENT]
TOOLSET = Toolset.parse(TOOLS)

EVENT = {"title": "T", "place": {"city": "Oslo"}, "guests": [{"name": "Ada", "age": 36}]}
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "one": [("math.lcm", {"a": 4, "note": 'it\'s "so"', "class": True})],
    "one without text": [("math.lcm", {"a": 4, "class": True})],
    "two alike": [("math.lcm", {"a": 4, "class": True}), ("math.lcm", {"a": 6, "class": False})],
    "two, one argument missing in the second": [
        ("math.lcm", {"a": 4, "note": "n", "class": True}),
        ("math.lcm", {"a": 6, "class": False}),
    ],
    "different tools": [("math.lcm", {"a": 4, "class": True}), ("create_event", EVENT)],
}


def written(style: str, calls: str) -> str:
    tools = {tool.name: tool for tool in TOOLSET.tools}
    return STYLES[style]([Call(tools[name], given) for name, given in CALLS[calls]], TOOLSET)


POSITIONAL = """\
```python
math_lcm(4, 'it\\'s "so"', class_=True)
```"""
CONSTRUCTED = """\
```python
math_lcm(a=4, class_=True)
create_event(title='T', place=Place(city='Oslo'), guests=[Guest(name='Ada', age=36)])
```"""
LOOP = """\
```python
for a, class_ in [
    (4, True),
    (6, False),
]:
    math_lcm(a=a, class_=class_)
```"""
LOOP_OVER_DICTS = """\
```python
requests = [
    {'a': 4, 'note': 'n', 'class_': True},
    {'a': 6, 'class_': False},
]
for request in requests:
    math_lcm(**request)
```"""
STRINGLY = """\
```json
{
  "tool_calls": [
    {
      "id": "call_0",
      "type": "function",
      "function": {
        "name": "math.lcm",
        "arguments": "{\\"a\\": \\"4\\", \\"class\\": \\"true\\"}"
      }
    }
  ]
}
```"""

WRITTEN = [
    ("positional", "one", POSITIONAL),
    ("constructors", "different tools", CONSTRUCTED),
    ("variables + loop", "two alike", LOOP),
    ("variables + loop", "two, one argument missing in the second", LOOP_OVER_DICTS),
    ("list", "two alike", "[math.lcm(a=4, class_=True), math.lcm(a=6, class_=False)]"),
    ("all in strings", "one without text", STRINGLY),
]


@pytest.mark.parametrize(("style", "calls", "reply"), WRITTEN)
def test_a_style_writes_calls_as_its_models_do(style: str, calls: str, reply: str) -> None:
    assert written(style, calls) == reply


def ask(client: openai.OpenAI) -> ChatCompletionMessage:
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    completion = client.chat.completions.create(
        model="any",
        messages=messages,
        tools=TOOLS,
        # What was said is read here, not when it leaves.
        extra_headers={"x-emulator-order": "dataflow"},
    )
    return completion.choices[0].message


@pytest.mark.parametrize("style", STYLES)
def test_calls_written_in_a_style_are_read_back(
    client: openai.OpenAI, upstream: ScriptedUpstream, style: str
) -> None:
    for name, calls in CALLS.items():
        upstream.reply(written(style, name))
        upstream.default = "RUN"  # to the question about a block among words
        made = [
            (call.function.name, json.loads(call.function.arguments))
            for call in ask(client).tool_calls or ()
            if call.type == "function"
        ]
        assert made == calls, name


@pytest.mark.parametrize("prose", PROSE)
def test_prose_without_calls_stays_unchanged(
    client: openai.OpenAI, upstream: ScriptedUpstream, prose: str
) -> None:
    reply = PROSE[prose](TOOLSET)
    upstream.reply(reply)
    message = ask(client)
    assert (message.content, message.tool_calls) == (reply, None)


SECTION = "<!-- x:begin -->\nnew\n<!-- x:end -->"


@pytest.mark.parametrize(
    ("page", "after"),
    [
        (None, f"{SECTION}\n"),
        ("# Title\n", f"# Title\n\n{SECTION}\n"),
        ("a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n", f"a\n{SECTION}\nb\n"),
        ("<!-- y:begin -->\n<!-- y:end -->\n", f"<!-- y:begin -->\n<!-- y:end -->\n\n{SECTION}\n"),
    ],
)
def test_a_section_is_replaced_between_its_marks_or_added(
    tmp_path: Path, page: str | None, after: str
) -> None:
    path = tmp_path / "docs" / "page.md"
    if page is not None:
        path.parent.mkdir()
        path.write_text(page)
    write_section(path, "x", "\nnew\n")
    assert path.read_text() == after


def test_a_section_without_its_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("<!-- x:begin -->\nold\n")
    with pytest.raises(ValueError, match="without"):
        write_section(path, "x", "new")
