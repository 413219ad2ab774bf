"""What servers say about themselves and their models. Sans-IO except for the ``get`` that is passed in.

The kind of server behind a base URL shows in its host, its model list, or a path that only it has. Sources:
the servers' documentation of their model lists and of the paths below.

A model's description is words in which the patterns of profiles are searched, since an operator or a
gateway may have chosen its name freely: the model's own name and its size, such as
``SmolLM2-135M-Instruct.Q4_1.gguf 0.1b``. Sources: llama.cpp's list (``meta``) and /props, the list of vLLM
and SGLang (``root``), LiteLLM's /model/info.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from emulator.settings.upstream_settings import SchemaField
from emulator.upstream.interface import ModelRow

GetJSON = Callable[[str], object]
"""Returns the JSON at a path of the server's root, or None if there is none."""

USUAL_WINDOW = 32_768
"""Tokens that coding agents can work with."""


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
    loads_on_demand: bool = False
    """It loads a model when a request names it, with a context that shows only then."""
    schema_field: SchemaField = "off"
    """How it accepts a schema of calls: ``grammar`` in a row of ``[[profiles]]``."""
    port: int = 0
    """Where it listens by default on the machine of its user."""
    window_setting: str = ""
    """How its user gives a model a context of {tokens}."""

    def longer_window(self, tokens: int = USUAL_WINDOW) -> str:
        """How its user makes a prompt of ``tokens`` fit; "" if that is not known."""
        size = max(USUAL_WINDOW, 1 << (tokens - 1).bit_length())
        return self.window_setting.format(tokens=size)

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
        "SGLang",
        owner="sglang",
        path="/get_server_info",
        key="tp_size",
        schema_field="json_schema",
        port=30000,
        window_setting="start it with --context-length {tokens}",
    ),
    ServerKind(
        "vLLM",
        owner="vllm",
        schema_field="json_schema",
        port=8000,
        window_setting="start it with --max-model-len {tokens}",
    ),
    ServerKind(
        "llama.cpp",
        owner="llamacpp",
        path="/props",
        key="chat_template",
        schema_field="json_schema",
        port=8080,
        window_setting="start it with --ctx-size {tokens}",
    ),
    ServerKind(
        "LM Studio",
        owner="organization_owner",
        path="/api/v0/models",
        key="data",
        loads_on_demand=True,
        schema_field="json_schema",
        port=1234,
        window_setting="load the model with a longer context: lms load MODEL --context-length {tokens}",
    ),
    ServerKind(
        "Ollama",
        owner="library",
        path="/api/version",
        key="version",
        loads_on_demand=True,
        schema_field="json_schema",
        port=11434,
        window_setting="OLLAMA_CONTEXT_LENGTH={tokens} ollama serve",
    ),
    # Its model list says that all models belong to "me".
    ServerKind(
        "llama-cpp-python",
        owner="me",
        schema_field="json_object",
        window_setting="start it with --n_ctx {tokens}",
    ),
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
    if not all(owners):  # such as LocalAI, which has Ollama's paths
        return UNKNOWN
    for server in SERVERS:
        if server.path:
            description = get(server.path)
            if isinstance(description, Mapping) and server.key in description:
                return server
    return UNKNOWN


_MAX_MODELS = 10_000
_MAX_CHARACTERS = 200
_MAX_LENGTH = 10**9
_LENGTHS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""Fields of the model lists of vLLM and SGLang, of OpenRouter and Together, of Groq, and of Mistral."""


def describe_models(
    models: Sequence[ModelRow], server: ServerKind, get: GetJSON
) -> Mapping[str, str]:
    """Return the description of each of ``models`` that has one, by its id."""
    rows = [*islice(models, _MAX_MODELS)]
    words = {str(row["id"]): list(_listed(row)) for row in rows}
    if server.name == "llama.cpp" and len(words) == 1:
        [own] = words.values()
        own += _name(_member(get("/props"), "model_path"))
    if server is UNKNOWN:
        deployments = _member(get("/model/info"), "data")
        for row in islice(deployments, _MAX_MODELS) if isinstance(deployments, list) else ():
            model = _member(_member(row, "litellm_params"), "model")
            words.get(str(_member(row, "model_name")), []).extend(_name(model))
    return {model: " ".join(found) for model, found in words.items() if found}


def context_lengths(
    models: Sequence[ModelRow], server: ServerKind, get: GetJSON
) -> Mapping[str, int]:
    """Return the context's length in tokens of those ``models`` whose server lists it, by the model's id."""
    rows = [*islice(models, _MAX_MODELS)]
    lengths = {str(row["id"]): [row.get(field) for field in _LENGTHS] for row in rows}
    if server.name == "llama.cpp" and len(lengths) == 1:
        [own] = lengths.values()
        own.append(_member(_member(get("/props"), "default_generation_settings"), "n_ctx"))
    return {
        model: known[0]
        for model, found in lengths.items()
        if (known := [n for n in found if isinstance(n, int) and 0 < n < _MAX_LENGTH])
    }


def loaded_lengths(server: ServerKind, get: GetJSON) -> Mapping[str, int]:
    """The contexts with which a server has loaded its models, which may be shorter than the models' own.

    Ollama's default cuts prompts silently (/api/ps, of models in memory); LM Studio's model list names it.
    """
    path, rows, name = {
        "Ollama": ("/api/ps", "models", "context_length"),
        "LM Studio": ("/api/v0/models", "data", "loaded_context_length"),
    }.get(server.name, ("", "", ""))
    found = _member(get(path), rows) if path else None
    lengths: dict[str, int] = {}
    for row in islice(found, _MAX_MODELS) if isinstance(found, list) else ():
        length = _member(row, name)
        for model in {_member(row, "id"), _member(row, "name"), _member(row, "model")}:
            if isinstance(model, str) and isinstance(length, int) and 0 < length < _MAX_LENGTH:
                lengths[model] = length
    return lengths


def _listed(row: Mapping[str, Any]) -> Iterator[str]:
    yield from _name(row.get("root"))
    parameters = _member(row.get("meta"), "n_params")
    if isinstance(parameters, int) and 0 < parameters < 10**15:
        yield f"{parameters / 1e9:.1f}b"


def _name(path: object) -> list[str]:
    """The last part of a path or of ``provider/model``."""
    return [path.rpartition("/")[2][:_MAX_CHARACTERS]] if isinstance(path, str) and path else []


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None
