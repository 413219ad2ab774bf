"""Which of many tools a request may be about, judged by the words they share.

A very small model chooses badly between four tools and well between two. Word overlap, weighted by
how few of the tools hold the word, settles the plain cases for it; where a request shares no word
with any tool, every tool stays and the model decides. It knows no synonyms, and no language but by
its words; it is for models that would do worse without it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emulator.answering.tiny.copying import FUNCTION_WORDS, CopySource
from emulator.tools.tool import Tool

NAME, DESCRIPTION, ARGUMENT = 3.0, 2.0, 1.0
"""What a shared word counts, by where the tool holds it."""
NUMBER_HELD, NUMBER_MISSING = 1.0, -3.0
"""For a tool that cannot be called without a number."""
NEAR = 2 / 3
"""Tools with this share of the best tool's score stay."""

_ENDINGS = ("ation", "ions", "ing", "ion", "ies", "ers", "er", "es", "ed", "s", "e", "y")


@dataclass(frozen=True)
class Shortlist:
    """The tools that stay, the likeliest last: what a small model read last counts most."""

    tools: tuple[Tool, ...]
    evident: bool
    """Something in the request speaks for them."""


def shortlist(tools: Sequence[Tool], request: str) -> Shortlist:
    """The tools that `request` is likeliest about; all of them when nothing tells."""
    scores = _scores(tools, request)
    best = max(scores, default=0.0)
    least = best * NEAR if best > 0 else 0.0
    ranked = sorted(zip(scores, tools, strict=True), key=lambda pair: pair[0])
    chosen = tuple(tool for score, tool in ranked if score >= least)
    return Shortlist(chosen or tuple(tools), best > 0)


def _scores(tools: Sequence[Tool], request: str) -> list[float]:
    wanted = _stems(request)
    weights = [_weights(tool) for tool in tools]
    holders = {stem: sum(stem in those for those in weights) for stem in wanted}
    number = NUMBER_HELD if CopySource(request).numbers() else NUMBER_MISSING
    return [
        sum(
            those[stem] * math.log(1 + len(tools) / holders[stem]) for stem in wanted & those.keys()
        )
        + (number if _needs_number(tool) else 0.0)
        for tool, those in zip(tools, weights, strict=True)
    ]


def _weights(tool: Tool) -> Mapping[str, float]:
    """Stem -> weight, the highest place counting."""
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
