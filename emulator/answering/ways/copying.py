"""Find values that occur in a text: for models that are too small to compose a value, but can copy.

Strings become runs of the text's words, numbers the numbers in it, and of an enum only the values that it
mentions. Knows nothing of tools, schemas or prompts. The word lists (`NUMBERS`, `EDGES`) are English and
harmless in any other language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

Json = Any

NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty"
).split()

FUNCTION_WORDS = frozenset(
    "a an the and or of to in on at for from with by about into over as e.g is are am was were "
    "be been do does did will would can could shall should may might has have had not no what "
    "who whom where when why how which it its this that these those there i you he she we they "
    "me him her us them my your his our their any some many much one another please hey get "
    "give tell show let want need".split()
)
"""Articles, prepositions, auxiliaries, pronouns, question words, and polite verbs."""

EDGES = (FUNCTION_WORDS | set("put send make set find add write".split())) - set(
    "i he she we they one".split()
)
"""Words that neither start nor end a value: function words and verbs that open requests. A capitalized word
inside a sentence is a name and does not count: the wall, but The Wall."""

MAX_EDGES, MAX_RUNS = 200, 400

_MARKS = r"\s.,;:!?\"'`“”‘’"
_WORD = re.compile(rf"[^{_MARKS}](?:\S*[^{_MARKS}])?")
_NUMBER = re.compile(r"(?<![\w.])-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,14})?")


@dataclass(frozen=True)
class CopySource:
    """A text to copy from."""

    text: str

    @property
    def words(self) -> list[re.Match[str]]:
        return list(_WORD.finditer(self.text))

    def numbers(self) -> list[str]:
        """The numbers in the text, as Python writes them, each once."""
        digits = _NUMBER.findall(re.sub(r"(?<=\d),(?=\d{3}\b)", "", self.text))
        number_words = [
            str(NUMBERS.index(word[0].lower())) for word in self.words if word[0].lower() in NUMBERS
        ]
        return list(dict.fromkeys([*digits, *number_words]))

    def mentioned(self, values: Sequence[Json]) -> list[Json]:
        """The values of an enum that occur in the text as whole words."""
        return [
            v
            for v in values
            if isinstance(v, str)
            and re.search(rf"(?<!\w){re.escape(v)}(?!\w)", self.text, re.IGNORECASE)
        ]

    def mentions(self, name: str) -> bool:
        """Return True if a word of the name occurs in the text."""
        return bool(self.mentioned(re.findall(r"[^\W_]+", name)))

    def runs(self) -> list[str]:
        """The runs of words on one line, without `EDGES` at either end; the `MAX_RUNS` shortest of them."""
        words = self.words
        unlike_edges = (n for n, word in enumerate(words) if not self._is_edge(word))
        edges = list(islice(unlike_edges, MAX_EDGES))
        pairs = ((first, last) for first in edges for last in edges if first <= last)
        shortest = sorted(pairs, key=lambda pair: pair[1] - pair[0])
        found = (self.text[words[first].start() : words[last].end()] for first, last in shortest)
        distinct = dict.fromkeys(run for run in found if "\n" not in run)
        return list(islice(distinct, MAX_RUNS))

    def _is_edge(self, word: re.Match[str]) -> bool:
        before = self.text[: word.start()].rstrip(" \t\"'“‘(")
        opens_sentence = not before or before[-1] in ".!?\n"
        return (word[0].lower() if opens_sentence else word[0]) in EDGES
