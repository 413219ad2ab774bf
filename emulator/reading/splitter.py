"""Split a reply, as it streams in, into reasoning, prose and blocks that may be programs.

Sans-IO: text in, events out. A block that turns out not to be a program can be shown as prose
again, byte for byte; the readers and the answering room decide that.

States (`Splitter._reply` runs them; each is a generator that yields None when it needs more text):

* *line start*: a fence or another row of `openings.LINES` begins a block; otherwise mid-line.
* *mid-line*: a tag, a fence within the line, or JSON that is certainly a call begins a block or
  reasoning; a code span is skipped; a newline leads to line start.
* *block*: a scanner of `blocks`, `fences`, `commands`, `json_blocks` or `named_calls` runs; it
  returns the `Position` of the next state.
* *reasoning*: `reasoning.scan_reasoning` runs up to the closing tag; then line start.

What may never happen:

* The events depend on where the text is cut. Each test of text that is still incomplete therefore
  answers with a `Verdict`: NO and YES are final for every continuation, MAYBE waits for more text.
* A character is lost or appears twice: the `raw` of all events, joined, is the reply.
* Prose is delayed without need: only text that may begin a block or a tag is buffered, at most
  `text_buffer.HOLD` characters.
* A call inside reasoning, a code span, or quotes becomes a block.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator
from dataclasses import replace
from functools import lru_cache

from emulator.reading import blocks, commands, json_blocks
from emulator.reading.events import (
    BlockEnd,
    BlockStart,
    Event,
    Position,
    Reasoning,
    Scanner,
    Text,
    Verdict,
    merge_events,
)
from emulator.reading.fences import scan_fence
from emulator.reading.openings import (
    FENCES,
    LINES,
    MARK,
    MARK_TAG,
    PLAIN_LINE_START,
    Fence,
    detect_dialect,
    match_json,
    parse_fence,
)
from emulator.reading.reasoning import named_tag, quoted_tag, scan_reasoning, take_line_ends
from emulator.reading.tags import (
    AMBIGUOUS,
    LEFTOVER,
    LEFTOVER_LINES,
    REASONING,
    SILENT,
    SILENT_LINES,
    Tag,
    Tags,
    may_be_element,
)
from emulator.reading.text_buffer import TextBuffer
from emulator.reading.tool_names import ToolNames

#: The code span that a quoted line (Markdown: "> ...") is: nothing in it begins a block.
_QUOTED = -1
_QUOTED_LINE = re.compile(r"[ \t]*>[ \t]")
#: A longer run of backticks is decoration, not a fence.
_RUN = 64
#: The characters at which prose may end. `f` counts only if it may begin "functools[".
_PLAIN_LINE = re.compile(PLAIN_LINE_START)
_SPECIAL_CHARACTERS = r"[`<\[{]|\](?=\Z|<)|f(?=\Z|u(?:\Z|n(?:\Z|c)))"
_SPECIAL = re.compile(rf"\n(?!{PLAIN_LINE_START})|{_SPECIAL_CHARACTERS}")
_SPECIAL_IN_SPAN = re.compile(rf"\n|{_SPECIAL_CHARACTERS}")  # the line's end closes a code span
#: First lines that say nothing: Functionary's prose if its template already wrote the ``>>>``, and the
#: label of Gemma's and Gemini's calls without a fence.
_FIRST_LINES = ("all\n", "tool_code\n")
#: The rest of Harmony's header, if the template already wrote ``<|start|>assistant``.
_RECIPIENT = re.compile(r"(?P<to> ?to=)(?P<name>[\w.\-]{1,200})<\|(?:channel|message)\|>")
_PARTIAL_RECIPIENT = re.compile(r" ?(?:t?|to|to=[\w.\-]{0,200}(?:<(?:\|\w{0,8})?)?)\Z")
#: The length limit of a tag that is recognized by its form instead of by a table.
_ELEMENT = 400
_ELEMENT_BEGINS = re.compile(r"<[\w｜|]")


class Splitter:
    """Splits one reply. `names`: the offered functions, as Python names or a mapping of written to
    Python name.

    `reasoning_open`: the prompt's template already opened the reasoning. `reasoning_ended`: a tag
    closed the reasoning. `unopened_reasoning`: a `</think>` came without an opening tag, so all
    text before it was reasoning (R1's templates cause this); the model's next reply should be split
    with `reasoning_open`.
    """

    def __init__(self, names: Collection[str] = (), *, reasoning_open: bool = False) -> None:
        self._names = ToolNames.of(names)
        self._tags, self._known, self._tag_starts = _tags_and_tokens(self._names)
        self._longest = len(self._known[0])
        self._text = TextBuffer()
        self._span = 0
        """The number of backticks that opened the current code span, `_QUOTED`, or 0."""
        self._opened = reasoning_open
        self._events = self._reply(reasoning_open)
        self._saw_shell_fence = False
        self.unopened_reasoning = False
        self._saw_block = False  # a stray closing tag after a block is ignored
        self.reasoning_ended = False

    def feed(self, text: str) -> list[Event]:
        """Return the events that are certain now."""
        self._text.feed(text)
        return self._available_events()

    def close(self) -> list[Event]:
        """Return the remaining events. Call it once, when the reply has ended."""
        self._text.final = True
        return self._available_events()

    def _available_events(self) -> list[Event]:
        events: list[Event] = []
        for event in self._events:
            if event is None:
                break
            if event.raw or isinstance(event, (BlockStart, BlockEnd)):
                events.append(event)
        return merge_events(events)

    def _reply(self, reasoning_open: bool) -> Generator[Event | None, None, None]:
        after = Position.LINE_START
        if reasoning_open:
            after = yield from self._reasoning(tuple(REASONING.values()))
        while len(self._text) or not self._text.final:
            found: Scanner | Position | None = None
            if after is not Position.MID_LINE:
                found = yield from self._line(code=after is Position.LINE_START)
            if found is None:
                found = yield from self._prose()
            after = found if isinstance(found, Position) else (yield from found)

    def _line(self, *, code: bool) -> Generator[Event | None, None, Scanner | None]:
        """At the start of a line: return the scanner of the block that begins here, or None."""
        text = self._text
        while True:
            head, whole = text.head()
            self._span = _QUOTED if _QUOTED_LINE.match(head) else 0
            if head.startswith("\n"):
                yield Text(text.take(1))
                code = True
                continue
            found = self._match_line_start(head, whole, code=code)
            if not isinstance(found, Verdict):
                return found
            if found is Verdict.NO or whole:
                return None
            yield None

    def _match_line_start(self, head: str, whole: bool, *, code: bool) -> Scanner | Verdict:
        if _PLAIN_LINE.match(head):
            return Verdict.NO
        if self._names and not self._text.last:
            found = self._match_reply_start(head, whole)
            if found is not Verdict.NO:
                return found
        for kind, match in LINES:
            if kind == "code" and (not code or self._is_example(head)):
                continue
            verdict = match(head, whole, self._names)
            if verdict is Verdict.MAYBE:
                return verdict
            if verdict is not Verdict.NO:
                return self._line_scanner(kind, head, verdict)
        return Verdict.NO if head else Verdict.MAYBE

    def _match_reply_start(self, head: str, whole: bool) -> Scanner | Verdict:
        for line in _FIRST_LINES:
            if head.startswith(line):
                return self._silent(line)
            if line.startswith(head) and not whole:
                return Verdict.MAYBE
        if recipient := _RECIPIENT.match(head):
            if recipient["name"] == "user":
                return self._silent(recipient.group())
            harmony = self._tags.literal["<|start|>assistant to="]
            return blocks.scan_tagged(self._text, replace(harmony, opening=recipient["to"]))
        return Verdict.MAYBE if _PARTIAL_RECIPIENT.match(head) and not whole else Verdict.NO

    def _is_example(self, head: str) -> bool:
        """Return True if the line is indented, as in Markdown's code blocks and tracebacks, and
        follows other text.
        """
        return bool(self._text.last) and head.startswith(("    ", "\t"))

    def _line_scanner(self, kind: str, head: str, verdict: Verdict) -> Scanner | Verdict:
        self._saw_block |= kind != "channel"
        match kind:
            case "fence":
                fence = parse_fence(head.splitlines(keepends=True)[0], self._names)
                return self._fence(fence) if fence else Verdict.NO
            case "patch":
                return commands.scan_patch(self._text)
            case "json" if verdict is Verdict.YES:
                return json_blocks.scan_json_line(self._text, self._names)
            case "json":
                return json_blocks.scan_possible_json(self._text, self._names, midline=False)
            case "named":
                return json_blocks.scan_named_line(self._text, self._names)
            case "channel":
                return self._silent(head[: head.index("\n") + 1])
            case "code":
                return blocks.scan_code(self._text, self._names)
        return blocks.scan_lines(self._text, kind)

    def _fence(self, fence: Fence) -> Scanner:
        """Return the scanner of a fence. The first fence of a shell may hold a command."""
        is_shell = fence.language in commands.SHELLS and not fence.code
        if is_shell and self._names.command and not self._saw_shell_fence:
            self._saw_shell_fence = True
            return commands.scan_command_fence(self._text, fence, self._names)
        return scan_fence(self._text, fence, self._names)

    def _prose(self) -> Generator[Event | None, None, Scanner | Position]:
        """Mid-line: yield prose up to the end of the line or to a block that begins in it."""
        text = self._text
        while True:
            point = _SPECIAL_IN_SPAN if self._span else _SPECIAL
            match = point.search(text.text, text.at)
            yield Text(text.take((match.start() if match else len(text.text)) - text.at))
            if match is None:
                if text.final:
                    return Position.LINE_START
                yield None
                continue
            found = self._at_special_character(match.group())
            if found is Verdict.MAYBE:
                yield None
            elif isinstance(found, str):
                yield Text(text.take(len(found)))
                if found == "\n":
                    return Position.LINE_START
            elif not isinstance(found, Verdict):
                return found

    def _at_special_character(self, character: str) -> Scanner | Verdict | str:
        """Return the scanner of what begins here, MAYBE, or the text that is prose."""
        if character == "\n":
            return character
        if character == "`":
            return self._backticks()
        if self._span:
            return character
        last = self._text.last
        if character == "]" and last.isalnum():
            return character
        if character != "f" or not last.isalnum():
            found = self._tag()
            if not isinstance(found, Verdict) or found is Verdict.MAYBE:
                return found
        if character in "{[":
            head, whole = self._text.head()
            verdict = match_json(head, whole, self._names)
            if verdict is Verdict.MAYBE:
                return verdict
            if verdict is Verdict.YES:
                return json_blocks.scan_possible_json(self._text, self._names, midline=True)
        return character

    def _backticks(self) -> Scanner | Verdict | str:
        """Handle a run of backticks: it opens or closes a code span, or opens a fence within the
        line.
        """
        head, whole = self._text.head()
        run = head[: len(head) - len(head.lstrip("`"))][:_RUN]
        if run == head and len(run) < _RUN and not whole:
            return Verdict.MAYBE
        if not self._span and 3 <= len(run) < _RUN:
            line, newline, _ = head.partition("\n")
            info = line[len(run) :].strip()
            known = re.fullmatch(r"[\w+#.\-]*", info) is not None
            if known and not newline and not whole:
                return Verdict.MAYBE
            if known and newline and info.lower() in FENCES:
                fence = parse_fence(line + newline, self._names)
                if fence is not None:
                    return scan_fence(self._text, fence, self._names)
        if self._span in (0, len(run)):
            self._span = 0 if self._span else len(run)
        return run

    # -- tags

    def _tag(self) -> Scanner | Verdict:
        """Return the scanner of the tag that begins here; NO if there is none or if it is only
        quoted.
        """
        rest, whole = self._text.head(max(self._longest, _ELEMENT))
        if len(rest) > 1 and rest[:2] not in self._tag_starts and not _ELEMENT_BEGINS.match(rest):
            return Verdict.NO
        tag = next((tag for tag in self._known if rest.startswith(tag)), None)
        longer = not whole and any(
            len(rest) < len(one) and one.startswith(rest) for one in self._known
        )
        if longer:
            return Verdict.MAYBE
        element = self._tags.literal.get(tag) if tag else self._tags.element(rest, self._names)
        if tag is None and element is None:
            return Verdict.MAYBE if not whole and may_be_element(rest) else Verdict.NO
        mention = quoted_tag(self._text, tag or (element.opening if element else ""))
        if mention is Verdict.NO and element is not None and not element.is_open:
            mention = named_tag(self._text, element.opening)
        if mention is not Verdict.NO:
            return Verdict.MAYBE if mention is Verdict.MAYBE else Verdict.NO
        if element is not None:
            self._saw_block = True
            is_mark = element.opening == MARK_TAG
            return self._marked(element) if is_mark else blocks.scan_tagged(self._text, element)
        if tag in REASONING:
            return self._reasoning_tag(str(tag))
        if tag in SILENT or (tag in SILENT_LINES and self._text.last in ("", "\n")):
            return self._silent(str(tag))
        if tag in SILENT_LINES:
            return Verdict.NO
        if tag in LEFTOVER or tag in LEFTOVER_LINES:
            return self._leftover(str(tag))
        return self._unopened_close(str(tag))

    def _marked(self, element: Tag) -> Scanner:
        """The first line of a marked block decides its dialect."""
        after = len(element.opening)
        line = yield from self._text.next_line(after)
        if line is not None and not line.strip():
            line = yield from self._text.next_line(after + len(line))
        dialect = detect_dialect(line or "", MARK, self._names) or element.dialect
        return (yield from blocks.scan_tagged(self._text, replace(element, dialect=dialect)))

    def _leftover(self, token: str) -> Scanner | Verdict:
        if token in LEFTOVER_LINES and self._text.last not in ("", "\n"):
            return Verdict.NO
        return self._silent(token) if self._saw_block else blocks.scan_leftover(self._text, token)

    def _silent(self, token: str) -> Scanner:
        yield Reasoning("", self._text.take(len(token)))
        return Position.LINE_START

    def _reasoning_tag(self, tag: str) -> Scanner:
        self._opened = True
        yield from self._silent(tag)
        return (yield from self._reasoning((REASONING[tag],)))

    def _unopened_close(self, closing: str) -> Scanner:
        self.unopened_reasoning |= not self._opened
        yield Reasoning("", self._text.take(len(closing)))
        return (yield from take_line_ends(self._text))

    def _reasoning(self, closings: tuple[str, ...]) -> Scanner:
        if not (yield from scan_reasoning(self._text, closings)):
            return Position.LINE_START
        self.reasoning_ended = True
        return (yield from take_line_ends(self._text))


@lru_cache(maxsize=64)  # keyed by identity: the names of a toolset are reused
def _tags_and_tokens(names: ToolNames) -> tuple[Tags, tuple[str, ...], frozenset[str]]:
    """Return the tags that open a block, all literal tags and tokens (longest first), and their
    first two characters.
    """
    tags = Tags(names)
    closings = [closing for closing in REASONING.values() if closing not in AMBIGUOUS]
    known = {*REASONING, *tags.literal, *closings, *SILENT, *SILENT_LINES}
    if names:
        known |= LEFTOVER | LEFTOVER_LINES
    heads = frozenset(tag[:2] for tag in known)
    return tags, tuple(sorted(known, key=len, reverse=True)), heads


def split(text: str, names: Collection[str] = (), *, reasoning_open: bool = False) -> list[Event]:
    """Return the events of a whole reply. If the reply closes reasoning that it never opened, it is
    split again with `reasoning_open`.
    """
    splitter = Splitter(names, reasoning_open=reasoning_open)
    events = merge_events([*splitter.feed(text), *splitter.close()])
    return split(text, names, reasoning_open=True) if splitter.unopened_reasoning else events
