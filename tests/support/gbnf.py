"""Tell whether a llama.cpp grammar admits a text, by turning the grammar into a regular expression.

A rule that leads back to itself is followed `DEPTH` times; deeper values are taken to be refused.
"""

from __future__ import annotations

import ast
import re

DEPTH = 3

_TOKEN = re.compile(
    r"""
      (?P<literal> " (?: [^"\\] | \\. )* " )
    | (?P<set>     \[ (?: [^\]\\] | \\. )* \] )
    | (?P<name>    [a-zA-Z] [a-zA-Z0-9-]* )
    | (?P<sign>    \{\d+,?\d*\} | [()|?*+] )
    | (?P<blank>   [ ]+ )
    """,
    re.VERBOSE,
)


def admits(grammar: str, text: str) -> bool:
    """Whether `text` as a whole is a reply that the grammar admits. Raises on malformed grammars."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    return re.fullmatch(_expand(rules, "root", ()), text) is not None


def _expand(rules: dict[str, str], name: str, within: tuple[str, ...]) -> str:
    if within.count(name) >= DEPTH:
        return r"(?!)"
    body, place, parts = rules[name], 0, []
    while place < len(body):
        token = _TOKEN.match(body, place)
        assert token, f"{name}: no GBNF at {body[place:]!r}"
        place = token.end()
        if token["literal"]:
            parts.append(f"(?:{re.escape(ast.literal_eval(token['literal']))})")
        elif token["name"]:
            parts.append(_expand(rules, token["name"], (*within, name)))
        elif token["set"] or token["sign"]:
            parts.append(token[0].replace("(", "(?:"))
    return f"(?:{''.join(parts)})"
