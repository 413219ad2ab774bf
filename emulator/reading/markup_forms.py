"""The table of call forms in tags or tokens: how each begins, and how its arguments are read.

To add a form, add a row to `FORMS`. Values in elements stay text: the schema determines their
types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from emulator.core.command_tools import COMMAND_PARAMETERS
from emulator.reading.calls import ARGUMENT_KEYS, ENVELOPE, JSON, find_calls
from emulator.reading.elements import (
    ARGUMENT,
    ATTRIBUTES_BEFORE,
    ATTRIBUTES_FOLLOW,
    CALLING,
    PREFIX,
    SUFFIX,
    WRAPPERS,
    parse_children,
    parse_opening_tag,
)
from emulator.reading.markup_arguments import MARK, parse_gemma, parse_marked
from emulator.reading.markup_block import MarkupBlock
from emulator.reading.statements import unreadable


def _name(key: str) -> str:
    return rf"(?P<{key}>[\w.\-:/]{{1,200}})"


@dataclass(frozen=True)
class Header:
    """The beginning of a call: from the index of its first character to the index of its arguments."""

    start: int
    end: int
    text: str


#: The calls that are read, as (name, arguments), and the index after them.
Calls = tuple[list[tuple[str, JSON]], int]
Read = Callable[[MarkupBlock, Header, str], Calls]


@dataclass(frozen=True)
class MarkupForm:
    """How a call begins. The regular expression ``opening`` has a group named ``key``, which
    matches the function's name.
    """

    key: str
    like: str
    opening: str
    read: Read


_WRAPPED = re.compile(rf"(?:\s*<(?:{WRAPPERS})>)?")
_JSON_FOLLOWS = re.compile(rf"{_WRAPPED.pattern}\s*(?:```\w*\s*)?(?=\{{)")
_ARGUMENT_FOLLOWS = re.compile(rf"{_WRAPPED.pattern}\s*(?:{ARGUMENT})")
_TAG = re.compile(rf"<{PREFIX}(?P<name>[A-Za-z_]\w*)")
_ARGUMENTS_ONLY = [[key] for key in ARGUMENT_KEYS]
_CLOSES = re.compile(r"\s*(?:</|\Z)")
_CHILD_FOLLOWS = re.compile(r"\s*<[A-Za-z_]")
_BAD_ARGUMENTS = re.compile(r"\s*(?:```\w*\s*)?(?P<text>[^\s<\[`][^\n]{0,200})")


def _json_or_none(block: MarkupBlock, header: Header, name: str) -> Calls:
    """Read the arguments as a JSON object; no arguments if nothing or another tag follows."""
    begins = _JSON_FOLLOWS.match(block.text, header.end)
    if begins is not None:
        value, end = block.json(begins.end())
        inner = list(find_calls(value, block.names))
        if len(inner) == 1 and inner[0][0] == name:  # the call repeats its name
            return inner, end
        return [(name, value)], end
    other = _BAD_ARGUMENTS.match(block.text, header.end)
    if other is not None:
        raise unreadable(
            "expected the arguments as a JSON object",
            line=block.line(other.start("text")),
            source_line=other["text"][:200],
            hint='write {"argument": value}',
        )
    return [(name, None)], header.end


def _elements(block: MarkupBlock, header: Header, name: str) -> Calls:
    if _JSON_FOLLOWS.match(block.text, header.end):
        return _json_or_none(block, header, name)
    found = block.elements.arguments(header.end, framed=header.text.startswith("<"))
    is_named_after = _CHILD_FOLLOWS.match(block.text, header.end)
    if found is None and is_named_after and not _ARGUMENT_FOLLOWS.match(block.plain, header.end):
        found = {}, header.end
    if found is None:
        if header.end == len(block.text.rstrip()):
            return [(name, None)], len(block.text)
        raise unreadable(
            "the call is cut off within a parameter",
            line=block.line(header.start),
            hint="write it again, complete",
        )
    arguments, end = found
    tag = _TAG.match(header.text)
    if not arguments and tag and _CHILD_FOLLOWS.match(block.text, header.end):
        arguments, end = parse_children(block.text, header.end, tag["name"])
    if not arguments:
        return _json_or_none(block, header, name)[0], end
    return [(name, arguments)], end


def _in_tag(read: Read, *, names_call: bool = False) -> Read:
    """Read arguments in the attributes of a call's tag, and with ``read`` those in the element.

    ``names_call``: the attributes are the keys of a call object. ``name`` is the function's, others (``id``)
    are no arguments if the element has some, and ``arguments`` may hold them all.
    """

    def read_tag(block: MarkupBlock, header: Header, name: str) -> Calls:
        tag_name = _TAG.match(header.text) if names_call else None
        at = header.start + tag_name.end() if tag_name else header.end
        tag = parse_opening_tag(block.text, at)
        header = replace(header, end=tag.end, text=block.text[header.start : tag.end])
        if tag.is_empty:
            calls: list[tuple[str, JSON]] = [(name, None)]
            end = tag.end
        else:
            calls, end = read(block, header, name)
        inner = calls[0][1]
        ignored = (ENVELOPE | {"name"} if inner else {"name"}) if names_call else ()
        attributes = {key: value for key, value in tag.attributes.items() if key not in ignored}
        if not attributes:
            return calls, end
        if names_call and not inner and [*attributes] in _ARGUMENTS_ONLY:
            return [(name, next(iter(attributes.values())))], end
        is_read = inner or tag.is_empty or _CLOSES.match(block.text, tag.end)
        others = {} if inner is None else inner
        is_sole = is_read and len(calls) == 1
        if not (is_sole and isinstance(others, dict)) or others.keys() & attributes:
            raise unreadable(
                f"{name} has arguments in its tag and others in its element",
                line=block.line(header.start),
            )
        return [(name, attributes | others)], end

    return read_tag


def _own_syntax(parse: Callable[[str, int], tuple[dict[str, JSON], int]]) -> Read:
    def read(block: MarkupBlock, header: Header, name: str) -> Calls:
        arguments, end = parse(block.text, header.end)
        return [(name, arguments)], end

    return read


def _command(block: MarkupBlock, start: int, name: str) -> Calls | None:
    """``<execute_command><command>ls</command></execute_command>``, ``<bash>ls</bash>``."""
    end = block.text.find(f"</{name}>", start)
    inner = block.text[start:end]
    if end < 0 or not inner.strip() or _JSON_FOLLOWS.match(inner):
        return None
    called = str(block.names.command)
    arguments, _ = parse_children(block.text, start, name)
    if not arguments:
        return [(called, [inner.strip("\n")])], end
    if block.names.find(name):
        return None
    # The other arguments belong to another agent's tool.
    keys = COMMAND_PARAMETERS & arguments.keys()
    return ([(called, [arguments[next(iter(keys))]])], end) if keys else None


def _element(block: MarkupBlock, header: Header, name: str) -> Calls:
    if block.names.runs_commands(name):
        command = _command(block, header.end, name)
        if command is not None:
            return command
    if _JSON_FOLLOWS.match(block.text, header.end):
        return _json_or_none(block, header, name)
    return _by_parameter(block, header, name, name)


def _by_parameter(block: MarkupBlock, header: Header, name: str, parent: str | None) -> Calls:
    """Read the arguments in elements, up to the end of ``parent``."""
    if _ARGUMENT_FOLLOWS.match(block.plain, header.end):
        found = block.elements.arguments(header.end, framed=False)
        if found is not None:
            return [(name, found[0])], found[1]
    arguments, end = parse_children(block.text, header.end, parent)
    if not arguments and not block.text.startswith(
        f"</{parent or ''}", end - len(parent or "") - 3
    ):
        return _json_or_none(block, header, name)
    return [(name, arguments)], end


_PARENT = re.compile(r"<(?P<name>\w+)>\Z")


def _children(block: MarkupBlock, header: Header, name: str) -> Calls:
    parent = _PARENT.search(header.text)
    if _JSON_FOLLOWS.match(block.text, header.end) or not _CHILD_FOLLOWS.match(
        block.text, header.end
    ):
        return _json_or_none(block, header, name)
    return _by_parameter(block, header, name, parent["name"] if parent else None)


_QUOTED = re.compile(r"(?P<quote>[\"'])(?P<text>.*)(?P=quote)\]\s*\Z", re.DOTALL)


def _history_line(block: MarkupBlock, header: Header, name: str) -> Calls:
    value = _QUOTED.match(block.text, header.end)
    if value is None:
        raise unreadable("the call is cut off", line=block.line(header.start))
    return [(name, [value["text"]])], len(block.text)


def _json(block: MarkupBlock, header: Header, _: str) -> Calls:
    value, end = block.json(header.start)
    return list(find_calls(value, block.names)) or list(_by_key(value)), end


def _by_key(value: JSON) -> Iterator[tuple[str, JSON]]:
    """``{"f": {"a": 1}}``, even if f is not offered."""
    for item in value if isinstance(value, list) else [value]:
        match item:
            case dict() if len(item) == 1 and all(isinstance(v, dict) for v in item.values()):
                yield from item.items()


FORMS: tuple[MarkupForm, ...] = (
    MarkupForm(
        "marked",
        "MiniMax M3",
        rf"{re.escape(MARK)}\s*<invoke name=[\"']?(?P<marked>[^\"'>]{{1,200}})[\"']?>",
        _own_syntax(parse_marked),
    ),
    MarkupForm(
        "equals",
        "<function=f><parameter=a>1</parameter></function>; also with JSON inside",
        rf"<{PREFIX}function=\s*[\"']?(?P<equals>[^\s<>\"']{{1,200}}?)[\"']?{ATTRIBUTES_FOLLOW}",
        _in_tag(_elements),
    ),
    MarkupForm(
        "named",
        '<invoke name="f"><parameter name="a">1</parameter></invoke>; also function, tool, call',
        rf"<{CALLING}{ATTRIBUTES_BEFORE}\s+name=[\"']?(?P<named>[^\"'<>]{{1,200}}?)[\"']?{ATTRIBUTES_FOLLOW}",
        _in_tag(_elements, names_call=True),
    ),
    MarkupForm(
        "children",
        "<tool_name>f</tool_name><parameters><a>1</a></parameters>; also name, arguments, and JSON",
        r"<(?P<tag>(?:tool_|function_)?name)>\s*(?P<children>[^\s<>]{1,200})\s*</(?P=tag)>\s*"
        r"(?:<(?:parameters|params|arguments|args|input)>)?",
        _children,
    ),
    MarkupForm(
        "pairs",
        "<tool_call>f <arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
        rf"(?:<{PREFIX}(?:\w{{1,20}}_)?tool_call{SUFFIX}>\s*|^[ \t]*|(?<=>)){_name('pairs')}\s*"
        rf"(?:<tool_sep{SUFFIX}>\s*)?(?=<{PREFIX}arg_key|</{PREFIX}(?:\w{{1,20}}_)?tool_call)",
        _elements,
    ),
    MarkupForm(
        "solar_2",
        "<|tool_call:start|>f, <|tool_arg:start|>a<|tool_arg:value|>1<|tool_arg:end|>",
        rf"<\|tool_call:start\|>\s*{_name('solar_2')}",
        _elements,
    ),
    MarkupForm(
        "kimi_3",
        '<|open|>call tool="f"<|sep|><|open|>argument key="a"<|sep|>1<|close|>argument<|sep|>',
        r"<\|open\|>call\s+tool=\"(?P<kimi_3>[^\"]{1,200})\"[^<]{0,200}<\|sep\|>",
        _elements,
    ),
    MarkupForm(
        "deepseek",
        "<|tool_call_begin|>function<|tool_sep|>f, then JSON; Kimi's functions.f:0",
        r"<\|tool_call_begin\|>(?!function<\|tool_sep\|>\s*<)\s*(?:function<\|tool_sep\|>)?"
        rf"\s*{_name('deepseek')}\s*(?:<\|tool_sep\|>|<\|tool_call_argument_begin\|>)?",
        _json_or_none,
    ),
    MarkupForm(
        "harmony",
        "to=functions.f <|message|> then JSON",
        r"\bto=(?:functions\.)?(?P<harmony>[\w.\-]{1,200}?)(?=commentary|analysis|[^\w.\-])"
        r"(?:[^{<]{0,60}<\|\w{1,20}\|>){0,4}[^{<]{0,60}(?=\{)",
        _json_or_none,
    ),
    MarkupForm(
        "mistral",
        "[TOOL_CALLS]f[ARGS] then JSON, perhaps with a [CALL_ID]",
        r"(?:\[TOOL_CALLS\]\s*|(?<=\})\s*)(?P<mistral>[\w.\-]{1,200})\s*"
        r"(?:\[CALL_ID\]\w*)?(?:\[ARGS\]|(?=\s*\{))",
        _json_or_none,
    ),
    MarkupForm(
        "solar",
        "<|tool_call:name|>f<|tool_call:args|> then JSON",
        rf"<\|tool_call:name\|>{_name('solar')}<\|tool_call:args\|>",
        _json_or_none,
    ),
    MarkupForm(
        "functionary", ">>>f, then JSON", rf">>>\s*{_name('functionary')}\s*(?=\{{)", _json_or_none
    ),
    MarkupForm(
        "announced",
        "[tool_call: f for 'x'], as in agents' histories: one value for the first parameter",
        r"\[tool_call:\s*(?P<announced>[\w.\-]{1,200})\s+for\s+(?=[\"'])",
        _history_line,
    ),
    MarkupForm(
        "gemma",
        "call:f{a:<escape>1<escape>}",
        rf"\bcall:{_name('gemma')}(?=\{{)",
        _own_syntax(parse_gemma),
    ),
    MarkupForm(
        "element",
        '<f><a>1</a></f>, <f a="1"/>',
        rf"<(?P<element>[A-Za-z_][\w.\-]{{0,200}}){ATTRIBUTES_FOLLOW}",
        _in_tag(_element),
    ),
    MarkupForm(
        "bare",
        "f then JSON, as it remains when special tokens are removed",
        r"(?<![\w.\-:=|])(?:functions\.|function(?=\w))?(?P<bare>[A-Za-z_][\w.\-]{0,200})(?::\d{1,4})?"
        r"(?=\s*(?:```\w*\s*)?\{)",
        _json_or_none,
    ),
    MarkupForm(  # words in braces are a blank in the prose that follows a call
        "json", "a call in JSON", r"(?P<json>\{(?!\s*[A-Za-z][\w ]*\})|\[(?=\s*[\[{]))", _json
    ),
    MarkupForm(
        "python",
        "a call in Python",
        r"(?P<python>\[\s*[\w.]{1,400}\s*\(|(?<![\w.])[A-Za-z_][\w.]{0,400}\()",
        _json,
    ),
)
