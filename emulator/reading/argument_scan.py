"""Decide whether a closing tag closes its block or is inside a value.

`ArgumentScan` follows the text between the tags of one block as it arrives, in linear time. It
knows quotes and brackets of JSON and Python, and the elements that hold one value each.

States: NOTHING (between values), BRACKETS (inside a JSON or Python value), TAG (inside a tag with
attributes), VALUE (inside an element that holds a value), CLOSED (the element's closing tag has
come; the text after it decides whether the tag was part of the value). A closing tag of the block
never closes it inside a quoted string or an attribute, nor inside an element's value unless the
call ends there too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar

from emulator.reading.elements import ARGUMENTS, PREFIX, STRUCTURE, SUFFIX
from emulator.reading.events import Verdict
from emulator.reading.lexing import JsonScan

#: The length limits of an opening and of a closing tag.
_TAG, _WORD = 400, 64

# DeepSeek's look-alikes of bar and space.
_PLAIN = str.maketrans("｜▁", "|_")
_OUTSIDE = re.compile(r"[<({\[]")
_QUOTES = (re.compile("<escape>"), re.compile(r'<\|"\|>'))
#: (closing, opening) of each kind of element that holds a value.
_OPENINGS: tuple[tuple[re.Pattern[str] | None, re.Pattern[str]], ...] = (
    *((quote, quote) for quote in _QUOTES),
    *((re.compile(one.closing), re.compile(one.opening)) for one in ARGUMENTS),
)
_BY_NAME = ((None, re.compile(r"<(?P<key>[A-Za-z_][\w.\-]{0,200})>")),)
#: Opening tags that contain a bracket.
_LONG = re.compile(rf"<(?:{PREFIX}arg_key|\|tool_arg:start|\|open\|>argument)")
_ATTRIBUTES = re.compile(rf"<(?!{PREFIX}(?:param|arg))[\w:.|\-]{{1,100}}\s+[\w:.\-]{{1,60}}\s*=")
_ELEMENT = re.compile(r"<(?P<name>[A-Za-z_][\w.\-]{0,100})(?=[\s>])")
_IN_TAG = re.compile(r"[\"'>]")
_IN_QUOTE = {quote: re.compile(quote) for quote in "\"'"}
_QUOTES_END = re.compile(r"[\"']{1,2}\Z")
_AFTER = re.compile(
    r"<\||\[/?TOOL|\]<\]"
    rf"|</?{PREFIX}(?:parameters|function\w*|invoke|tool\w*|\w*_tool_calls?|TOOLCALL|calls?){SUFFIX}\b"
)


_DSML = r"/?\|\w{1,20}\| "
_TAG_ENDED = re.compile(rf"[<\[\]`](?:{_DSML}|(?!{_DSML}))[^\s>\]]*[\s>\]]")


class _In(Enum):
    NOTHING = auto()
    BRACKETS = auto()
    TAG = auto()
    VALUE = auto()
    CLOSED = auto()


class ArgumentScan:
    """Follows the text between an opening tag and each possible closing tag."""

    def __init__(self, *, by_name: bool = False) -> None:
        """``by_name``: each argument is an element named after the parameter:
        ``<city>Oslo</city>``.
        """
        self._text = ""
        self._state = _In.NOTHING
        self._scan = JsonScan(code=True)
        self._by_name = by_name
        self._openings = _BY_NAME if by_name else _OPENINGS
        self._closing = _QUOTES[0]
        self._quote = ""  # of an attribute
        self._end: re.Pattern[str] | None = None
        """The end of the element that was opened last, which may follow its last value."""
        self._strict = False  # the first closing tag ends the value, whatever follows

    @property
    def whole(self) -> bool:
        """True if nothing is open."""
        return self._state in (_In.NOTHING, _In.CLOSED)

    def feed(self, text: str) -> None:
        """Add more of the block."""
        self._text += text.translate(_PLAIN)
        at, more = 0, True
        while more and at < len(self._text):
            at, more = self._STEPS[self._state](self, at)
        self._text = self._text[at:]

    def closes(self, following: str, *, final: bool) -> Verdict:
        """Test whether a closing tag that comes now, followed by ``following``, closes the block."""
        if self._state is _In.BRACKETS:
            self._scan.feed(self._text)
            self._text = ""
            return Verdict.NO if self._scan.quote else Verdict.YES
        if self._state is _In.TAG and self._quote:
            return Verdict.NO
        if self._state is not _In.VALUE:
            return Verdict.YES
        # A value that was never closed: the block ends only where a call may end.
        rest = following.translate(_PLAIN).lstrip()
        if not rest or (
            not final and rest[0] in "<[]" and len(rest) < _WORD and not _is_complete_tag(rest)
        ):
            return Verdict.YES if final else Verdict.MAYBE
        return Verdict.YES if _AFTER.match(rest) else Verdict.NO

    # Each step examines the text from an index. It returns the index up to which the text is decided, and
    # whether to continue. The text after that index is examined again when more has arrived.

    def _nothing(self, at: int) -> tuple[int, bool]:
        found = _OUTSIDE.search(self._text, at)
        if found is None:
            return len(self._text), False
        start = found.start()
        if found.group() != "<":
            self._state = _In.BRACKETS
            self._scan = JsonScan(code=True)
            return start, True
        for closing, opening in self._openings:
            match = opening.match(self._text, start)
            if match is not None and match.group().endswith("/>"):
                return match.end(), True  # its value is an attribute
            if match is not None:
                self._state = _In.VALUE
                self._closing = closing or re.compile(f"</{re.escape(match['key'])}>")
                self._strict = self._by_name or closing in _QUOTES
                return match.end(), True
        attributes = _ATTRIBUTES.match(self._text, start)
        if attributes is None and self._may_be_tag(start):
            return start, False
        if element := _ELEMENT.match(self._text, start):
            self._end = re.compile(rf"\s*</{re.escape(element['name'])}>")
        if attributes is None:
            return start + 1, True
        self._state = _In.TAG
        return attributes.end(), True

    def _may_be_tag(self, start: int) -> bool:
        """Return True if more text could complete the opening tag of a value at ``start``."""
        rest = self._text[start : start + _TAG]
        if len(rest) == _TAG or rest[1:2].isspace():
            return False
        return (
            ">" not in rest or "<|open|>argument".startswith(rest[:16]) or bool(_LONG.match(rest))
        )

    def _brackets(self, at: int) -> tuple[int, bool]:
        # Two quotes may be an empty string or begin one in triple quotes.
        quotes = _QUOTES_END.search(self._text, max(at, len(self._text) - 2))
        stop = quotes.start() if quotes else len(self._text)
        closed = self._scan.feed(self._text[:stop], at)
        if closed is None:
            return stop, False
        self._state = _In.NOTHING
        return closed, True

    def _tag(self, at: int) -> tuple[int, bool]:
        mark = (_IN_QUOTE[self._quote] if self._quote else _IN_TAG).search(self._text, at)
        if mark is None:
            return len(self._text), False
        if mark.group() == ">" and not self._quote:
            self._state = _In.NOTHING
        else:
            self._quote = "" if self._quote else mark.group()
        return mark.end(), True

    def _value(self, at: int) -> tuple[int, bool]:
        match = self._closing.search(self._text, at)
        if match is not None:
            self._state = _In.NOTHING if self._strict else _In.CLOSED
            return match.end(), True
        begins = self._text.rfind("<", max(at, len(self._text) - _WORD))
        return (len(self._text) if begins < 0 else begins), False

    def _closed(self, at: int) -> tuple[int, bool]:
        rest = self._text[at:]
        begins = rest.lstrip()
        if not begins or (
            begins[0] in "<[]`" and len(begins) < _WORD and not _is_complete_tag(begins)
        ):
            return at, False
        ends = STRUCTURE.match(rest) or (self._end and self._end.match(rest))
        self._state = _In.NOTHING if ends else _In.VALUE
        return at, True

    _STEPS: ClassVar[dict[_In, Callable[[ArgumentScan, int], tuple[int, bool]]]] = {
        _In.NOTHING: _nothing,
        _In.BRACKETS: _brackets,
        _In.TAG: _tag,
        _In.VALUE: _value,
        _In.CLOSED: _closed,
    }


def _is_complete_tag(text: str) -> bool:
    """Return True if ``text`` does not begin with an incomplete tag."""
    return _TAG_ENDED.match(text) is not None
