"""Calls without tags that begin with a name, as they remain when a server removes special tokens.

``get_weather{"city": "Oslo"}``, ``functions.get_weather:0{...}``, ``commentary to=functions.f
json{...}``, ``>>>get_weather`` and a line of JSON, ``get_weather <arg_key>city</arg_key>...``.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from emulator.reading.blocks import take_value
from emulator.reading.calls import PARALLEL
from emulator.reading.elements import PREFIX, SUFFIX
from emulator.reading.events import (
    BlockDelta,
    BlockEnd,
    BlockStart,
    Event,
    Position,
    Scanner,
    Verdict,
)
from emulator.reading.text_buffer import TextBuffer
from emulator.reading.tool_names import ToolNames

#: Marks that announce a call of any name; several may follow one another.
_LEAD = (
    r"[ \t]*(?P<lead>(?:>>>[ \t]*"
    r"|(?:assistant|analysis|commentary)?[ \t]*(?:assistant|commentary)?[ \t]*to=|call:))?"
)
_NAME = r"(?:function(?!s\b)(?=[A-Za-z]))?(?P<name>[A-Za-z_][\w.\-]{0,200}?)(?::\d{1,4})?"
_JSON = r"(?:[ \t]*(?:commentary|analysis)?[ \t]*(?:json)?)\s*(?:```\w{0,20}\s*)?(?=\{)"
_PAIRS = rf"\s*(?:<tool_sep{SUFFIX}>\s*)?(?=<{PREFIX}arg_key{SUFFIX}>)"
_HEADER = re.compile(rf"{_LEAD}{_NAME}(?:{_JSON}|(?P<pairs>{_PAIRS}))")
#: The header of a name that ends like the name of a channel: sentiment_analysis.
_WHOLE_NAME = re.compile(
    rf"{_LEAD}(?P<name>[A-Za-z_][\w.\-]{{0,200}})(?![\w.\-])(?:{_JSON}|(?P<pairs>{_PAIRS}))"
)
#: A prefix of a header: the mark, the name, the text between the name and the arguments.
_PART = re.compile(
    rf"{_LEAD}(?P<word>[A-Za-z_][\w.\-]{{0,220}})?(?P<rest>(?::\d{{0,4}})?(?P<words>[ \t]*[a-z \t]{{0,20}})"
    r"\s*(?:`{1,3}\w{0,20}\s*)?(?:<[\w:|]{0,60}>?\s*){0,2})\Z"
)
_WORDS = ("commentary", "analysis", "json")
_LEADING = 40
_LEADS = (
    *(
        first + second + "to="
        for first in ("assistant", "analysis", "commentary", "")
        for second in ("assistant", "commentary", "")
    ),
    "call:",
    ">>>",
)
_PAIRS_END = re.compile(rf"</{PREFIX}arg_value{SUFFIX}>")
_GAP = re.compile(r"\s{9}")
"""More white space than a header contains."""
_HEADER_ENDS = re.compile(r"[{<]")
_BETWEEN = re.compile(r"[\s;`]*")


def match_header(head: str, whole: bool, names: ToolNames) -> tuple[Verdict, int]:
    """Test whether the header of a call begins here, and return its length."""
    if _GAP.search(_HEADER_ENDS.split(head, maxsplit=1)[0]):
        return Verdict.NO, 0  # the patterns below would backtrack too much
    named = _WHOLE_NAME.match(head)
    if named is not None and names.find(named["name"]):
        return Verdict.YES, named.end()
    match = _HEADER.match(head)
    if match is not None:
        lead = (match["lead"] or "").strip()
        if lead == "to=" and not match["name"].startswith("functions."):
            lead = ""  # an e-mail address, for example
        if lead or names.find(match["name"]) or match["name"] == PARALLEL:
            return Verdict.YES, match.end()
        return Verdict.NO, 0
    return (Verdict.NO if whole or not _may_open(head, names) else Verdict.MAYBE), 0


def plain_header_length(head: str, whole: bool, names: ToolNames) -> int:
    """Return the length of a header that is only an offered name followed by JSON, or 0."""
    verdict, length = match_header(head, whole, names)
    header = head[:length]
    led = re.match(r"[ \t]*(?:>>>|call:|functions?\b|[a-z \t]{0,40}to=)", header)
    return length if verdict is Verdict.YES and head[length : length + 1] == "{" and not led else 0


def _may_open(head: str, names: ToolNames) -> bool:
    text = head.strip(" \t")
    squeezed = re.sub(r"[ \t]+", "", text[:_LEADING])
    if any(lead.startswith(squeezed) for lead in _LEADS):
        return True
    match = _PART.match(head)
    if match is None or not all(
        any(known.startswith(word) for known in _WORDS) for word in match["words"].split()
    ):
        return False
    word, rest = match["word"] or "", match["rest"]
    if match["lead"] or (PARALLEL.startswith(word) if not rest else word == PARALLEL):
        return True
    for name in {word, word.removeprefix("function"), *map(word.removesuffix, _WORDS)}:
        if names.find(name) is not None or (name and not rest and names.may_become(name)):
            return True
    return False


def scan_named_calls(text: TextBuffer, names: ToolNames) -> Scanner:
    """Scan the call that begins here, and the calls that follow it."""
    yield BlockStart("markup", "")
    while True:
        head, whole = text.head()
        between = _BETWEEN.match(head)
        skipped = between.end() if between else 0
        verdict, length = match_header(head[skipped:], whole, names)
        if verdict is Verdict.MAYBE:
            yield None
            continue
        if verdict is Verdict.NO:
            yield BlockEnd(text.take(skipped) if "`" in head[:skipped] else "", closed=True)
            return Position.MID_LINE
        raw = text.take(skipped + length)
        yield BlockDelta(raw, raw)
        is_pairs = raw.rstrip()[-1:] not in ("", "`") and text.text[text.at] == "<"
        if not (yield from _pairs(text) if is_pairs else take_value(text)):
            yield BlockEnd("", closed=False, at_reply_end=True)
            return Position.LINE_START


def _pairs(text: TextBuffer) -> Generator[Event | None, None, bool]:
    """Take key and value elements as long as another follows. Returns False if the reply ends
    inside one.
    """
    while True:
        match = _PAIRS_END.search(text.text, text.at)
        if match is None:
            margin = 0 if text.final else 64
            raw = text.take(max(0, len(text) - margin))
            yield BlockDelta(raw, raw)
            if text.final:
                return False
            yield None
            continue
        following = text.text[match.end() : match.end() + 64].lstrip()
        if not following.startswith("<") and not following and not text.final:
            yield None
            continue
        raw = text.take(match.end() - text.at)
        yield BlockDelta(raw, raw)
        if not following.startswith("<"):
            return True
