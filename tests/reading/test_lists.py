"""Lists of calls in Python syntax outside a fence: each ends at its own bracket, whatever follows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import example_count
from tests.support.replies import ReplyContent, read_reply

OSLO = ("get_weather", {"city": "Oslo"})
ROME = ("get_weather", {"city": 'Rome (it\'s "]")'})
LISTS = {
    '[get_weather(city="Oslo")]': [OSLO],
    "[get_weather(city='Oslo'), get_weather(city='Rome (it\\'s \"]\")')]": [OSLO, ROME],
    '[\n    get_weather(city="""Oslo"""),\n]': [OSLO],
}
ROWS = {
    '[get_weather(city="Oslo")][get_weather(city="Oslo")]': [OSLO, OSLO],
    '[get_weather(city="Oslo")] [get_weather(city="Oslo")]': [OSLO, OSLO],
    '[get_weather(city="Oslo")], [get_weather(city="Oslo")]': [OSLO, OSLO],
    '[get_weather(city="Oslo")]\n[get_weather(city="Oslo")]': [OSLO, OSLO],
}
WORDS = (
    "I'm checking",
    " I'm checking, it's \"fine\".",
    "I’m checking",
    "Fetching both.",
    ". I'm on it",
    "! It's on",
    " and I'll look",
    " - I'm looking",
    "—I'm looking",
    ": here's the call",
    ", I'm sure",
    '"Done"',
    "'Done'",
    "'",
    '"""',
    "'''",
    "{it's}",
    "[x] it's",
    "[",
    " + it's",
    ".it's",
    "`x` it's",
    "<b>it's</b>",
    "检查",
    "I'm checking\n\nget_weather is what I'd call (it's",
)
NO_WORDS = ("", "\n", "  \n", ";", "]", " # it's a comment", "</s>", "<|im_end|>")


def every_way(text: str) -> ReplyContent:
    """Read a reply whole and character by character."""
    whole = read_reply(text)
    assert read_reply(text, range(1, len(text))) == whole
    return whole


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("calls", LISTS | ROWS)
def test_words_after_a_list_of_calls_are_words(calls: str, words: str) -> None:
    """An apostrophe opened a text that swallowed the rest of the reply, and the calls with it."""
    for before in ("", "Let me look.\n", 'get_weather(city="Oslo")\n'):
        content = every_way(before + calls + words)
        first = [OSLO] if before.startswith("get") else []
        assert content.calls == first + (LISTS | ROWS)[calls]
        prose = "" if first else before
        assert (content.shown, content.needs_repair) == (prose + words, False)


@pytest.mark.parametrize("end", NO_WORDS)
@pytest.mark.parametrize("calls", LISTS)
def test_what_says_nothing_after_a_list_is_not_shown(calls: str, end: str) -> None:
    content = every_way(calls + end)
    assert (content.calls, content.shown.strip()) == (LISTS[calls], "")


@pytest.mark.parametrize("calls", ROWS)
def test_lists_in_a_row_are_no_subscript(calls: str) -> None:
    content = every_way(calls)
    assert (content.calls, content.shown) == (ROWS[calls], "")


@pytest.mark.parametrize(
    "text",
    [
        '[get_weather(city="Oslo")](https://example.org) is documented.',
        '[get_weather(city="Oslo")](it\'s a link)',
        '[unknown(city="Oslo")]I\'m checking',
        '["get_weather"]I\'m checking',
        '[get_weather(city="Oslo"), 1]Fetching',
        'See [get_weather(city="Oslo")]I\'m checking',
    ],
)
def test_a_link_or_a_list_of_something_else_is_prose(text: str) -> None:
    content = every_way(text)
    assert (content.calls, content.shown) == ([], text)


@pytest.mark.parametrize(
    "rest",
    [
        "[0]",
        "()",
        " - [get_time()]",
        "()[0]  # it's",
        " + [get_time()]",
        ", get_time()",
    ],
)
def test_a_line_that_begins_with_a_list_and_is_python_is_code(rest: str) -> None:
    content = every_way(f'[get_weather(city="Oslo")]{rest}\nIt\'s done.')
    more = [("get_time", {})] if "get_time" in rest else []
    assert (sorted(content.calls, key=str), content.shown) == (
        sorted([OSLO, *more], key=str),
        "It's done.",
    )


@settings(max_examples=example_count(150))
@given(st.sampled_from(sorted(LISTS | ROWS)), st.sampled_from(WORDS + NO_WORDS), st.data())
def test_a_list_is_read_the_same_however_it_is_cut(
    calls: str, words: str, data: st.DataObject
) -> None:
    text = calls + words
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    assert read_reply(text, cuts) == read_reply(text)


def test_a_list_leaves_before_its_line_ends() -> None:
    """Words after a list may be long: its calls do not wait for them."""
    text = '[get_weather(city="Oslo")]I'
    assert read_reply(text + "'m checking" * 10_000).calls == [OSLO]
