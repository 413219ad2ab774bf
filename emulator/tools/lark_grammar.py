"""Check a text against a Lark grammar, and report where and why it does not match.

The engine is llguidance, which OpenAI also uses for the grammars of custom tools: it accepts and
refuses the same grammars (no look-around, templates, or imports other than ``common``).

*Stops:* a stranger's grammar or text that would keep the engine busy. Regular expressions are
automata; the size of the grammar, the states, and the alternatives at any one place are limited; a
check ends after a few seconds. Knows nothing of tools.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from emulator.tools.problems import Problem, format_value, shorten

if TYPE_CHECKING:
    from llguidance import LLMatcher

SECONDS = 5.0
_STEP = 16
"""Bytes between two checks of the time. One byte may take 30 ms if very many alternatives are
possible.
"""
_MOST_SHOWN = 6
_GAVE_UP = Problem(
    "input",
    "the text could not be checked against its grammar: the text is too long or the grammar is too ambiguous",
)


class InvalidLarkGrammar(ValueError):
    """The grammar is not valid, or too large."""


@dataclass(frozen=True)
class LarkGrammar:
    """A grammar in Lark's syntax. Raises `InvalidLarkGrammar`."""

    definition: str
    seconds: float = SECONDS
    """The time limit for one text."""

    def __post_init__(self) -> None:
        _matcher(self.definition)

    def match(self, text: str) -> str | Problem:
        """Return ``text`` if it matches, else the problem.

        Models put a text of several lines between triple quotes, which adds line ends at its edges
        that are not meant. If the text matches only without them, or only with a final line end,
        that version is returned.
        """
        problem = self._problem(text)
        if problem is None or problem is _GAVE_UP:
            return text if problem is None else problem
        bare = text.strip("\r\n")
        for other in (bare, f"{bare}\n"):
            if other != text and self._problem(other) is None:
                return other
        return problem

    def _problem(self, text: str) -> Problem | None:
        matcher = _matcher(self.definition).deep_copy()
        written = text.encode()
        deadline = time.monotonic() + self.seconds
        position = 0
        while position < len(written):
            step = written[position : position + _STEP]
            consumed = matcher.try_consume_tokens([*step])
            position += consumed
            if matcher.is_error() or time.monotonic() >= deadline:
                return _GAVE_UP
            if consumed < len(step):
                return _unexpected(text, written, position, matcher)
        return None if matcher.is_accepting() else _unexpected(text, written, position, matcher)


def _unexpected(text: str, written: bytes, position: int, matcher: LLMatcher) -> Problem:
    before = written[:position].decode(errors="ignore")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    rest = text[len(before) :]
    found = format_value(rest.split("\n", 1)[0] or rest[:1]) if rest else "the end of the text"
    expected = _expected(matcher)
    where = f"line {line}, column {column}"
    message = f"does not fit the grammar at {where}: expected {expected}, found {found}"
    return Problem("input", message)


def _expected(matcher: LLMatcher) -> str:
    """Return what is allowed at the place of the error: a required word, or the possible
    characters.
    """
    if forced := matcher.compute_ff_bytes().decode(errors="ignore"):
        return format_value(forced)
    allowed = matcher.compute_logit_bias()
    characters = [chr(n) for n in range(128) if allowed[n] and (n == 10 or 32 <= n < 127)]
    if len(characters) > _MOST_SHOWN:
        return "something else"
    ends = ["the end of the text"] if matcher.is_accepting() else []
    return " or ".join([*map(format_value, characters), *ends]) or "something else"


@lru_cache(maxsize=128)
def _matcher(definition: str) -> LLMatcher:
    """Return the compiled grammar. Copy it before use."""
    import llguidance

    limits = llguidance.LLParserLimits(
        max_items_in_row=500,
        initial_lexer_fuel=300_000,
        step_lexer_fuel=100_000,
        step_max_items=10_000,
        max_lexer_states=20_000,
        max_grammar_size=50_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )
    matcher = llguidance.LLMatcher(
        _bytes(),
        llguidance.LLMatcher.grammar_from_lark(definition),
        log_level=0,
        limits=limits,
    )
    if matcher.is_error():
        raise InvalidLarkGrammar(shorten(matcher.get_error().split("\n", 1)[0], 300))
    return matcher


@cache
def _bytes() -> Any:
    """Return a tokenizer whose tokens are bytes."""
    import llguidance

    return llguidance.LLTokenizer("byte", slices=[])
