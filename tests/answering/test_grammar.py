"""Grammars: their text, what they admit, and what the real llama.cpp makes of them."""

from __future__ import annotations

import ast
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.answering.grammar.calls import gbnf
from emulator.answering.tiny.copying import CopySource
from emulator.tools.toolset import Toolset
from tests.support.gbnf import admits
from tests.support.tools import CREATE_EVENT, GET_WEATHER, SEND_MAIL, function, strings

GOLDEN = Path(__file__).parents[1] / "golden" / "grammar"

EVERYTHING = function(
    "everything",
    {
        "type": "object",
        "properties": {
            "flag": {"type": "boolean"},
            "count": {"type": "integer"},
            "ratio": {"type": ["number", "null"]},
            "level": {"enum": [1, "two", None, True]},
            "fixed": {"const": "only"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
            "node": {"$ref": "#/$defs/node"},
            "free": {},
            "from": {"anyOf": [{"type": "integer"}, {"enum": ["start"]}]},
        },
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "next": {"$ref": "#/$defs/node"},
                },
                "required": ["name"],
            }
        },
    },
)
HOSTILE = 'Oslo")\nroot ::= "free text" #\\\x07'
HOSTILE_TOOL = function(
    "pick",
    {
        "type": "object",
        "properties": {'a"b\n': {"enum": [HOSTILE]}, "class": {"const": '"]'}},
        "required": ['a"b\n'],
    },
)


def grammar(*tools: Any, **options: Any) -> str:
    return gbnf(Toolset.parse(tools).tools, **options)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flat", grammar(GET_WEATHER, SEND_MAIL)),
        ("required-one", grammar(GET_WEATHER, SEND_MAIL, required=True, parallel=False)),
        ("nested", grammar(CREATE_EVENT, only="create_event")),
        ("everything", grammar(EVERYTHING, required=True)),
        ("copied", grammar(GET_WEATHER, required=True, source='Is "Old Oslo" warm, in celsius?')),
    ],
)
def test_a_grammar_is_spelt_out_in_its_golden_file(name: str, text: str) -> None:
    assert text == (GOLDEN / f"{name}.gbnf").read_text()


WEATHER = 'get_weather(location="London")'


@pytest.mark.parametrize(
    ("options", "reply", "expected"),
    [
        ({}, WEATHER, True),
        ({}, 'get_weather(location="London", unit="celsius")', True),
        ({}, f'{WEATHER}\nsend_mail(to="a", body="b")', True),
        ({}, "", True),
        ({}, "It rains.", True),
        ({}, "Æther: see\n\n- one (1)\n2. get_weather, e.g. two", True),
        ({}, '"Quoted", said she.', True),
        ({"required": True}, "It rains.", False),
        ({"only": "send_mail"}, WEATHER, False),
        ({"only": "send_mail"}, 'send_mail(to="a", body="b")', True),
        ({"parallel": False}, f"{WEATHER}\n{WEATHER}", False),
        ({}, "\n".join([WEATHER] * 9), False),
        ({}, 'get_weather(unit="celsius", location="London")', False),
        ({}, 'get_weather(location="London", unit="kelvin")', False),
        ({}, "get_weather(location=London)", False),
        ({}, "get_weather(location=3)", False),
        ({}, 'get_weather("London")', False),
        ({}, "get_weather()", False),
        ({}, f"{WEATHER} # and so on", False),
        ({}, f"Sure!\n{WEATHER} or so", False),
        ({}, "Sure!\nget_weather(location=London)", False),
        ({}, 'Get_weather(location="London")', False),
        ({}, 'Sure!\nfunctions.get_weather(location="London")', False),
        ({}, 'get_time(place="London")', False),
        ({}, "convert_to_miles = 6", False),
        ({}, "```python\nprint(1)\n```", False),
        ({}, "Sure!\n```python", False),
        # The reader takes an indented call for one: no blank may lead into it.
        ({}, ' get_weather(town="London")', False),
        ({}, "Sure!\n\tget_weather(town=1)", False),
        ({}, "Sure!\n\n  - one\n  - two", True),
    ],
)
def test_prose_and_calls_are_admitted_but_nothing_between(
    options: dict[str, Any], reply: str, expected: bool
) -> None:
    assert admits(grammar(GET_WEATHER, SEND_MAIL, **options), reply) is expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", True),
        ("flag=True, count=-3, ratio=0.5", True),
        ("ratio=None, level=None, fixed='only'", False),  # a string has double quotes
        ('ratio=None, level=None, fixed="only"', True),
        ('level=1, tags=["a", "b"]', True),
        ('level="two"', True),
        ('level="three"', False),
        ("level=true", False),
        ("tags=[]", False),
        ('sizes={"a": 1, "b": 2}', True),
        ('sizes={"a": "1"}', False),
        ('node={"name": "a", "next": {"name": "b"}}', True),
        ('node={"next": {"name": "b"}}', False),
        ('free=[1, "x", {"y": None}]', True),
        ('from_="start"', True),
        ("from_=2", True),
        ("from=2", False),
        ("count=1.5", False),
        ("count=007", False),
        ('tags=["a\\"b\\n"]', True),
        ('tags=["a"b"]', False),
        ("count=1, flag=True", False),  # not the schema's order
    ],
)
def test_values_are_admitted_by_their_schemas(arguments: str, expected: bool) -> None:
    call = f"everything({arguments})"
    assert admits(grammar(EVERYTHING, required=True), call) is expected
    if expected:
        assert isinstance(ast.parse(call, mode="eval").body, ast.Call)


