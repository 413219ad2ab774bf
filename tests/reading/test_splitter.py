"""The splitter: the same events however a reply is cut, nothing lost, nothing buffered for long."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.reading.events import (
    BlockDelta,
    BlockEnd,
    BlockStart,
    Event,
    Reasoning,
    Text,
    merge_events,
)
from emulator.reading.splitter import Splitter, split
from emulator.reading.text_buffer import HOLD
from tests.support.examples import example_count
from tests.support.replies import NAMES, Case, cases, described, events, split_pieces

CASES = tuple(cases())
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)

#: Pieces of hostile and incomplete replies.
PIECES = st.sampled_from(
    [
        *("`", "```", "~~~", "```python\n", "```json\n", "\n", " ", "    ", "\r\n", "# x\n", '"""'),
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "<", "</", "[THINK]"),
        *("get_weather(", 'city="Oslo"', ")", "get_time()", "x = ", "print(", "for c in x:\n", "["),
        *('{"name": "get_weather"', ', "arguments": {}}', '{"type": 1', "}", "]", "{", "'", '"'),
        *("Action: get_time\n", "Action Input: ", "name: get_time\n", "arguments:\n", "Thought: "),
        *("Hello there", "The ", "f", "func", "functools[", "[TOOL_CALLS]", "“", "\\", ">>> "),
        *("get\\_weather(", "functions.", "- ", "1. ", "else:\n", "@x\n", "\x00", "ø", ". "),
        *("<|python_tag|>", "<｜tool▁calls▁begin｜>"),
    ]
)
REPLIES = st.lists(PIECES, max_size=25).map("".join)


def well_formed(found: list[Event]) -> bool:
    """Return True if all deltas, and no other events, are between a start and its end."""
    inside = False
    for event in found:
        if isinstance(event, (BlockDelta, BlockEnd)) != inside:
            return False
        inside = isinstance(event, (BlockStart, BlockDelta))
    return not inside


def test_there_are_at_least_150_replies() -> None:
    assert len(CASES) >= 150
    assert len({case.title for case in CASES}) == len(CASES)


@every_case
def test_a_reply_is_read_as_expected(case: Case) -> None:
    assert described(events(case)) == case.expected


@every_case
def test_a_reply_is_read_the_same_character_by_character(case: Case) -> None:
    assert described(events(case, range(1, len(case.reply)))) == case.expected


@every_case
def test_the_raw_text_of_all_events_is_the_reply(case: Case) -> None:
    assert "".join(event.raw for event in events(case)) == case.reply


@settings(max_examples=example_count(200))
@given(st.data())
def test_a_reply_is_read_the_same_however_it_is_cut(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(CASES))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(case.reply)), max_size=12)))
    assert described(events(case, cuts)) == case.expected
    assert merge_events(events(case, cuts)) == merge_events(events(case))


@settings(max_examples=example_count(400))
@given(REPLIES, st.booleans(), st.data())
def test_any_text_is_split_the_same_however_it_is_cut(
    reply: str, reasoning_open: bool, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reply)), max_size=8)))
    whole = split_pieces(reply, reasoning_open=reasoning_open)
    assert merge_events(split_pieces(reply, cuts, reasoning_open=reasoning_open)) == merge_events(
        whole
    )
    each = split_pieces(reply, range(1, len(reply)), reasoning_open=reasoning_open)
    assert merge_events(each) == merge_events(whole)
    assert "".join(event.raw for event in whole) == reply
    assert well_formed(whole)


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(["Hello", " there", ", how are you?"], id="words"),
        pytest.param(["I think ", "a < b", " and [x]", " {y} ", "`z` it is"], id="punctuation"),
    ],
)
def test_prose_is_returned_with_its_chunk(chunks: list[str]) -> None:
    splitter = Splitter(NAMES)
    splitter.feed("Well then, ")
    assert [splitter.feed(chunk) for chunk in chunks] == [[Text(chunk)] for chunk in chunks]


def test_a_possible_tag_is_buffered_until_it_is_decided() -> None:
    splitter = Splitter(NAMES)
    assert splitter.feed("a <thi") == [Text("a ")]
    assert splitter.feed("s> b") == [Text("<this> b")]


def test_a_statement_in_a_fence_is_returned_with_its_line() -> None:
    splitter = Splitter(NAMES)
    assert splitter.feed("```python\nget_time()\nget_w") == [
        BlockStart("python", "```python\n"),
        BlockDelta("get_time()\n", "get_time()\n"),
    ]


