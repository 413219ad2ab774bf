"""Choose the tools that a request may be about, by the words they share with it (`ToolIndex`).

A very small model chooses badly between four tools and well between two. If a request shares no word with any
tool, every tool stays and the model decides. Synonyms are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from emulator.answering.ways.copying import CopySource
from emulator.tools.tool import Tool
from emulator.tools.toolset import Toolset

NUMBER_PRESENT, NUMBER_MISSING = 1.25, 0.5
"""Factors for a tool that cannot be called without a number."""
NEAR = 2 / 3
"""The share of the best score above which a tool stays."""


@dataclass(frozen=True)
class Shortlist:
    """The chosen tools, the likeliest last: a small model weighs what it read last most."""

    tools: tuple[Tool, ...]
    evident: bool
    """Whether the request shares words with them, or has the number that one needs."""


def shortlist(toolset: Toolset, request: str) -> Shortlist:
    """The tools that ``request`` is most likely about. Without any evidence all stay, except those that lack
    a number."""
    scores = _scores(toolset, request)
    best = max(scores, default=0.0)
    ranked = sorted(zip(scores, toolset.tools, strict=True), key=lambda pair: pair[0])
    chosen = tuple(tool for score, tool in ranked if score >= min(best, best * NEAR))
    return Shortlist(chosen, best > 0)


def _scores(toolset: Toolset, request: str) -> list[float]:
    shared = {tool.name: score for tool, score in toolset.index.scores(request)}
    has_number = bool(CopySource(request).numbers())
    factor = NUMBER_PRESENT if has_number else NUMBER_MISSING
    least = min(shared.values(), default=1.0) / 2 if has_number else -1.0
    return [
        factor * shared.get(tool.name, least) if _needs_number(tool) else shared.get(tool.name, 0.0)
        for tool in toolset.tools
    ]


def _needs_number(tool: Tool) -> bool:
    return any(
        p.required and isinstance(p.schema, dict) and p.schema.get("type") in ("number", "integer")
        for p in tool.arguments
    )
