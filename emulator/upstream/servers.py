"""Which server an upstream is: told by its address, by its model list, or by a path that only it has.

A table; sans-IO but for the ``get`` that is handed in. Sources: the servers' own documentation of their
model lists and of the paths below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from emulator.upstream_settings import GrammarField

Get = Callable[[str], object]
"""The JSON at a path of the server's root, or None where there is none."""


@dataclass(frozen=True)
class Server:
    name: str
    host: str = r"(?!)"
    """Found at the end of its host's name."""
    owner: str = ""
    """The ``owned_by`` of all models that it lists."""
    path: str = ""
    """Where it says what it is, as JSON that has `key`."""
    key: str = ""
    takes: GrammarField = "off"
    """The field in which it takes a grammar, for ``grammar`` in a row of ``[[profiles]]``."""

    def __str__(self) -> str:
        if self.takes == "off":
            return self.name
        return f'{self.name}, which takes a grammar (grammar = "{self.takes}" in [[profiles]])'


SERVERS: tuple[Server, ...] = (
    Server("OpenAI", r"(?:^|\.)api\.openai\.com"),
    Server("Azure", r"\.(?:openai\.azure|services\.ai\.azure|cognitiveservices\.azure)\.com"),
    Server("OpenRouter", r"(?:^|\.)openrouter\.ai"),
    Server("DeepSeek", r"(?:^|\.)api\.deepseek\.com"),
    Server("Together", r"(?:^|\.)together\.(?:xyz|ai)"),
    Server("Groq", r"(?:^|\.)groq\.com"),
    Server("SGLang", owner="sglang", path="/get_server_info", key="tp_size", takes="ebnf"),
    Server("vLLM", owner="vllm", path="/version", key="version", takes="structured_outputs"),
    Server("llama.cpp", owner="llamacpp", path="/props", key="chat_template", takes="grammar"),
    Server("LM Studio", owner="organization_owner", path="/api/v0/models", key="data"),
    Server("Ollama", owner="library", path="/api/version", key="version", takes="json_schema"),
)
UNKNOWN = Server("unknown")


def server_of(base_url: str, models: Sequence[Mapping[str, Any]], get: Get) -> Server:
    """Which it is; `UNKNOWN` if nothing tells. ``get`` is called only where nothing else does."""
    for found in (by_address(base_url), by_models(models)):
        if found is not UNKNOWN:
            return found
    return by_paths(get)


def by_address(base_url: str) -> Server:
    """For services that are always at the same place."""
    host = urlsplit(base_url).hostname or ""
    return next((s for s in SERVERS if re.search(rf"{s.host}$", host)), UNKNOWN)


def by_models(models: Sequence[Mapping[str, Any]]) -> Server:
    """For servers that sign their model lists."""
    owners = {str(model.get("owned_by")) for model in models}
    return next((s for s in SERVERS if s.owner and owners == {s.owner}), UNKNOWN)


def by_paths(get: Get) -> Server:
    """For all others: what only this server answers."""
    for server in SERVERS:
        if server.path:
            said = get(server.path)
            if isinstance(said, Mapping) and server.key in said:
                return server
    return UNKNOWN
