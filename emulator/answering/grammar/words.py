"""The text that a reply may contain next to calls. No part of it can be mistaken for a call.

`PROSE` is for very small models: words, without the characters that occur only in code. `words` is for all
other models: any text, and code of other languages in fences, but nothing that a reader would parse as a call
in any syntax, and no Python block except the one that the grammar continues. Knows only the names of tools.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from emulator.answering.grammar.automata import END, Many, One, either, maybe, one_of, without
from emulator.command_tools import COMMAND_PARAMETERS, COMMAND_TOOLS
from emulator.reading.calls import ARGUMENT_KEYS, CALLS_KEYS
from emulator.reading.commands import SHELLS
from emulator.reading.tool_names import ToolNames

PROSE: Mapping[str, str] = {
    "prose": r'(sign | [B-Z] head | "A" action)? ("\n" line)*',
    "line": r"(sign | [ \t]* [0-9-] some | [b-zB-Z] head | [aA] action)?",
    # Starts with neither a letter nor a fence: a list, a quotation.
    "sign": r"[ \t]* (bracket | [^\n \t(\[{<\\_`~a-zA-Z0-9-] some)",
    # A first word, followed by what can only follow a word of prose.
    "head": r"[a-zA-Z0-9]* tail?",
    "tail": r"[ \t]+ opened | [^\n \t(\[{<\\_=`.a-zA-Z0-9-] some | [.-] ([ \t] opened)?",
    # ... but "Action: get_weather": text that starts with "Acti" is often a call.
    "action": 'tail? | [abd-zA-Z0-9] head | "c" act',
    "act": 'tail? | [a-su-zA-Z0-9] head | "t" (tail? | [a-hj-zA-Z0-9] head)',
    # A bracket opens after a blank, so never directly after a name.
    "some": r"[^\n \t(\[{<\\]* ([ \t]+ opened)?",
    "opened": "bracket | some",
    "bracket": r'"(" opened | "[" [^\n \t(\[{<\\_]* ([ \t]+ opened)?',
}
"""Text that starts with a capital letter or a sign. Without that rule a small model that should call a tool
writes ``convert_to_miles = 6``, or calculates a sum itself.
"""


_BLANK = one_of(" \t\r")
_BLANKS = Many(_BLANK)
_SPACE = Many(one_of(" \t\r\n\x0b\x0c"))
_DIGIT = one_of("0123456789")
_LETTER = one_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_WORD = One(_LETTER.mask | _DIGIT.mask | one_of("_").mask)
_IDENTIFIER = (
    One(_LETTER.mask | one_of("_").mask),
    Many(One(_WORD.mask | one_of(".-\\").mask)),
)
_QUOTE = one_of("\"'“”")
_BEGIN = one_of("\n>]")
"""Precedes the first character of a line, or of the text after a tag of reasoning."""
_STEP = (
    *(_BEGIN, Many(one_of(" \t>*")), *map(one_of, ("Aa", "Cc", "Tt", "Ii", "Oo", "Nn"))),
    Many(one_of(" \t_*0123456789")),
)

# A line cannot start with a function call, even of an unknown function: it may be a misspelled tool.
_CODE = ((_BEGIN, Many(one_of(" \t>([*")), _IDENTIFIER, "("),)
_TAGS = (
    either(("<|", "<｜", "<tool", "<TOOL", "<function", "<start_", "<invoke", "<call", "<execute")),
    either(("</tool", "</TOOL", "</function", "</invoke", "</parameter", "<parameter", "<end_")),
    either(("[TOOL_", "[/TOOL_", "[tool_", "[ARGS]", "]<]", "functools[")),
    # Tags with any namespace, and tags that may be a misspelled function name.
    ("<", maybe("/"), _LETTER, Many(One(_LETTER.mask | _DIGIT.mask)), one_of("_:|｜")),
)
_DATA = (
    # The keys of a JSON call other than its name. Escapes are excluded because they could spell the name.
    (
        *(one_of("{\"'“”"), _SPACE, either((*CALLS_KEYS, *ARGUMENT_KEYS))),
        *(maybe(_QUOTE), _SPACE, ":"),
    ),
    *("\\u00", "\\_"),
)
_LINES = (
    (*_STEP, either((":", (one_of("Ii"), one_of("Nn"))))),
    (_BEGIN, maybe("- "), either(("tool_call", "function_call")), maybe("s"), ":", _BLANKS, "\n"),
    (_BEGIN, _BLANKS, either((">>>", "call:"))),
    "to=",
)
_FENCES = ("```", "~~~")
_COMMAND = (
    one_of("{,"),
    _SPACE,
    maybe(_QUOTE),
    either(COMMAND_PARAMETERS),
    maybe(_QUOTE),
    _SPACE,
    ":",
)
_PATCHES = ("*** Begin Patch", ("apply_patch", _BLANKS, "<<"))

_LABEL_PREFIXES = ("py", "ipy", "tool", "func", "call", "code", "xml", "yaml", "yml")
"""The first letters of labels that a fence of code must not have. Such a fence may contain calls. YAML and
fences without a label are excluded because too many forms of calls are possible in them."""

_SHAPES: Mapping[str, str] = {
    "words": r'(passage "\n")* (text | passage)',
    "passage": r'(text "\n")? fence',
    "fence": r'"```" (data info "\n" text | language info "\n" [ \t\n]* first ("\n" inside)*) "\n```" [ \t]*',
    "info": r"([ \t]+ ([^ \t\n`(] [^\n`(]*)?)?",
    "data": r"[jJ] [sS] [oO] [nN] [cClL5]?",
    # A line that does not close the fence.
    "inside": r'[ \t]* ([^ \t\n`] [^\n]* | "`" ([^\n`] [^\n]* | "`" ([^\n`] [^\n]*)?)?)?',
}


_MAX_NAME_CHARS = 1500
"""For all names together. With more, the rules would be longer than they are worth."""


@lru_cache(maxsize=64)
def words(tools: frozenset[str]) -> Mapping[str, str]:
    """Return the rules for text next to calls; the first is ``words``.

    ``tools`` are all names of the offered functions. If there are very many, the rules do not exclude text
    that only their names would make a call.
    """
    offered = ToolNames(tools)
    tools = tools if sum(map(len, tools)) <= _MAX_NAME_CHARS else frozenset()
    names = tools | (COMMAND_TOOLS if offered.command else frozenset())
    patches = _PATCHES if offered.patch else ()
    commands = (_COMMAND,) if offered.command or offered.patch else ()
    shells = [("\n", _any_case(shell), END) for shell in SHELLS if offered.command]
    others = (*_CODE, *_TAGS, *_DATA, *_LINES, *_FENCES)
    return {
        **_SHAPES,
        **without("text", (*others, *patches, *commands, _call_starts(names))),
        **without("first", (*_forbidden_first_lines(names), *patches), allowed=~one_of("\n")),
        **without("language", (*_FORBIDDEN_LABELS, *shells), allowed=_LABEL),
    }


def _any_case(text: str) -> object:
    return tuple(one_of({letter.lower(), letter.upper()}) for letter in text)


def _call_starts(names: Collection[str]) -> object:
    """Return the expression for a function's name followed by text that makes it a call."""
    endings = (
        *((_BLANKS, one_of("(:{\"'“”>\n")), (_BLANKS, END)),
        (_BLANK, _BLANKS, either(("json", "commentary", "analysis"))),
    )
    return (~_WORD, maybe("function"), either(names), either(endings))


def _forbidden_first_lines(names: Collection[str]) -> Collection[object]:
    """Return what the first line in a fence of code must not be: empty, the fence's end, or a call."""
    lead = Many(either((one_of(" \t[("), "await ", "print(", (_IDENTIFIER, " = "))))
    namespaces = Many((_IDENTIFIER, "."))
    return (("\n", _BLANKS, either((END, "```"))), ("\n", lead, namespaces, either(names), "("))


_LABEL = One(_LETTER.mask | _DIGIT.mask | one_of("+#.-").mask)
_FORBIDDEN_LABELS = (("\n", END), ("\n", either(map(_any_case, (*_LABEL_PREFIXES, "json")))))
"""What the label of a fence of code must not be."""
