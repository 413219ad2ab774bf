"""How to talk to which model: one table, chosen by the model's name or by the operator."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """What differs between kinds of model."""

    name: str
    pattern: str
    """Found in a model's name, whatever its case."""
    system: bool = True
    """Instruct in a system message; otherwise in front of the first user message."""
    drops: frozenset[str] = frozenset()
    """Request fields that the upstream is known to refuse."""
    few_shot: bool = False
    """Show examples, few tools and a llama.cpp ``grammar`` instead of instructions (`tiny`)."""


PROFILES = (
    # DeepSeek's API reference, "Reasoning Model": logprobs and top_logprobs trigger an error.
    Profile(
        "reasoning",
        r"deepseek-reasoner",
        system=False,
        drops=frozenset({"logprobs", "top_logprobs"}),
    ),
    # DeepSeek's usage notes for R1: "Avoid adding a system prompt; all instructions should be
    # contained within the user prompt." QwQ was trained alike.
    Profile(
        "reasoning", r"deepseek-r1|deepseek-reasoner|\br1\b|qwq|marco-o1|-thinking", system=False
    ),
    Profile(
        "tiny",
        # Copying arguments from the request suits models of half a billion parameters and less.
        r"(?<![\d.])(?:\d{2,3}m|0\.[0-6]b)(?!\w)",
        few_shot=True,
    ),
    Profile("default", r""),
)


def choose(setting: str, model: str) -> Profile:
    """The profile that ``setting`` names, or with ``auto`` the first whose pattern is in ``model``."""
    return next(
        profile
        for profile in PROFILES
        if profile.name == setting
        or (setting == "auto" and re.search(profile.pattern, model, re.IGNORECASE))
    )
