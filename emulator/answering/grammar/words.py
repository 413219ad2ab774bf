"""What a reply may be beside calls, so that nothing in it can be read as one. Knows nothing of tools.

`PROSE` is for very small models: words, without what only code has. `WORDS` is for all others: any text, code
of other languages in fences too, but no line that begins like a call, no tags of calls, and no block of
Python but that which the grammar goes on with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator.answering.grammar.notation import literal

PROSE: Mapping[str, str] = {
    "prose": r'(sign | [B-Z] head | "A" action)? ("\n" line)*',
    "line": r"(sign | [ \t]* [0-9-] some | [b-zB-Z] head | [aA] action)?",
    # What begins with neither a letter nor a fence: a list, a quotation.
    "sign": r"[ \t]* (bracket | [^\n \t(\[{<\\_`~a-zA-Z0-9-] some)",
    # A first word that goes on as only words do.
    "head": r"[a-zA-Z0-9]* tail?",
    "tail": r"[ \t]+ opened | [^\n \t(\[{<\\_=`.a-zA-Z0-9-] some | [.-] ([ \t] opened)?",
    # ... but "Action: get_weather": what begins with "Acti" is a call as often as not.
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

_TAGS = (
    *(
        "<|",
        "<｜",
        "<tool",
        "<TOOL",
        "<function",
        "<start_function",
        "<invoke",
        "<call",
        "<execute",
    ),
    *("[TOOL_", "[tool_", "]<]minimax"),
)
_SIGNS = r"<\[\]"
"""Their first characters, as a set writes them."""


def without(name: str, strings: Sequence[str]) -> Mapping[str, str]:
    """The rest of a line in which none of these strings stands, as rules of which `name` is the first.

    The rule ``-sign`` is the same for what begins with the first character of one of them. The automaton of
    Aho and Corasick (1975): a rule for each beginning of a string that has been read.
    """
    beginnings = sorted({text[:n] for text in strings for n in range(len(text))})
    called = {"": name} | {text: f"{name}-{n}" for n, text in enumerate(beginnings[1:], 1)}
    rules: dict[str, str] = {}
    signs = {text[0] for text in strings}
    for read in beginnings:
        ways: list[str] = []
        further = sorted({text[len(read)] for text in strings if text.startswith(read)} | signs)
        for sign in further:
            longer = read + sign
            while longer not in called and longer not in strings:
                longer = longer[1:]
            if longer in called:
                ways.append(f"{literal(sign)} {called[longer]}")
        if not read:
            rules[f"{name}-sign"] = " | ".join(ways)
            ways = [f"{name}-sign"]
        others = "".join(f"\\{sign}" if sign in "[]" else sign for sign in further)
        rules[called[read]] = f"({' | '.join(ways)} | [^\\n{others}] {name})?"
    return rules


def _some(but: str) -> str:
    """The rest of a line that does not begin with one of these, as a set writes them."""
    return rf"text-sign | [^\n{but}{_SIGNS}] text"


_NAME = r"[a-zA-Z_] [a-zA-Z0-9_.\\-]*"
_BLANKS = r"[ \t]+"
_LEAD = r"""[ \t>(\["'“*]*"""

WORDS: Mapping[str, str] = {
    "words": r'passage ("\n" passage)*',
    "passage": "line | fence",
    "line": f'{_LEAD} (named | "{{" text | "`" tick | "~" tilde | other)?',
    # A bracket in front of a name is looked through; text-1 is behind "<".
    "other": rf"""[^\n \t>("'“*`~{{_a-zA-Z{_SIGNS}] text | "<" text-1""",
    # A line's first name is no function's, nor that of a variable which is assigned to.
    "named": f"{_NAME} (behind | {_BLANKS} (further)?)?",
    "behind": _some(r" \t(={_.a-zA-Z0-9\\\x2d"),
    "further": _some(r" \t={"),
    "tick": f'({_some("`")} | "`" ({_some("`")})?)?',
    "tilde": f"({_some('~')})?",
    "fence": r'"```" (language [^\n`]*)? "\n" line ("\n" inside)* ("\n```" [ \t]*)?',
    # Not python, py, ipython, pycon; JSON is an answer as often as not.
    "language": r'[a-hj-oq-zA-HJ-OQ-Z] [a-zA-Z0-9+#.-]* | "p" [a-xzA-XZ] [a-zA-Z0-9+#.-]*',
    "inside": f'({_some("`")} | "`" tick)?',
    **without("text", _TAGS),
}
