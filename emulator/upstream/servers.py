"""Identify the kind of server behind a base URL: by its host, its model list, or a path that only it has.

A table; sans-IO except for the ``get`` that is passed in. Sources: the servers' documentation of their model
lists and of the paths below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from emulator.upstream_settings import SchemaField

GetJSON = Callable[[str], object]
"""Returns the JSON at a path of the server's root, or None if there is none."""


@dataclass(frozen=True)
class ServerKind:
    name: str
    host: str = r"(?!)"
    """A pattern for the end of its host name."""
    owner: str = ""
    """The ``owned_by`` of all models that it lists."""
    path: str = ""
    """Where it describes itself, as a JSON object with `key`."""
    key: str = ""
    schema_field: SchemaField = "off"
    """How it accepts a schema of calls: ``grammar`` in a row of ``[[profiles]]``."""

    def __str__(self) -> str:
        if self.schema_field == "off":
            return self.name
        setting = f'grammar = "{self.schema_field}" in [[profiles]]'
        return f"{self.name}, which can constrain calls ({setting})"


SERVERS: tuple[ServerKind, ...] = (
    ServerKind("OpenAI", r"(?:^|\.)api\.openai\.com"),
    ServerKind("Azure", r"\.(?:openai\.azure|services\.ai\.azure|cognitiveservices\.azure)\.com"),
    ServerKind("OpenRouter", r"(?:^|\.)openrouter\.ai"),
    ServerKind("DeepSeek", r"(?:^|\.)api\.deepseek\.com"),
    ServerKind("Together", r"(?:^|\.)together\.(?:xyz|ai)"),
    ServerKind("Groq", r"(?:^|\.)groq\.com"),
    ServerKind(
        "SGLang", owner="sglang", path="/get_server_info", key="tp_size", schema_field="json_schema"
    ),
    ServerKind("vLLM", owner="vllm", path="/version", key="version", schema_field="json_schema"),
    ServerKind(
        "llama.cpp",
        owner="llamacpp",
        path="/props",
        key="chat_template",
        schema_field="json_schema",
    ),
    ServerKind(
        "LM Studio",
        owner="organization_owner",
        path="/api/v0/models",
        key="data",
        schema_field="json_schema",
    ),
    ServerKind(
        "Ollama", owner="library", path="/api/version", key="version", schema_field="json_schema"
    ),
    # Its model list says that all models belong to "me".
    ServerKind("llama-cpp-python", owner="me", schema_field="json_object"),
)
UNKNOWN = ServerKind("unknown")


def identify_server(base_url: str, owners: Collection[str | None], get: GetJSON) -> ServerKind:
    """Return the kind of server, or `UNKNOWN`.

    ``owners`` are the ``owned_by`` of its models. Calls ``get`` only if neither URL nor owners identify it.
    """
    host = urlsplit(base_url).hostname or ""
    for server in SERVERS:
        if re.search(rf"{server.host}$", host):
            return server
    for server in SERVERS:
        if server.owner and set(owners) == {server.owner}:
            return server
    for server in SERVERS:
        if server.path:
            description = get(server.path)
            if isinstance(description, Mapping) and server.key in description:
                return server
    return UNKNOWN
