"""What the model writes, and what the client must get. Knows no gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.formats import FORMATS, VARIANTS, reply
from tests.support.scripted import Reply
from tests.support.tools import function, strings

Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    group: str
    name: str
    replies: Sequence[str | Reply]
    """What the model writes, turn by turn; the last again and again."""
    calls: Sequence[Call] = ()
    """What the client must get; without any it must get the first reply, unchanged."""
    means: str = "RUN"
    """What the model answers to a gateway that asks it whether its reply was meant as a call."""


def _object(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_TEXT = {"type": "string"}
TOOLS = [
    function(
        "get_weather",
        _object(["city"], city=_TEXT, days={"type": "integer"}),
        "Get the weather of the next days in a city.",
    ),
    function("get_time", strings(optional=("tz",)), "Get the time."),
    function(
        "create_event",
        _object(
            ["title", "when"],
            title=_TEXT,
            when=_object(["day"], day=_TEXT, hours={"type": "array", "items": {"type": "integer"}}),
            guests={"type": "array", "items": _object(["name"], name=_TEXT)},
        ),
        "Put an event into the calendar.",
    ),
    function("search", strings("query"), "Search the files."),
    function("send_email", strings("to", "body"), "Send an e-mail."),
    function("sentiment_analysis", strings("text"), "Judge the mood of a text."),
    function("parse_json", strings("text"), "Parse a text."),
]
MESSAGES = [{"role": "user", "content": "Do what we said."}]

OSLO: Call = ("get_weather", {"city": "Oslo", "days": 3})

# ------------------------------------------------------------------------------------------------
_INCOMPLETE = ("cut off", "wrong name")


def _formats() -> Iterator[Case]:
    """Each format that models are trained to write, in each variant with complete calls of offered tools."""
    for one in FORMATS:
        for variant, calls in VARIANTS.items():
            if variant not in _INCOMPLETE:
                name = f"{one.name}: {variant}"
                yield Case("ways of writing calls", name, [reply(one, variant)], calls)


def _wrong_names() -> Iterator[Case]:
    """The name is almost that of a tool; told of it, the model writes the right one in the same format."""
    for one in FORMATS:
        wrong, right = (
            reply(one, "wrong name"),
            one.write([("get_weather", {"city": "Oslo"})]),
        )
        yield Case(
            "a wrong name, corrected",
            one.name,
            [wrong, right],
            [("get_weather", {"city": "Oslo"})],
        )


def _native(name: str, arguments: Any) -> Reply:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = {"name": name, "arguments": written}
    return Reply(tool_calls=[call], finish_reason="tool_calls")


def _hermes(name: str, arguments: Any) -> str:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {written}}}\n</tool_call>'


def _fence(name: str, arguments: Any) -> str:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f'```json\n{{"name": "{name}", "arguments": {written}}}\n```'


_WRITERS: Mapping[str, Callable[[str, Any], str | Reply]] = {
    "native call": _native,
    "Hermes": _hermes,
    "JSON in a fence": _fence,
}
_FAULTS: Mapping[str, tuple[str, Any]] = {
    "no such tool": ("weather_lookup", {"city": "Oslo", "days": 3}),
    "a required argument is missing": ("get_weather", {"days": 3}),
    "a word for a number": ("get_weather", {"city": "Oslo", "days": "some"}),
    "an object for a text": ("get_weather", {"city": {"name": "Oslo"}, "days": 3}),
    "arguments are a list": ("get_weather", ["Oslo", 3]),
    "JSON that ends early": ("get_weather", '{"city": "Oslo", "days": '),
}
_MENDABLE: Mapping[str, tuple[str, Any]] = {
    "nothing": OSLO,
    "a number as text": ("get_weather", {"city": "Oslo", "days": "3"}),
    "a comma too many": ("get_weather", '{"city": "Oslo", "days": 3,}'),
    "single quotes": ("get_weather", "{'city': 'Oslo', 'days': 3}"),
    "arguments as text": ("get_weather", json.dumps('{"city": "Oslo", "days": 3}')),
    "another case": ("Get_Weather", {"city": "Oslo", "days": 3}),
    "a namespace": ("functions.get_weather", {"city": "Oslo", "days": 3}),
}


def _repairs() -> Iterator[Case]:
    """Calls with a fault. Of the second kind the model sees nothing wrong, and repeats them."""
    for way, write in _WRITERS.items():
        for fault, (name, arguments) in _FAULTS.items():
            replies = [write(name, arguments), write(*OSLO)]
            yield Case("a faulty call, corrected", f"{way}: {fault}", replies, [OSLO])
        for fault, (name, arguments) in _MENDABLE.items():
            yield Case("small faults", f"{way}: {fault}", [write(name, arguments)], [OSLO])


_EXAMPLES = {
    "Python": 'It is called like this:\n\n```python\nsend_email(to="a@b.c", body="Hi")\n```\n\nIs that fine?',
    "JSON": (
        'The request would be:\n\n```json\n{"name": "send_email", "arguments": {"to": "a@b.c", "body": "Hi"}}'
        "\n```\n\nTell me if I should send it."
    ),
}  # fmt: skip
_NO = (
    *("NO", "No.", "**NO**", "no", "NO, I only showed it.", "No, it is an example:", "- NO"),
    *(
        "RUN? No, I only showed it.",
        "NO\nRUN",
        "Nein, das war ein Beispiel.",
        "いいえ、見せただけです。",
    ),
)


def _declined() -> Iterator[Case]:
    for way, example in _EXAMPLES.items():
        for no in _NO:
            yield Case("an example, and NO", f"{way}: {no!r}", [example], means=no)


_WORDS = (
    "It is sunny in Oslo.",
    "Which city do you mean?",
    "I could call get_weather for that, if you tell me the city.",
    "Use `search` with a query, as in search(query).",
    '{"city": "Oslo", "forecast": ["sun", "rain"]}',
    "```python\nfor n in range(3):\n    print(n)\n```",
    "```json\n{\"name\": \"Bo\", \"age\": 3}\n```",
    "| tool | for |\n|---|---|\n| get_weather | the weather |",
    "The tag <tool_call> starts a call.",
    "Done. I have sent the e-mail to a@b.c.",
)  # fmt: skip


def _words() -> Iterator[Case]:
    for text in _WORDS:
        yield Case("an answer in words", text[:40], [text], means="NO")


CASES = (*_formats(), *_wrong_names(), *_repairs(), *_declined(), *_words())
