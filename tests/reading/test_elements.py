"""Calls in elements: every way to name the call, around every way to write an argument."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import example_count
from tests.support.replies import ReplyContent, read_reply

CALLS = {
    '<function name="get_weather">': "</function>",
    "<function=get_weather>": "</function>",
    "<invoke name='get_weather'>": "</invoke>",
    '<tool_call name="get_weather">': "</tool_call>",
    '<tool name="get_weather">': "</tool>",
    "<get_weather>": "</get_weather>",
    "<tool_call><name>get_weather</name>": "</tool_call>",
    "<tool_use><tool_name>get_weather</tool_name>": "</tool_use>",
    "<tool_call><get_weather>": "</get_weather></tool_call>",
    '<function_calls><invoke name="get_weather">': "</invoke></function_calls>",
}
WRAPPERS = ("", "params", "parameters", "arguments", "args", "input")
ARGUMENTS = (
    '<param name="city">7</param>',
    '<parameter name="city">7</parameter>',
    '<argument name="city">7</argument>',
    '<arg name="city">7</arg>',
    "<parameter=city>7</parameter>",
    '<param name="city" value="7"/>',
    '<param name="city" value="7" type="integer"/>',
    '<param value="7" name="city" />',
    "<param name='city' value='7'/>",
    '<param name="city" value="7"></param>',
    '<param name="city" value="&#55;"/>',
    '<parameter type="integer" name="city">7</parameter>',
    '<param key="city">7</param>',
    "<param><name>city</name><value>7</value></param>",
    "<city>7</city>",
    '{"city": 7}',
)


def found(content: ReplyContent) -> list[tuple[str, dict[str, str]]]:
    """The calls, their values as text: the schema decides what a value is."""
    return [
        (name, {key: str(value) for key, value in arguments.items()})
        for name, arguments in content.calls
    ]


def written(call: str, wrapper: str, argument: str, space: str) -> str:
    opening, closing = (f"<{wrapper}>", f"</{wrapper}>") if wrapper else ("", "")
    return space.join([call, opening, argument, closing, CALLS[call]])


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_an_argument_is_read_under_every_way_of_naming_the_call(argument: str) -> None:
    """``<params><param name="x" value="500"/></params>`` sent ``{"x": "</params>"}`` with status 200."""
    for call, wrapper, space in product(CALLS, WRAPPERS, ("", "\n")):
        text = written(call, wrapper, argument, space)
        content = read_reply(text)
        assert (found(content), content.shown.strip()) == ([("get_weather", {"city": "7"})], ""), (
            text
        )


@settings(max_examples=example_count(150))
@given(st.data())
def test_calls_in_elements_are_read_the_same_however_they_are_cut(data: st.DataObject) -> None:
    drawn = [
        data.draw(st.sampled_from(one)) for one in (tuple(CALLS), WRAPPERS, ARGUMENTS, ("", "\n"))
    ]
    text = f"Let me look.\n{written(*drawn)}\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    assert read_reply(text, cuts) == read_reply(text) == read_reply(text, range(1, len(text)))


@pytest.mark.parametrize("call", CALLS)
def test_words_after_a_call_in_elements_are_shown(call: str) -> None:
    """``<tool_call><f><param name="x">1</param></f></tool_call> Done.`` took the words as a value."""
    for argument, space in product(ARGUMENTS, ("", "\n")):
        text = f"{written(call, '', argument, space)} I'm on it."
        content = read_reply(text)
        assert (found(content), content.shown) == (
            [("get_weather", {"city": "7"})],
            " I'm on it.",
        ), text
        assert read_reply(text, range(1, len(text))) == content


TAGS = {
    "<get_weather": "</get_weather>",
    "<function=get_weather": "</function>",
    '<function name="get_weather"': "</function>",
    "<invoke name='get_weather'": "</invoke>",
    '<tool_call name="get_weather"': "</tool_call>",
    '<tool name="get_weather"': "</tool>",
    "<call name=get_weather": "</call>",
    "<tool_call><get_weather": "</get_weather></tool_call>",
    '<function_calls id="1"><invoke name="get_weather"': "</invoke></function_calls>",
}
ATTRIBUTES = {
    ' city="7"': "7",
    " city='7'": "7",
    " city=7": "7",
    '\n  city = "7"\n': "7",
    ' city="it\'s > (a [b {c"': "it's > (a [b {c",
    " city='a </b> \"c\" />'": 'a </b> "c" />',
    ' city="a &lt; &quot;b&quot;"': 'a < "b"',
}
INNER = ("", " ", "<days>2</days>", '<param name="days">2</param>', '\n{"days": 2}\n')
"""What is in the element; None for a tag that closes itself."""


def tagged(tag: str, attributes: str, inner: str | None) -> str:
    closing = TAGS[tag]
    if inner is None:
        return f"{tag}{attributes}/>{closing.partition('>')[2]}"
    return f"{tag}{attributes}>{inner}{closing}"


@pytest.mark.parametrize("attributes", ATTRIBUTES)
def test_attributes_of_a_tag_that_names_the_call_are_its_arguments(attributes: str) -> None:
    """``<invoke name="f" x="1"/>`` swallowed the rest of the reply, and ``<f x="1"/>`` was text."""
    for tag, inner in product(TAGS, (None, *INNER)):
        text = f"Let me look.\n{tagged(tag, attributes, inner)} I'm on it."
        content = read_reply(text)
        days = {"days": "2"} if inner and inner.strip() else {}
        assert found(content) == [("get_weather", {"city": ATTRIBUTES[attributes]} | days)], text
        assert content.shown == "Let me look.\n I'm on it.", text
        assert read_reply(text, range(1, len(text))) == content


@settings(max_examples=example_count(150))
@given(st.data())
def test_attributes_are_read_the_same_however_they_are_cut(data: st.DataObject) -> None:
    drawn = [data.draw(st.sampled_from(one)) for one in (tuple(TAGS), tuple(ATTRIBUTES))]
    text = tagged(*drawn, data.draw(st.sampled_from((None, *INNER)))) * 2
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    assert read_reply(text, cuts) == read_reply(text) == read_reply(text, range(1, len(text)))


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('<invoke city="7" name="get_weather"/>', {"city": "7"}),
        ('<function name="get_weather" arguments=\'{"city": 7}\'/>', {"city": "7"}),
        ('<invoke name="get_weather" id="1"><city>7</city></invoke>', {"city": "7"}),
        (
            '<tool_call id="1">{"name": "get_weather", "arguments": {"city": 7}}</tool_call>',
            {"city": "7"},
        ),
        ('<get_weather id="1"><city>7</city></get_weather>', {"id": "1", "city": "7"}),
        ('<function name="get_weather"/>', {}),
        ('<tool_call><get_weather city="7"/></tool_call>', {"city": "7"}),
        (
            '<tool_call><get_weather city="(7"><days>2</days></get_weather></tool_call>',
            {"city": "(7", "days": "2"},
        ),
    ],
)
def test_attributes_of_a_call_object_are_read_as_in_json(
    text: str, arguments: dict[str, str]
) -> None:
    assert found(read_reply(text)) == [("get_weather", arguments)]


@pytest.mark.parametrize(
    "text",
    [
        '<get_weather city="7 days="2"/>',
        '<get_weather city="7" city="8"/>',
        '<get_weather city="7"><city>8</city></get_weather>',
        '<get_weather city="7/> and <get_weather city="8"/>',
        '<invoke name="get_weather" city="7><parameter name="days">2</parameter></invoke>',
        '<get_weather city="</parameter>"/>',
        '<get_weather city="7"',
        '<get_weather city="7',
        '<get_weather city="7">',
    ],
)
def test_a_tag_that_cannot_be_read_calls_nothing(text: str) -> None:
    content = read_reply(text)
    assert (content.calls, content.needs_repair) == ([], True)


@pytest.mark.parametrize(
    "text",
    [
        'Use <unknown city="7"/> here.',
        "`<get_weather city='7'/>` is how",
        "if a <b c= d and get_weather",
        '<a href="get_weather">x</a>',
        "<get_weather city",
    ],
)
def test_other_tags_with_attributes_are_prose(text: str) -> None:
    content = read_reply(text)
    assert (content.calls, content.shown) == ([], text)
    assert read_reply(text, range(1, len(text))) == content


INVOKE = '<invoke name="get_weather">'
VALUES = {
    f'{INVOKE}<param name="city" value="a &lt; b"/></invoke>': {"city": "a < b"},
    f'{INVOKE}<param name="city">a &lt; b</param></invoke>': {"city": "a &lt; b"},
    f'{INVOKE}<param name="city"><b>Oslo</b></param></invoke>': {"city": "<b>Oslo</b>"},
    f'{INVOKE}<param name="city">use </param> here</param></invoke>': {"city": "use </param> here"},
    "<get_weather><city><html><param name='q'>1</param></html></city></get_weather>": {
        "city": "<html><param name='q'>1</param></html>"
    },
    f"{INVOKE}<args><city>Oslo</city><days>2</days></args></invoke>": {"city": "Oslo", "days": "2"},
    f"{INVOKE}<input><city>Oslo</city></input><days>2</days></invoke>": {
        "input": "<city>Oslo</city>",
        "days": "2",
    },
    f"{INVOKE}<input>Oslo</input></invoke>": {"input": "Oslo"},
    f"{INVOKE}<parameters></parameters></invoke>": {},
    f'{INVOKE}<param name="city"/></invoke>': {"city": ""},
    '<functions>{"get_weather": {"city": "Oslo"}}</functions>': {"city": "Oslo"},
}


@pytest.mark.parametrize(("text", "arguments"), VALUES.items(), ids=VALUES.keys())
def test_a_value_is_what_was_written(text: str, arguments: dict[str, str]) -> None:
    assert found(read_reply(text)) == [("get_weather", arguments)]


def test_calls_in_a_row_keep_their_own_arguments() -> None:
    text = f'{INVOKE}<param name="city">a</param>\n<param name="days">2</param></invoke>' * 2
    assert found(read_reply(text)) == [("get_weather", {"city": "a", "days": "2"})] * 2


@pytest.mark.parametrize(
    "text",
    [
        f'{INVOKE}<param name="city"></params></param></invoke>',
        f'{INVOKE}<param name="city">Oslo</param></other></param></invoke>',
    ],
)
def test_a_value_with_closing_tags_of_the_call_is_never_sent(text: str) -> None:
    content = read_reply(text)
    assert (content.calls, content.needs_repair) == ([], True)
