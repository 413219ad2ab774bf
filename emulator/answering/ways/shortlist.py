"""Choose the tools that a request may be about, by the words they share with it.

A very small model chooses badly between four tools and well between two. Word overlap, weighted by how few
of the tools contain the word, settles the plain cases. If a request shares no word with any tool, every
tool stays and the model decides. Synonyms are unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emulator.answering.ways.copying import FUNCTION_WORDS, CopySource
from emulator.tools.tool import Tool

NAME, DESCRIPTION, ARGUMENT = 3.0, 2.0, 1.0
"""The weight of a shared word, by its place in the tool."""
NUMBER_PRESENT, NUMBER_MISSING = 1.0, -3.0
"""For a tool that cannot be called without a number."""
NEAR = 2 / 3
"""The share of the best score above which a tool stays."""

_ENDINGS = ("ation", "ions", "ing", "ion", "ies", "ers", "er", "es", "ed", "s", "e", "y")


@dataclass(frozen=True)
class Shortlist:
    """The chosen tools, the likeliest last: a small model weighs what it read last most."""

    tools: tuple[Tool, ...]
    evident: bool
    """Whether the request shares words with them."""


def shortlist(tools: Sequence[Tool], request: str) -> Shortlist:
    """The tools that ``request`` is most likely about; all tools without any evidence."""
    scores = _scores(tools, request)
    best = max(scores, default=0.0)
    least = best * NEAR if best > 0 else 0.0
    ranked = sorted(zip(scores, tools, strict=True), key=lambda pair: pair[0])
    chosen = tuple(tool for score, tool in ranked if score >= least)
    return Shortlist(chosen or tuple(tools), best > 0)


def _scores(tools: Sequence[Tool], request: str) -> list[float]:
    requested_stems = _stems(request)
    weights = [_weights(tool) for tool in tools]
    holders = {
        stem: sum(stem in stem_weights for stem_weights in weights) for stem in requested_stems
    }
    number = NUMBER_PRESENT if CopySource(request).numbers() else NUMBER_MISSING
    return [
        sum(
            stem_weights[stem] * math.log(1 + len(tools) / holders[stem])
            for stem in requested_stems & stem_weights.keys()
        )
        + (number if _needs_number(tool) else 0.0)
        for tool, stem_weights in zip(tools, weights, strict=True)
    ]


def _weights(tool: Tool) -> Mapping[str, float]:
    """Stem -> its highest weight."""
    arguments = (
        f"{p.name} {p.remark('description') or ''} {_choices(p.schema)}" for p in tool.arguments
    )
    places = {ARGUMENT: " ".join(arguments), DESCRIPTION: tool.description, NAME: tool.name}
    return {stem: weight for weight, text in places.items() for stem in _stems(text)}


def _choices(schema: object) -> str:
    return " ".join(map(str, schema.get("enum") or ())) if isinstance(schema, dict) else ""


def _needs_number(tool: Tool) -> bool:
    return any(
        p.required and isinstance(p.schema, dict) and p.schema.get("type") in ("number", "integer")
        for p in tool.arguments
    )


def _stems(text: str) -> set[str]:
    """Words without their endings, parts of camelCase and snake_case apart, and operators that
    stand alone.
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text).lower()
    words = re.findall(r"[^\W\d_]+|(?<!\S)[-+*/%=](?!\S)", spaced)
    return {_stem(word) for word in words if word not in FUNCTION_WORDS}


def _stem(word: str) -> str:
    cut = (word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending))
    return next((stem for stem in cut if len(stem) >= 3), word)