def test_names_and_choices_of_a_client_cannot_leave_their_literals() -> None:
    text = grammar(HOSTILE_TOOL, required=True, source=HOSTILE)
    assert [line.split(" ::= ")[0] for line in text.splitlines()].count("root") == 1
    assert not admits(text, "free text")
    tool = Toolset.parse([HOSTILE_TOOL]).tools[0]
    name = tool.arguments[0].python_name
    assert admits(text, f"pick({name}={json.dumps(HOSTILE)})")


def test_there_is_no_grammar_without_a_tool_to_call() -> None:
    with pytest.raises(ValueError, match="'rain' is not among \\['get_weather'\\]"):
        grammar(GET_WEATHER, only="rain")


REQUEST = "Write 2 lines, or 1,500, to bob@x.org: The Wall fell at three. In celsius? No-one knows"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("bob@x.org", True),
        ("The Wall", True),
        ("The Wall fell at three", True),
        ("lines, or 1,500", True),
        ("No-one knows", True),
        ("Wall fell at", False),  # ends with a preposition
        ("Write 2 lines", False),  # begins with what opens a request
        ("the wall", False),
        ("alice@x.org", False),
        ("", False),
    ],
)
def test_copied_strings_are_runs_of_the_sources_words(value: str, expected: bool) -> None:
    tool = function("say", strings("text"))
    call = f"say(text={json.dumps(value)})"
    assert admits(grammar(tool, required=True, source=REQUEST), call) is expected


def test_a_copied_string_stays_on_its_line() -> None:
    text = grammar(function("say", strings("text")), required=True, source="first line\nsecond")
    assert admits(text, 'say(text="second")')
    assert not admits(text, 'say(text="line\\nsecond")')


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        (REQUEST, ["2", "1500", "3"]),
        ("-5 and 2.50, 10am, v2, 3.1.4, 7", ["-5", "2.50", "10", "3.1", "7"]),
        ("Twenty of them", ["20"]),
        ("none at all", []),
    ],
)
def test_numbers_of_a_source_are_found_once_each(source: str, numbers: list[str]) -> None:
    assert CopySource(source).numbers() == numbers


@pytest.mark.parametrize(
    ("source", "arguments", "expected"),
    [
        ("two, please", "number=2", True),
        ("two, please", "number=3", False),
        ("some, please", "number=3", True),  # required: free where the source holds none
        ("some, please", "number=3, limit=4", False),  # optional: left out
        ("7 please", "number=7, limit=7", True),
        ("7 in celsius", 'number=7, unit="celsius"', True),
        ("7 in celsius", 'number=7, unit="kelvin"', False),
        ("7 degrees", 'number=7, unit="kelvin"', False),
        ("7 please", "number=7, urgent=True", False),
        ("7, urgent", "number=7, urgent=True", True),
    ],
)
def test_nothing_optional_is_made_up_that_a_source_lacks(
    source: str, arguments: str, expected: bool
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "limit": {"type": "integer"},
            "unit": {"enum": ["celsius", "kelvin"]},
            "urgent": {"type": "boolean"},
        },
        "required": ["number"],
    }
    text = grammar(function("f", schema), required=True, source=source)
    assert admits(text, f"f({arguments})") is expected


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    from emulator.upstream.local_model import serve

    with serve() as url:
        yield url


def generate(model: str, request: str, text: str) -> str:
    body = {
        "messages": [{"role": "user", "content": request}],
        "grammar": text,
        "temperature": 0,
        "repeat_penalty": 1.3,  # without a prompt such a model repeats itself to the end
        "max_tokens": 200,
    }
    sent = urllib.request.Request(
        f"{model}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(sent) as answer:
        content: str = json.load(answer)["choices"][0]["message"]["content"]
    return content


@pytest.mark.live
@pytest.mark.parametrize(
    ("tools", "request_text", "copy"),
    [
        ((GET_WEATHER, SEND_MAIL), "What's the weather in London?", False),
        ((GET_WEATHER, SEND_MAIL), "Send a mail to Bob saying “hi”\x07 \\ 'quoted'", True),
        ((CREATE_EVENT,), "Plan dinner with Ann, 31, in Oslo", False),
        ((EVERYTHING,), "Tags red and blue, count 3, please", False),
        ((EVERYTHING,), "Tags red and blue, count 3, please", True),
        ((HOSTILE_TOOL,), HOSTILE, True),
        ((GET_WEATHER,), "Как погода в Осло, 東京?", True),
    ],
)
def test_what_llama_cpp_writes_under_a_grammar_binds(
    model: str, tools: tuple[Any, ...], request_text: str, copy: bool
) -> None:
    toolset = Toolset.parse(tools)
    source = request_text if copy else None
    # One call: a second one might be cut off.
    text = gbnf(toolset.tools, required=True, parallel=False, source=source)
    (statement,) = ast.parse(generate(model, request_text, text)).body
    assert isinstance(statement, ast.Expr)
    call = statement.value
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    values = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    assert isinstance(toolset.bind(call.func.id, [], values), dict)


@pytest.mark.live
def test_llama_cpp_may_answer_in_prose_under_a_grammar(model: str) -> None:
    text = grammar(GET_WEATHER, SEND_MAIL)
    assert admits(text, generate(model, "Tell me about the sea.", text))
