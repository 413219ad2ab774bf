"""GBNF for the Python literals of strings with limits on their length, or with a pattern.

Quotes, backslashes, line ends and tabs are escaped in a literal; every other character represents itself.
Knows nothing of schemas.
"""

from __future__ import annotations

from emulator.answering.grammar.notation import counted
from emulator.answering.grammar.patterns import NoGrammar, Pattern

CHARACTER = r'[^"\\\x00-\x1f\x7f] | "\\" ["\\nt]'
"""The rule ``character``: one character in a literal. No \\u escapes: half of a surrogate pair is invalid."""


def text(shortest: int = 0, longest: int | None = None, pattern: str | None = None) -> str | None:
    """Return the expression for the literals with their quotes, or None if no string is valid.

    The grammar must contain the rule `CHARACTER`. If a pattern cannot be translated, alone or together with
    the lengths, the grammar keeps only the lengths and the host checks the pattern.
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
