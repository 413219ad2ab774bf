"""Strings of a length or of a pattern, as GBNF of the Python literals that mean them.

A character represents itself except for quotes, backslashes, line ends and tabs, which are escaped. Knows
nothing of schemas.
"""

from __future__ import annotations

from emulator.answering.grammar.notation import counted
from emulator.answering.grammar.patterns import NoGrammar, Pattern

CHARACTER = r'[^"\\\x00-\x1f\x7f] | "\\" ["\\nt]'
"""The rule ``character``: one of a string's. No \\u: it could spell half of a surrogate pair."""


def text(shortest: int = 0, longest: int | None = None, pattern: str | None = None) -> str | None:
    """The literals, quotes included; the rule `CHARACTER` is to be there. None: there are none.

    A pattern without a grammar is left to the validation; so are lengths that a pattern could only keep to if
    it were counted together with them.
    """
    if longest is not None and shortest > longest:
        return None
    if longest == 0:
        return r'"\"\""'
    if pattern is not None:
        try:
            return f'"\\"" {Pattern(pattern).within(shortest, longest)} "\\""'
        except NoGrammar:
            pass
    return f'"\\"" character{counted(shortest, longest)} "\\""'
