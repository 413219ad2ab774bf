"""The formats of formats.md, which says how models are trained to write calls, and the variants of each.

docs/formats.md shows the same formats. To add one, add a section to formats.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Call = tuple[str, dict[str, Any]]

FILE = Path(__file__).with_suffix(".md")


@dataclass(frozen=True, kw_only=True)
class Format:
    """How one family of models writes calls. formats.md explains the fields."""

    name: str
    source: str
    call: str
    head: str = ""
    join: str = "\n"
    tail: str = ""
    parameter: str = ""
    arguments: str = "json"
    thought: str = "<think>\n@THOUGHT@\n</think>\n\n"
    shown: str = "@TEXT@\n\n"
    special: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    afterwards: bool = True
    label: str = ""

    def write(self, calls: Sequence[Call], *, stripped: bool = False) -> str:
        """The calls as the model writes them."""
        text = self.head + self.join.join(map(self._call, range(len(calls)), calls)) + self.tail
        return re.sub(self.special, "", text) if stripped else text

    def _call(self, number: int, call: Call) -> str:
        name, arguments = call
        parts = {
            "JSON": lambda: json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False),
            "NAME": lambda: name,
            "ARGS": lambda: _ARGUMENTS[self.arguments](arguments),
            "PARAMS": lambda: "".join(self._parameter(*item) for item in arguments.items()),
            "PYTHON": lambda: _python(name, arguments),
            "COLONS": lambda: _python(name, arguments, ": ", json.dumps),
            "QUOTED": lambda: repr(_python(name, arguments)),
            "N": lambda: str(number),
        }
        return re.sub(r"@([A-Z]+)@", lambda match: parts[match[1]](), self.call)

    def _parameter(self, key: str, value: Any) -> str:
        if self.parameter == "minimax_m3":
            return _minimax_m3(key, value)
        is_text, kind = _KINDS.get(type(value), ("false", "object"))
        text = value if isinstance(value, str) else json.dumps(value)
        parts = {"KEY": key, "VALUE": text, "STRING": is_text, "TYPE": kind}
        return re.sub(r"@(KEY|VALUE|STRING|TYPE)@", lambda match: parts[match[1]], self.parameter)


_KINDS: dict[type, tuple[str, str]] = {
    str: ("true", "string"),
    bool: ("false", "boolean"),
    int: ("false", "number"),
}


def _python(
    name: str, arguments: dict[str, Any], sign: str = "=", write: Callable[[Any], str] = repr
) -> str:
    return f"{name}({', '.join(f'{key}{sign}{write(value)}' for key, value in arguments.items())})"


def _gemma(quote: str) -> Callable[[Any], str]:
    def write(value: Any) -> str:
        match value:
            case str():
                return f"{quote}{value}{quote}"
            case dict():
                return "{" + ",".join(f"{key}:{write(item)}" for key, item in value.items()) + "}"
            case list():
                return "[" + ",".join(map(write, value)) + "]"
        return json.dumps(value)

    return write


_M3 = "]<]minimax[>["


def _minimax_m3(key: str, value: Any) -> str:
    match value:
        case dict():
            inner = "".join(_minimax_m3(name, item) for name, item in value.items())
        case list():
            inner = "".join(_minimax_m3("item", item) for item in value)
        case _:
            inner = value if isinstance(value, str) else json.dumps(value)
    return f"{_M3}<{key}>{inner}{_M3}</{key}>"


_ARGUMENTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "json": json.dumps,
    "quoted_json": lambda arguments: json.dumps(json.dumps(arguments)),
    "gemma_escape": _gemma("<escape>"),
    "gemma_bars": _gemma('<|"|>'),
}


def _formats() -> Iterator[Format]:
    text = FILE.read_text(encoding="utf-8").replace("@NS@", "antml")
    for section in text.split("\n## ")[1:]:
        name, *lines = section.strip("\n").split("\n")
        fields: dict[str, Any] = {"name": name, "unread": {}}
        for key, written in (line.split(": ", 1) for line in lines):
            quoted = written.startswith('"')
            value = json.loads(written) if quoted else written.replace(r"\n", "\n")
            if key.startswith("unread "):
                fields["unread"][key.removeprefix("unread ")] = value
            else:
                fields[key] = value != "no" if key == "afterwards" else value
        yield Format(**fields)


FORMATS = tuple(_formats())


# ------------------------------------------------------------------------------------------------
# The variants that every row has to pass.

OSLO: Call = ("get_weather", {"city": "Oslo", "days": 3})
CET: Call = ("get_time", {"tz": "CET"})
BERGEN: Call = ("get_weather", {"city": "Bergen", "days": 1})
NESTED: Call = (
    "create_event",
    {"title": "Fika", "when": {"day": "Friday", "hours": [9, 10]}, "guests": [{"name": "Bo"}]},
)
CODE: Call = (
    "search",
    {"query": 'def f(x):\n    return {"a": x[0], "b": "it\'s"}  # <b>\n\nprint(f("y"))'},
)
TAGS: Call = (
    "send_email",
    {"to": "a@b.c", "body": "Write </tool_call> or </function>, then <|im_end|> and </s>. Done."},
)
LAST_NEWLINE: Call = ("search", {"query": "one\ntwo\n"})
WRONG: Call = ("get_wether", {"city": "Oslo"})

#: Names that end like what some formats write behind a name.
LIKE_WORDS: tuple[Call, ...] = (
    ("sentiment_analysis", {"text": "Fine."}),
    ("parse_json", {"text": "no"}),
)

VARIANTS: dict[str, tuple[Call, ...]] = {
    "plain": (OSLO,),
    "no arguments": (("get_time", {}),),
    "reasoning": (OSLO,),
    "prose": (OSLO,),
    "several": (OSLO, CET, BERGEN),
    "nested": (NESTED,),
    "code": (CODE,),
    "tags": (TAGS,),
    "names like words": LIKE_WORDS,
    "last newline": (LAST_NEWLINE,),
    "cut off": (OSLO, CET),
    "wrong name": (WRONG,),
    "stripped": (OSLO, CET),
}

THOUGHT = "The user wants the weather. I could get it."
BEFORE = "I'll look that up."
AFTER = "\n\nOne moment, please."


def reply(format: Format, variant: str) -> str:
    """The whole reply of a variant."""
    text = format.write(VARIANTS[variant], stripped=variant == "stripped")
    if variant == "reasoning":
        return format.thought.replace("@THOUGHT@", THOUGHT) + text
    if variant == "prose":
        shown = format.shown.replace("@TEXT@", BEFORE)
        return shown + text + (AFTER if format.afterwards else "")
    return text
