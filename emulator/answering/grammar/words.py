"""The text that a reply may contain next to calls, such that nothing in it can be read as a call.

`PROSE` is for very small models: words, without characters that only code has. `words` is for all others:
any text, also code of other languages in fences, but nothing that the readers take for a call in any
syntax, and no Python block except the one that the grammar continues. Of tools it knows the names.
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
    # What begins with neither a letter nor a fence: a list, a quotation.
    "sign": r"[ \t]* (bracket | [^\n \t(\[{<\\_`~a-zA-Z0-9-] some)",
    # A first word that goes on as only words do.
    "head": r"[a-zA-Z0-9]* tail?",
    "tail": r"[ \t]+ opened | [^\n \t(\[{<\\_=`.a-zA-Z0-9-] some | [.-] ([ \t] opened)?",
    # ... but "Action: get_weather": text that starts with "Acti" is often a call.
    "action": 'tail? | [abd-zA-Z0-9] head | "c" act',
    "act": 'tail? | [a-su-zA-Z0-9] head | "t" (tail? | [a-hj-zA-Z0-9] head)',
    # A bracket opens behind a blank, so never directly behind a name.
    "some": r"[^\n \t(\[{<\\]* ([ \t]+ opened)?",
    "opened": "bracket | some",
    "bracket": r'"(" opened | "[" [^\n \t(\[{<\\_]* ([ \t]+ opened)?',
}
"""Text that opens with a capital or a sign: a small model that should call else writes
``convert_to_miles = 6``, or the sum that it had better not do by itself.
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
"""Of a line, or of what follows the tags of reasoning."""
_STEP = (
    *(_BEGIN, Many(one_of(" \t>*")), *map(one_of, ("Aa", "Cc", "Tt", "Ii", "Oo", "Nn"))),
    Many(one_of(" \t_*0123456789")),
)

# A line's first name is no function's: it might be a slip of one that is offered.
_CODE = ((_BEGIN, Many(one_of(" \t>([*")), _IDENTIFIER, "("),)
_TAGS = (
    either(("<|", "<｜", "<tool", "<TOOL", "<function", "<start_", "<invoke", "<call", "<execute")),
    either(("</tool", "</TOOL", "</function", "</invoke", "</parameter", "<parameter", "<end_")),
    either(("[TOOL_", "[/TOOL_", "[tool_", "[ARGS]", "]<]", "functools[")),
    # Any namespace, and what may be a slip of a function's name.
    ("<", maybe("/"), _LETTER, Many(One(_LETTER.mask | _DIGIT.mask)), one_of("_:|｜")),
)
_DATA = (
    # The other keys of a call in JSON, next to its name. That can be spelt in escapes.
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

_NO_LANGUAGES = ("py", "ipy", "tool", "func", "call", "code", "xml", "yaml", "yml")
"""Their beginnings. What a fence of YAML or without a label is, its lines say in too many ways."""

_SHAPES: Mapping[str, str] = {
    "words": r'(passage "\n")* (text | passage)',
    "passage": r'(text "\n")? fence',
    "fence": r'"```" (data info "\n" text | language info "\n" [ \t\n]* first ("\n" inside)*) "\n```" [ \t]*',
    "info": r"([ \t]+ ([^ \t\n`(] [^\n`(]*)?)?",
    "data": r"[jJ] [sS] [oO] [nN] [cClL5]?",
    # ... up to what would close it.
    "inside": r'[ \t]* ([^ \t\n`] [^\n]* | "`" ([^\n`] [^\n]* | "`" ([^\n`] [^\n]*)?)?)?',
}


_LONGEST = 1500
"""Characters of all names together. The rules of more would be longer than what they hold."""


@lru_cache(maxsize=64)
def words(tools: frozenset[str]) -> Mapping[str, str]:
    """The rules, ``words`` among them; ``tools`` are all names that lead to the offered functions.

    Of very many tools a name may be followed by anything.
    """
    offered = ToolNames(tools)
    tools = tools if sum(map(len, tools)) <= _LONGEST else frozenset()
    names = tools | (COMMAND_TOOLS if offered.command else frozenset())
    patches = _PATCHES if offered.patch else ()
    commands = (_COMMAND,) if offered.command or offered.patch else ()
    shells = [("\n", _any_case(shell), END) for shell in SHELLS if offered.command]
    others = (*_CODE, *_TAGS, *_DATA, *_LINES, *_FENCES)
    return {
        **_SHAPES,
        **without("text", (*others, *patches, *commands, _named(names))),
        **without("first", (*_first(names), *patches), allowed=~one_of("\n")),
        **without("language", (*_LANGUAGES, *shells), allowed=_LABEL),
    }


def _any_case(text: str) -> object:
    return tuple(one_of({letter.lower(), letter.upper()}) for letter in text)


def _named(names: Collection[str]) -> object:
    """A function's name, followed by text that makes it a call."""
    behind = (
        *((_BLANKS, one_of("(:{\"'“”>\n")), (_BLANKS, END)),
        (_BLANK, _BLANKS, either(("json", "commentary", "analysis"))),
    )
    return (~_WORD, maybe("function"), either(names), either(behind))


def _first(names: Collection[str]) -> Collection[object]:
    """What the first line in a fence of code is not: empty, its end, or a call, perhaps printed."""
    lead = Many(either((one_of(" \t[("), "await ", "print(", (_IDENTIFIER, " = "))))
    spaces = Many((_IDENTIFIER, "."))
    return (("\n", _BLANKS, either((END, "```"))), ("\n", lead, spaces, either(names), "("))


_LABEL = One(_LETTER.mask | _DIGIT.mask | one_of("+#.-").mask)
_LANGUAGES = (("\n", END), ("\n", either(map(_any_case, (*_NO_LANGUAGES, "json")))))
"""What the label of a fence of code is not."""
