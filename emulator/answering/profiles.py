"""How to talk to which model: one table, chosen by the model's name or by the operator."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from emulator.answering.reply_splitter import ReasoningStart
from emulator.settings import Settings
from emulator.upstream_settings import GrammarField, ProfileRow


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
    wants: frozenset[str] = frozenset()
    """Fields among `ACCOUNT_FIELDS` that the upstream knows what to do with."""
    plain: bool = True
    """Tell texts as strings and developers as the system: what every chat template can read."""
    few_shot: bool = False
    """Show examples, few tools and a llama.cpp ``grammar`` instead of instructions (`tiny`)."""
    begins_inside: bool = False
    """The chat template opens the reasoning, which the replies only close."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Request fields that the upstream knows by another name."""
    reasoning_field: str = ""
    """In which field of its deltas the upstream tells reasoning, beside the two that all clients know."""
    stop: tuple[str, ...] = ()
    """Stop strings of the model's own, sent with each request."""
    grammar: GrammarField = "off"
    """In which field the upstream takes a grammar."""
    template: str = ""
    """A Jinja file of the operator's in place of prompts/tools.jinja."""

    @cached_property
    def _names(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE)

    def is_of(self, model: str) -> bool:
        """Whether a model of this name is meant."""
        return self._names.search(model) is not None

    def withholds(self, further: Collection[str] = ()) -> frozenset[str]:
        """The request fields that do not go upstream; ``further`` are the operator's own."""
        return self.drops | (ACCOUNT_FIELDS - self.wants) | frozenset(further)

    def written(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A request's fields as this upstream wants them."""
        named = {self.renames.get(name, name): value for name, value in fields.items()}
        if self.stop:
            given = named.get("stop") or []
            own = [given] if isinstance(given, str) else list(given)
            named["stop"] = list(dict.fromkeys([*own, *self.stop]))
        return named

    def reasoning(self, delta: Mapping[str, Any]) -> str:
        """What a delta tells of reasoning, in whichever field."""
        told = delta.get("reasoning_content") or delta.get("reasoning")
        if not told and self.reasoning_field:
            told = delta.get(self.reasoning_field)
        return told if isinstance(told, str) else ""


ACCOUNT_FIELDS = frozenset(
    {
        "client_metadata",
        "metadata",
        "moderation",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
    }
)
"""Between a client and the account that it has at OpenAI: strict upstreams refuse them, others log them."""

PROFILES = (
    # Only by its name: which models a server calls gpt-something says nothing of the server.
    Profile("openai", r"(?!)", wants=ACCOUNT_FIELDS, plain=False),
    # DeepSeek's API reference, "Reasoning Model": logprobs and top_logprobs trigger an error.
    Profile(
        "reasoning",
        r"deepseek-reasoner",
        system=False,
        drops=frozenset({"logprobs", "top_logprobs"}),
        begins_inside=True,
    ),
    # DeepSeek's usage notes for R1: "Avoid adding a system prompt; all instructions should be
    # contained within the user prompt." QwQ was trained alike.
    # Their templates end a prompt with "<think>".
    Profile(
        "reasoning",
        r"deepseek-r1|deepseek-reasoner|\br1\b|qwq|marco-o1|-thinking",
        system=False,
        begins_inside=True,
    ),
    Profile(
        "tiny",
        # Copying arguments from the request suits models of half a billion parameters and less.
        r"(?<![\d.])(?:\d{2,3}m|0\.[0-6]b)(?!\w)",
        few_shot=True,
    ),
    Profile("default", r""),
)

_MAY_REASON = re.compile(
    r"deepseek|qwen-?3(?!-?coder)|glm|minimax|nemotron|exaone|olmo-?3|step-?3|ernie|hunyuan|seed-oss|kimi|"
    r"magistral|smollm3|apriel|skywork|ring-|granite-?[34]|phi-4|gpt-oss|reason|think|\b[rosqz]1\b",
    re.IGNORECASE,
)
"""Families of which some templates open the reasoning."""


def reasoning_start_of(profile: Profile, model: str) -> ReasoningStart:
    """How the replies of ``model`` begin, as far as its name tells."""
    if profile.begins_inside:
        return ReasoningStart.INSIDE_UNTIL_SHOWN
    return ReasoningStart.PERHAPS_INSIDE if _MAY_REASON.search(model) else ReasoningStart.UNKNOWN


def choose(setting: str, model: str, rows: Sequence[ProfileRow] = ()) -> Profile:
    """The profile that ``setting`` names, or with ``auto`` the first whose pattern is in ``model``.

    The operator's own ``rows`` come before those of the table.
    """
    table = (*map(_own, rows), *PROFILES)
    return next(
        profile
        for profile in table
        if profile.name == setting or (setting == "auto" and profile.is_of(model))
    )


def profile_of(settings: Settings, model: str) -> Profile:
    """How to talk to ``model``, which its upstream knows by this name."""
    return choose(settings.profile, model, settings.profiles)


def _own(row: ProfileRow) -> Profile:
    base = next(profile for profile in reversed(PROFILES) if profile.name == row.like)
    said: dict[str, Any] = {
        "name": row.name,
        "pattern": row.pattern,
        "system": row.system,
        "drops": None if row.drops is None else frozenset(row.drops),
        "wants": None if row.account_fields is None else frozenset(row.account_fields),
        "plain": row.plain,
        "begins_inside": row.begins_inside,
        "renames": row.renames,
        "reasoning_field": row.reasoning_field,
        "stop": row.stop,
        "grammar": row.grammar,
        "template": row.template,
    }
    return replace(base, **{name: value for name, value in said.items() if value is not None})
