"""How to talk to each kind of model: one table; the model's name or the operator chooses the row."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from emulator.core.cached_property import cached_property
from emulator.reading.reply_splitter import ReasoningStart
from emulator.settings.settings import Settings
from emulator.settings.upstream_settings import Grammar, ProfileRow, Tools


@dataclass(frozen=True)
class Profile:
    """The differences between kinds of model and their servers."""

    name: str
    pattern: str
    """Searched in the model's name, ignoring case."""
    system: bool = True
    """Put instructions into a system message; otherwise before the first user message."""
    later_system: bool | None = None
    """Keep system messages after the first; otherwise they are the user's. None: by the model's name."""
    drops: frozenset[str] = frozenset()
    """Request fields that the upstream rejects."""
    passes: frozenset[str] = frozenset()
    """Request fields that go to the upstream although no table names them (setting ``pass_fields``)."""
    wants: frozenset[str] = frozenset()
    """The `ACCOUNT_FIELDS` that the upstream supports."""
    plain: bool = True
    """Send texts as strings and the developer role as system: every chat template accepts that."""
    few_shot: bool = False
    """Use examples, few tools and values copied from the request instead of instructions (`tiny`)."""
    begins_inside: bool = False
    """The chat template opens the reasoning; replies only close it."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Request field -> the upstream's name for it."""
    reasoning_field: str = ""
    """A further delta field for reasoning, besides the two common ones."""
    stop: tuple[str, ...] = ()
    """The model's own stop strings, sent with each request."""
    grammar: Grammar = "off"
    """How the upstream accepts a JSON Schema of the reply."""
    tools: Tools | None = None
    """Who calls the tools, instead of the setting ``tools``."""
    tool_tokens: int | None = None
    """Instead of the setting ``tool_tokens``."""
    acts: Literal["label", "any"] = "label"
    """What runs without a question: labelled blocks (`judge`), or every valid call in a block."""
    template: str = ""
    """An operator's Jinja file that replaces prompts/tools.jinja."""
    chat_template: str = ""
    """The file of the model's chat template, whose words about tools replace prompts/tools.jinja."""

    @cached_property
    def _names(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE)

    def is_of(self, model: str) -> bool:
        """Return True if the model's name matches."""
        return self._names.search(model) is not None

    def withholds(self, further: Collection[str] = ()) -> frozenset[str]:
        """The request fields that are not sent upstream; ``further`` are the operator's."""
        return self.drops | (ACCOUNT_FIELDS - self.wants) | frozenset(further)

    def rename_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The request's fields under the upstream's names, with the model's stop strings."""
        named = {self.renames.get(name, name): value for name, value in fields.items()}
        if self.stop:
            stop = named.get("stop") or []
            requested = [stop] if isinstance(stop, str) else list(stop)
            named["stop"] = list(dict.fromkeys([*requested, *self.stop]))
        return named

    def reasoning(self, delta: Mapping[str, Any]) -> str:
        """The reasoning in a delta, in any of its fields."""
        text = delta.get("reasoning_content") or delta.get("reasoning")
        if not text and self.reasoning_field:
            text = delta.get(self.reasoning_field)
        return text if isinstance(text, str) else ""


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
"""Fields for the client's OpenAI account. Strict upstreams reject them, others log them."""

PROFILES = (
    # Never by the model's name: any server may call a model gpt-something.
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
        grammar="json_schema",
        tool_tokens=0,  # its own shortlist
    ),
    Profile("default", r""),
)

_MAY_REASON = re.compile(
    r"deepseek|qwen-?3(?!-?coder)|glm|minimax|nemotron|exaone|olmo-?3|step-?3|ernie|hunyuan|seed-oss|kimi|"
    r"magistral|smollm3|apriel|skywork|ring-|granite-?[34]|phi-4|gpt-oss|reason|think|\b[rosqz]1\b",
    re.IGNORECASE,
)
"""Model families in which some chat templates open the reasoning."""


_ONE_SYSTEM = re.compile("qwen|gemma|mistral|mixtral|ministral", re.IGNORECASE)
"""Families with chat templates that refuse a second one ("System message must be at the beginning.",
"Conversation roles must alternate")."""


def keeps_later_system(profile: Profile, model: str) -> bool:
    """Return True if system messages after the first stay what they are."""
    if profile.later_system is None:
        return _ONE_SYSTEM.search(model) is None
    return profile.later_system


def reasoning_start_of(profile: Profile, model: str) -> ReasoningStart:
    """Guess from the model's name where its replies start."""
    if profile.begins_inside:
        return ReasoningStart.INSIDE_UNTIL_SHOWN
    return ReasoningStart.PERHAPS_INSIDE if _MAY_REASON.search(model) else ReasoningStart.UNKNOWN


def choose(
    setting: str, model: str, rows: Sequence[ProfileRow] = (), description: str = ""
) -> Profile:
    """The profile named by ``setting``; with ``auto`` the first whose pattern matches ``model``.

    The operator's ``rows`` come before the table. If only the last row of the table matches, the server's
    ``description`` of the model decides.
    """
    table = (*map(_profile_from_row, rows), *PROFILES)
    if setting != "auto":
        return next(profile for profile in table if profile.name == setting)
    chosen = next(profile for profile in table if profile.is_of(model))
    if chosen is PROFILES[-1]:
        return next(profile for profile in table if profile.is_of(description))
    return chosen


def profile_of(settings: Settings, model: str, description: str = "") -> Profile:
    """The profile for ``model``, the upstream's name of a model, and what the upstream says about it."""
    if settings.profiles:
        return choose(settings.profile, model, settings.profiles, description)
    return _choose_from_table(settings.profile, model, description)


@lru_cache(maxsize=1024)
def _choose_from_table(setting: str, model: str, description: str) -> Profile:
    return choose(setting, model, (), description)


def _profile_from_row(row: ProfileRow) -> Profile:
    base = next(profile for profile in reversed(PROFILES) if profile.name == row.like)
    values: dict[str, Any] = {
        "name": row.name,
        "pattern": row.pattern,
        "system": row.system,
        "later_system": row.later_system,
        "drops": None if row.drops is None else frozenset(row.drops),
        "passes": None if row.pass_fields is None else frozenset(row.pass_fields),
        "wants": None if row.account_fields is None else frozenset(row.account_fields),
        "plain": row.plain,
        "begins_inside": row.begins_inside,
        "renames": row.renames,
        "reasoning_field": row.reasoning_field,
        "stop": row.stop,
        "grammar": row.grammar,
        "tools": row.tools,
        "tool_tokens": row.tool_tokens,
        "acts": row.acts,
        "template": row.template,
        "chat_template": row.chat_template,
    }
    return replace(base, **{name: value for name, value in values.items() if value is not None})
