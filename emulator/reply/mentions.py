"""A tool that an answer without a call names: for the note that says why nothing was called.

| where the first offered name stands | kind |
|---|---|
| a row of a table | call-in-table |
| code: a span or a block that is shown | call-in-code |
| another line | call-in-words |
| only the reasoning, with an opening bracket or inside of data | call-in-reasoning |

It decides nothing: no rule of this table runs, asks or shows a block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from emulator import traces
from emulator.reading.tool_names import WRITTEN_NAME, ToolNames, cached_tool_names
from emulator.tools.toolset import Toolset
from emulator.traces import NoteKind

_MAX_READ = 20_000
"""Characters; a longer answer is read up to here."""
_LABELLED = "only a block labelled tool_code, or a model's own call syntax, runs"
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})")
_KINDS: dict[NoteKind, tuple[str, str]] = {
    "call-in-table": ("The answer names {} in a table", _LABELLED),
    "call-in-code": ("The answer shows {} in code that is not a call", _LABELLED),
    "call-in-words": ("The answer names {} in a sentence", _LABELLED),
    "call-in-reasoning": (
        "A draft in the reasoning calls {}, and the answer does not",
        "less reasoning (reasoning_effort), or another model",
    ),
}


def note_mention(reply: str, reasoning: str, toolset: Toolset) -> None:
    """Note the first offered tool that a reply without a call names."""
    if traces.current.get() is None or not toolset.tools:
        return
    names = cached_tool_names(toolset.spellings, toolset.constructors, toolset.readers)
    for kind, name in _mentions(reply[:_MAX_READ], reasoning[-_MAX_READ:], names):
        words, way_out = _KINDS[kind]
        traces.note(kind, f"{words.format(name)}; nothing was called.", way_out)
        return


def _mentions(reply: str, reasoning: str, names: ToolNames) -> Iterator[tuple[NoteKind, str]]:
    in_fence = False
    for line in reply.splitlines():
        if _FENCE.match(line):
            in_fence = not in_fence
        for match in WRITTEN_NAME.finditer(line):
            if (name := _tool(match, names)) is None:
                continue
            is_code = in_fence or line[: match.start()].count("`") % 2 == 1
            in_table = line.lstrip().startswith("|")
            kind: NoteKind = "call-in-words"
            if in_table or is_code:
                kind = "call-in-table" if in_table else "call-in-code"
            yield kind, name
    for match in WRITTEN_NAME.finditer(reasoning):
        follows = reasoning[match.end() : match.end() + 1]
        if (name := _tool(match, names)) is not None and follows in ("(", '"', "<"):
            yield "call-in-reasoning", name


def _tool(match: re.Match[str], names: ToolNames) -> str | None:
    """The offered name, unless it is an ordinary word: a name of one word counts with a bracket after it."""
    written = match.group()
    if names.find(written) is None:
        return None
    is_word = written.isalpha() and written.islower()
    follows = match.string[match.end() : match.end() + 1]
    return written if not is_word or follows in ("(", "`", '"') else None
