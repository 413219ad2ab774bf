"""Arguments in elements, under every way of naming the call: one parser.

    <parameter=city>Oslo</parameter>          the rows of `ARGUMENTS`: the element names the argument
    <param name="city" value="Oslo"/>         its value may be an attribute (with XML's entities)
    <city>Oslo</city>                         elements that are named after the parameters
    <invoke name="f" city="Oslo"/>            attributes of the call's own tag
    <params> ... </params>                    may be around the arguments (`WRAPPERS`), also around JSON

A value is any text, so it may contain tags. It ends at a closing tag after which the call can continue:
another argument, or the end of an element that was opened around the arguments. A closing tag followed by
anything else is part of the value. If the closing tag is missing, the value ends at the next argument that
begins a line, or with the call. A value that begins or ends with closing tags of this syntax was misread, and
is refused.

The text is read once: all tags of a block are found first.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from html import unescape
from typing import Any

from emulator.reading.statements import unreadable

#: Optional prefixes and suffixes of tag names: ``steptml:invoke``, ``|DSML|invoke``, ``arg_key:opensource``.
PREFIX = r"(?:\w{1,20}:|\|\w{1,20}\| ?|ifm\|)?"
SUFFIX = r"(?::\w{1,20})?"

_KEY = r"[\"']?(?P<{0}>[^\"'<>\n]{{1,200}})[\"']?"
_TYPED = r"(?:\s+(?:string=[\"']?(?P<{0}_string>\w+)|type=[\"']?(?P<{0}_type>\w+))[\"']?)?[^<>\n]{{0,200}}"
_ATTRIBUTES = (
    r"(?:\s+[\w:.\-]{1,60}\s*=\s*(?:\"[^\"<]{0,4000}\"|'[^'<]{0,4000}'|[^\s\"'<>/]{1,200})){1,6}"
)
_ATTRIBUTE = re.compile(r"\s([\w:.\-]{1,60})\s*=\s*(?:\"([^\"<]*)\"|'([^'<]*)'|([^\s\"'<>/]+))")
_PARAMETER = rf"{PREFIX}(?:parameter|param|arg(?:ument)?)"
WRAPPERS = r"params|parameters|arguments|args|input"
"""Elements around all arguments of a call."""


@dataclass(frozen=True)
class ArgumentElement:
    """A kind of element that holds one argument.

    ``opening`` has a group of the row's name with the argument's name, or the attribute ``name`` or ``key``.
    ``implied``: another opening at the beginning of a line closes an element that was left open.
    """

    name: str
    opening: str
    closing: str
    implied: bool = False


ARGUMENTS: tuple[ArgumentElement, ...] = (
    ArgumentElement(
        "equals",  # <parameter=city>
        rf"<{PREFIX}(?:parameter|param|arg)={_KEY.format('equals')}>",
        rf"</{PREFIX}(?:parameter|param|arg)>",
        implied=True,
    ),
    ArgumentElement(
        "named",  # <parameter name="city" string="true">, <param name="city" value="Oslo"/>
        rf"<{_PARAMETER}(?=[^<>]{{0,400}}?\s(?:name|key)\s*=){_ATTRIBUTES}\s*/?>",
        rf"</{_PARAMETER}>",
    ),
    ArgumentElement(
        "spelled",  # <param><name>city</name><value>Oslo</value></param>
        rf"<{_PARAMETER}>\s*<name>(?P<spelled>[^<]{{1,200}})</name>\s*<value>",
        rf"</value>\s*</{_PARAMETER}>",
    ),
    ArgumentElement(
        "pair",  # <arg_key>city</arg_key><arg_value>
        rf"<{PREFIX}arg_key{SUFFIX}>(?P<pair>[^<]{{1,200}})</{PREFIX}arg_key{SUFFIX}>\s*"
        rf"(?:<{PREFIX}arg_type>(?P<pair_type>[^<]{{0,40}})</{PREFIX}arg_type>\s*)?"
        rf"<{PREFIX}arg_value{SUFFIX}>",
        rf"</{PREFIX}arg_value{SUFFIX}>",
        implied=True,
    ),
    ArgumentElement(
        "kimi",  # <|open|>argument key="city" type="string"<|sep|>
        rf"<\|open\|>argument\s+key={_KEY.format('kimi')}{_TYPED.format('kimi')}<\|sep\|>",
        r"<\|close\|>argument<\|sep\|>",
    ),
    ArgumentElement(
        "solar",  # <|tool_arg:start|>city<|tool_arg:value|>
        r"<\|tool_arg:start\|>(?P<solar>[^<]{1,200})<\|tool_arg:value\|>",
        r"<\|tool_arg:end\|>",
    ),
)

#: What may follow a closed argument, besides white space: more of the call, or its end.
STRUCTURE = re.compile(
    r"\s*(?:\Z|<\||\]<\]|\[/?TOOL|```"
    rf"|[\w.\-]{{1,100}}\s*<{PREFIX}arg_key"
    rf"|</?(?:{WRAPPERS})>"
    rf"|</?{PREFIX}(?:parameters?|param|arg\w*|function\w*|invoke|tool\w*|\w*_?tool_calls?|TOOLCALL|calls)\b)"
)
#: The beginning of another call.
HEAD = rf"<{PREFIX}(?:function=|(?:invoke|function|tool|call|tool_calls?|function_calls?){SUFFIX}[\s>])"
#: The end of a call.
END = (
    rf"</{PREFIX}(?:function(?:_calls?)?|invoke|(?:\w{{1,20}}_)?tool_calls?|tool|calls?|tool_use){SUFFIX}>"
    r"|<\|close\|>call<\|sep\|>|<\|tool_call:end\|>|<\|tool_call_end\|>"
)

_TOKEN = re.compile(
    "|".join(
        [
            *(f"(?P<open_{one.name}>{one.opening})" for one in ARGUMENTS),
            *(f"(?P<close_{number}>{one.closing})" for number, one in enumerate(ARGUMENTS)),
            f"(?P<end>{END})",
            f"(?P<head>{HEAD})",
        ]
    )
)
ARGUMENT = re.sub(r"\?P<\w+>", "?:", "|".join(one.opening for one in ARGUMENTS))
"""The beginning of any argument."""
_IMPLIED = {one.name for one in ARGUMENTS if one.implied}
_CLOSES = {one.name: re.compile(one.closing) for one in ARGUMENTS}
_OPENED = re.compile(r"(?:<[A-Za-z_](?:[^<>\"']|\"[^\"]*\"|'[^']*')*>\s*){1,4}\Z")
_OPENED_NAME = re.compile(r"<([A-Za-z_][\w.\-]{0,100})")
_BETWEEN = re.compile(rf"(?:\s|</?(?:{WRAPPERS})>)*")
"""What may be between two arguments."""
_MISREAD = re.compile(
    rf"\s*</(?:{_PARAMETER}|{WRAPPERS}|function|invoke)>|.*</{_PARAMETER}>(?:\s*</[\w:]{{1,40}}>)*\s*\Z",
    re.DOTALL,
)
_CDATA = re.compile(r"\s*<!\[CDATA\[(?P<text>.*)\]\]>\s*", re.DOTALL)


@dataclass(frozen=True)
class Token:
    """A tag in the block. ``kind``: the name of its row for an opening, else ``close``, ``end`` or
    ``head``.

    ``closes``: the text after it may follow the end of a value or of a call.
    """

    kind: str
    start: int
    end: int
    tag: str
    key: str = ""
    value: str | None = None
    """Of an argument whose value is an attribute, or that has none (``<param name="x"/>``)."""
    is_data: bool = False
    implies: bool = False
    closes: bool = False


class Elements:
    """The argument elements of one block. ``plain`` is its text with look-alike characters
    replaced.
    """

    def __init__(self, plain: str, text: str) -> None:
        self._text = text
        found = [*_TOKEN.finditer(plain)]
        ends = _ends_of_containers(plain, (m.start() for m in found if _kind(m)))
        self._tokens = _ends_of_calls([_token(m, plain, ends) for m in found], plain)
        self._starts = [token.start for token in self._tokens]
        # Row -> for each token, the index of the next closing tag that counts.
        self._next: dict[str, list[int]] = {}

    def arguments(self, at: int, *, framed: bool) -> tuple[dict[str, Any], int] | None:
        """Return the arguments of the call whose header ends at ``at``, and the index where the
        call ends.

        Without ``framed``, no closing tag is needed; with it, none if the last argument is closed and ends
        the text. Returns None if the text ends within the call.
        """
        found: dict[str, Any] = {}
        closed = False
        index = bisect.bisect_left(self._starts, at)
        end = at
        while index < len(self._tokens):
            token = self._tokens[index]
            if token.kind == "end":
                return found, token.end
            if token.kind == "head":
                return found, token.start
            if token.kind == "close":
                index += 1
                continue
            if found and not _BETWEEN.fullmatch(self._text, end, token.start):
                return found, end
            if token.value is not None:
                found[token.key] = _typed(token.value, token)
                index, end = self._after(index)
                closed = True
                continue
            ending = self._ending(index)
            if ending is None:
                return None
            value = self._text[token.end : self._tokens[ending].start]
            found[token.key] = _value(value, token)
            closed = self._tokens[ending].kind == "close"
            end = self._tokens[ending].end if closed else self._tokens[ending].start
            index = ending + closed
        whole = not framed or (closed and _BETWEEN.fullmatch(self._text, end) is not None)
        return (found, end) if found and whole else None

    def _after(self, index: int) -> tuple[int, int]:
        """The next token, and the place, after an argument whose value is in its tag."""
        token, following = self._tokens[index], self._tokens[index + 1 : index + 2]
        for closing in following:
            is_own = closing.kind == "close" and _CLOSES[token.kind].fullmatch(closing.tag)
            if is_own and not self._text[token.end : closing.start].strip():
                return index + 2, closing.end
        return index + 1, token.end

    def _ending(self, index: int) -> int | None:
        """Return the index of the token that ends the value opened by token ``index``, or None."""
        kind, count = self._tokens[index].kind, len(self._tokens)
        closing = self._closing(kind)[index + 1]
        last = None
        for further in range(index + 1, closing):
            token = self._tokens[further]
            if token.kind == kind and token.implies:
                return further
            if token.kind == "end":
                if token.closes:
                    return further
                last = further if last is None else last
        return closing if closing < count else last

    def _closing(self, kind: str) -> list[int]:
        if kind not in self._next:
            count = len(self._tokens)
            following = [count] * (count + 1)
            for index in range(count - 1, -1, -1):
                token = self._tokens[index]
                closes = token.closes and _CLOSES[kind].fullmatch(token.tag) is not None
                following[index] = index if closes else following[index + 1]
            self._next[kind] = following
        return self._next[kind]


def _kind(match: re.Match[str]) -> str:
    """The row of an opening tag; "" for any other."""
    return next((name for name in _CLOSES if match[f"open_{name}"]), "")


def _token(match: re.Match[str], plain: str, ends: re.Pattern[str] | None) -> Token:
    """``ends``: of the elements that were opened around the arguments."""
    kind, groups = _kind(match), match.groupdict()
    tag, start, end = match.group(), match.start(), match.end()
    if not kind:
        kind = next((name for name in ("end", "head") if groups[name]), "close")
        follows = STRUCTURE.match(plain, end) or (ends and ends.match(plain, end))
        return Token(kind, start, end, tag, closes=kind == "close" and follows is not None)
    attributes = {
        name.lower(): unescape("".join(values)) for name, *values in _ATTRIBUTE.findall(tag)
    }
    key = groups[kind] if kind != "named" else attributes.get("name") or attributes.get("key") or ""
    type_name = (attributes.get("type") or groups.get(f"{kind}_type") or "string").lower()
    is_string = attributes.get("string", "").lower()
    return Token(
        kind,
        start,
        end,
        tag,
        key=key.strip(" \"'"),
        value=attributes.get("value", "" if tag.endswith("/>") else None),
        is_data=is_string == "false"
        or (not is_string and type_name not in ("string", "str", "text")),
        implies=kind in _IMPLIED and _implies(plain, start),
    )


def _ends_of_containers(plain: str, openings: Iterable[int]) -> re.Pattern[str] | None:
    """What ends an element that was opened directly before an argument."""
    names: set[str] = set()
    for start in openings:
        if opened := _OPENED.search(plain, max(0, start - _NEAR), start):
            names.update(_OPENED_NAME.findall(opened.group()))
    return re.compile(rf"\s*</(?:{'|'.join(map(re.escape, names))})>") if names else None


def _implies(plain: str, start: int) -> bool:
    """Return True if an opening tag begins its line, or follows another tag in the same line."""
    line = plain[max(0, start - _NEAR) : start].rpartition("\n")
    return not line[2].strip() or (not line[1] and ">" in line[2])


_NEAR = 200


def _ends_of_calls(tokens: list[Token], plain: str) -> list[Token]:
    """Mark the closing tags of calls that count: only closing tags, another call or nothing may
    follow them.
    """
    closes = True
    follows = len(plain)
    for index in range(len(tokens) - 1, -1, -1):
        token = tokens[index]
        closes = closes and not _AROUND.sub("", plain[token.end : follows]).strip()
        follows = token.start
        if token.kind == "end":
            tokens[index] = replace(token, closes=closes)
        else:
            closes = token.kind == "head"
    return tokens


#: Tokens that may occur between the closing tags of calls.
_AROUND = re.compile(r"<\|[^<>|]{1,40}\|>|\[/?[A-Z_]+\]|\]<\]minimax\[>\[|</[\w:|]{1,60}>|```")


def _value(value: str, token: Token) -> Any:
    """Raises `Unreadable`."""
    cdata = _CDATA.fullmatch(value)
    if cdata is not None:
        return cdata["text"]
    if _MISREAD.match(value):
        raise unreadable(f"the argument {token.key!r} contains tags of the call itself")
    return _typed(unwrap(value, loose=token.kind == "equals"), token)


def _typed(value: str, token: Token) -> Any:
    if token.is_data:
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def unwrap(value: str, *, loose: bool = False) -> str:
    """Return a value without the line ends that a template puts around it.

    ``loose``: the template always adds some, so a single-line value with only one of them is
    stripped too.
    """
    if loose and "\n" not in value.strip("\n"):
        return value.removeprefix("\n").removesuffix("\n")
    if loose and value[:1] == "\n" != value[-1:]:
        return value[1:]
    if len(value) > 1 and value[0] == value[-1] == "\n":
        return value[1:-1]
    return value


CALLING = rf"{PREFIX}(?:function|invoke|function_call|tool_call|tool|call)"
"""The name of a tag whose attribute names the function."""
ATTRIBUTE_BEFORE = r"\s+[\w:.\-]{1,60}\s*=\s*(?:\"[^\"<>]{0,60}\"|'[^'<>]{0,60}'|[^\s\"'<>/]{1,60})"
ATTRIBUTES_BEFORE = rf"(?:{ATTRIBUTE_BEFORE}){{0,3}}?"
"""What may precede that attribute."""
ATTRIBUTES_FOLLOW = r"(?=\s*/?>|\s+[\w:.\-]{1,60}\s*=)"
"""What follows the name of a tag."""
_CALL_ATTRIBUTE = re.compile(
    r"\s+(?P<key>[\w:.\-]{1,60})\s*=\s*(?:(?P<quote>[\"'])|(?P<word>[^\s\"'<>/]{1,200}))"
)
_TAG_END = re.compile(r"\s*(?P<empty>/?)>")


@dataclass(frozen=True)
class OpeningTag:
    """The tag of a call. ``is_empty``: the tag closes itself."""

    attributes: dict[str, str]
    end: int
    is_empty: bool


def parse_opening_tag(text: str, at: int) -> OpeningTag:
    """Read the attributes of the tag whose name ends at ``at``. Raises `Unreadable`."""
    found: dict[str, str] = {}
    while (attribute := _CALL_ATTRIBUTE.match(text, at)) is not None:
        key, value, at = attribute["key"], attribute["word"], attribute.end()
        if quote := attribute["quote"]:
            closing = text.find(quote, at)
            if closing < 0:
                raise unreadable(_CUT)
            value, at = text[at:closing], closing + 1
        if key in found or _MISREAD.match(value):
            raise unreadable(
                f"the attribute {key!r} is written twice, or contains tags of the call"
            )
        found[key] = unescape(value)
    end = _TAG_END.match(text, at)
    if end is None:
        raise unreadable("the tag of the call does not end", hint='write attribute="value"')
    return OpeningTag(found, end.end(), bool(end["empty"]))


_CUT = "the call is cut off within its arguments"
_CHILD = re.compile(r"\s*<(?P<close>/?)(?P<key>[A-Za-z_][\w.\-]{0,200})(?P<empty>\s?/)?>")
_WRAPPER = re.compile(rf"\s*<(?P<key>{WRAPPERS})>\s*(?=<)")


def parse_children(text: str, at: int, parent: str | None) -> tuple[dict[str, Any], int]:
    """``<city>Oslo</city>`` up to ``</parent>``; without a ``parent``, up to the end tag of another element.

    An argument ends at the first tag that closes it. Raises `Unreadable`.
    """
    found: dict[str, Any] = {}
    wrapper = _WRAPPER.match(text, at)
    closing = wrapper and re.compile(rf"</{wrapper['key']}>(?=\s*(?:</|\Z))").search(text, at)
    if wrapper and closing:
        inner, end = parse_children(text[: closing.end()], wrapper.end(), wrapper["key"])
        if end == closing.end():
            after = _CHILD.match(text, end)
            return inner, after.end() if after and after["close"] else end
    while (tag := _CHILD.match(text, at)) is not None:
        key, at = tag["key"], tag.end()
        if tag["close"]:
            if key == parent or parent is None:
                return found, at
        elif tag["empty"]:
            found[key] = ""
        else:
            closing_at = text.find(f"</{key}>", at)
            if closing_at < 0:
                raise unreadable(_CUT)
            found[key] = unwrap(text[at:closing_at])
            at = closing_at + len(key) + 3
    if (found and parent is not None) or not text[at:].strip():
        raise unreadable(_CUT)
    return found, at
