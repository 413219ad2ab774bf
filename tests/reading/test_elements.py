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