def test_prose_after_bare_code_is_returned_before_its_line_ends() -> None:
    splitter = Splitter(NAMES)
    splitter.feed("get_time()\n")
    assert splitter.feed("I hope") == [BlockEnd("", closed=True), Text("I hope")]


def test_reasoning_is_returned_as_it_arrives() -> None:
    splitter = Splitter(NAMES)
    assert splitter.feed("<think>Wea") == [Reasoning("Wea", "<think>Wea")]
    assert splitter.feed("ther</thi") == [Reasoning("ther", "ther")]
    assert splitter.feed("nk>") == [Reasoning("", "</think>")]


def test_the_splitter_reports_reasoning_that_was_never_opened() -> None:
    splitter = Splitter(NAMES)
    splitter.feed("Weather.</think>Hi")
    splitter.close()
    assert splitter.unopened_reasoning


def test_a_whole_reply_that_closes_reasoning_it_never_opened_is_split_as_reasoning() -> None:
    assert split("get_time()\n</think>\n\nHi", NAMES) == [
        Reasoning("get_time()\n", "get_time()\n</think>\n\n"),
        Text("Hi"),
    ]


def test_without_names_bare_code_is_prose_and_fences_are_blocks() -> None:
    assert split("get_time()\n```python\nget_time()\n```") == [
        Text("get_time()\n"),
        BlockStart("python", "```python\n"),
        BlockDelta("get_time()\n", "get_time()\n"),
        BlockEnd("```", closed=True),
    ]


def test_the_code_of_an_indented_fence_is_dedented_but_its_raw_text_is_unchanged() -> None:
    assert split("  ```\n  if x:\n      y()\n  ```\n") == [
        BlockStart("python", "  ```\n"),
        BlockDelta("if x:\n    y()\n", "  if x:\n      y()\n"),
        BlockEnd("  ```\n", closed=True),
    ]


LARGE = 1 << 18
HOSTILE = {
    "angle brackets": "<" * LARGE,
    "backticks": "`" * LARGE,
    "backticks and spaces": "` " * (LARGE // 2),
    "fences": "```\n" * (LARGE // 4),
    "open fence lines": "```python\n" * (LARGE // 10),
    "brackets": "[" * LARGE,
    "braces": "{" * LARGE,
    "spaces": " " * LARGE,
    "blank lines": "\n" * LARGE,
    "unclosed calls": "get_weather(\n" * (LARGE // 13),
    "unclosed calls in a line": "get_weather(" * (LARGE // 12),
    "assignments": "x = 1\n" * (LARGE // 6),
    "one long call": f"get_weather({'1, ' * (LARGE // 3)})",
    "one long word": "a" * LARGE,
    "JSON calls begun": '{"name": "get_weather", ' * (LARGE // 24),
    "JSON calls begun in a line": 'x {"name": "get_weather", ' * (LARGE // 26),
    "JSON that may be a call": '{"type": [' * (LARGE // 10),
    "JSON in a line": 'x {"name": "get_weather"} y ' * (LARGE // 28),
    "tags begun": "<tool_cal" * (LARGE // 9),
    "tags": "<tool_call>" * (LARGE // 11),
    "think": "<think>" * (LARGE // 7),
    "closing think": "</think>" * (LARGE // 8),
    "quotes in a fence": "```python\n" + "'" * LARGE,
    "backslashes in a fence": "```python\n" + "\\" * LARGE,
    "a long line in a fence": "```python\n" + "x" * LARGE,
    "actions": "Action: get_weather\n" * (LARGE // 20),
    "commas": "a, " * (LARGE // 3),
    "indented lines": "for x in y:\n" + "    get_time()\n" * (LARGE // 15),
}


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_large_hostile_reply_is_returned_byte_for_byte_and_never_buffered_whole(
    reply: str,
) -> None:
    splitter = Splitter(NAMES)
    out: list[str] = []
    fed = returned = 0
    for at in range(0, len(reply), 4096):
        chunk = reply[at : at + 4096]
        fed += len(chunk)
        raw = "".join(event.raw for event in splitter.feed(chunk))
        returned += len(raw)
        out.append(raw)
        assert fed - returned <= HOLD + 4096
    out += [event.raw for event in splitter.close()]
    assert "".join(out) == reply
