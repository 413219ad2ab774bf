"""Prose about calls stays prose, alone and before a call; a random test mixes it with calls."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import example_count
from tests.support.formats import FORMATS, VARIANTS, Format
from tests.support.replies import read_reply, same_calls

SCHEMA = (
    '{"name": "get_weather", "description": "Weather.", "parameters": '
    '{"type": "object", "properties": {"city": {"type": "string"}}}}'
)
TRACEBACK = (
    'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\n'
    '    get_weather(city="Oslo")\nValueError: there is no such city'
)

WORDS = {
    "a schema in a line": f"The schema is {SCHEMA}.",
    "a schema": SCHEMA,
    "a schema in a fence": f"```json\n{SCHEMA}\n```",
    "a tool in OpenAI's format": f'{{"type": "function", "function": {SCHEMA}}}',
    "an indented example": 'For example:\n\n    get_weather(city="Oslo")\n\nThat is how.',
    "an example in a line": 'Write `get_weather(city="Oslo")` for that.',
    "a traceback": f"It failed:\n\n{TRACEBACK}",
    "a traceback in a fence": f"It failed:\n\n```\n{TRACEBACK}\n```",
    "a traceback in a fence with a label": f"It failed:\n\n```text\n{TRACEBACK}\n```",
    "a note of a result": "name: get_weather\nresult: 4 degrees and rain\n",
    "a table": '| Tool | Example |\n| --- | --- |\n| get_weather | get_weather(city="Oslo") |\n',
    "a page of documentation": "get_weather(city: str, days: int = 3) -> dict\n\nGives the weather.",
    "a list of tools": "- name: get_weather\n  description: Weather of a city\n",
    "permission is requested": "Say yes and I will call send_email for you.",
    "a tag in backticks": "Close it with `</tool_call>` and nothing else.",
    "a tag in quotes": 'The tag "</tool_call>" closes it.',
    "an answer in JSON": '{"name": "Alice", "age": {"years": 3}}',
    "a name and its JSON that begin a sentence": 'search {"query": "a"} is what I would send.',
    "a name and its JSON, then an aside": 'search {"query": "a"} (not sent yet)',
    "a name and its JSON, then a comma": 'search {"query": "a"}, then I wait.',
    "a name and its JSON, and the result after an arrow": 'search {"query": "a"} -> {"hits": []}',
    "a name and its JSON, and the result after a colon": 'get_weather {"city": "Oslo"}: 4 degrees',
    "JSON that begins a sentence": '{"name": "search", "arguments": {"query": "a"}} would do.',
    "a list of JSON that begins a sentence": '[{"name": "search", "arguments": {}}] would do.',
    "a call that begins a sentence": 'search(query="a") is what I would send.',
    "a line of YAML in a sentence": "name: search\nis what I would write first.",
    "braces": "Search {query} in the index, to=everyone {x}.",
}
CALLING = [format for format in FORMATS if format.shown.startswith("@TEXT@")]


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_prose_about_calls_stays_prose(words: str) -> None:
    for cuts in ((), range(1, len(words))):
        found = read_reply(words, cuts)
        assert (found.calls, found.needs_repair, found.shown) == ([], False, words)


@settings(max_examples=example_count(200))
@given(
    st.lists(st.sampled_from(sorted(WORDS.values())), min_size=1, max_size=3),
    st.sampled_from(CALLING),
    st.sampled_from(["plain", "several", "nested", "tags"]),
    st.data(),
)
def test_prose_before_a_call_is_shown_once_and_the_call_is_read(
    words: list[str], format: Format, variant: str, data: st.DataObject
) -> None:
    shown = "\n\n".join(words) + "\n\nSo I call it now.\n\n"
    calls = VARIANTS[variant]
    text = shown + format.write(calls)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    found = read_reply(text, cuts)
    assert same_calls(found.calls, calls)
    assert not found.needs_repair
    label = format.label
    assert found.shown.replace(label, "").split() == shown.split()
