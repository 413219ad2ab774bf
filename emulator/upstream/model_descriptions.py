"""What servers say about a model beyond its name, which an operator or a gateway may have chosen freely.

A description is words in which the patterns of profiles are searched: the model's own name and its size, such
as ``SmolLM2-135M-Instruct.Q4_1.gguf 0.1b``. Sources: llama.cpp's list (``meta``) and /props, the list of vLLM
and SGLang (``root``), LiteLLM's /model/info. Sans-IO except for the ``get`` that is passed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from emulator.upstream.servers import UNKNOWN, GetJSON, ServerKind

if TYPE_CHECKING:
    from openai.types import Model

_MAX_MODELS = 10_000
_MAX_CHARACTERS = 200
_MAX_LENGTH = 10**9
_LENGTHS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""Fields of the model lists of vLLM and SGLang, of OpenRouter and Together, of Groq, and of Mistral."""


def describe_models(models: Sequence[Model], server: ServerKind, get: GetJSON) -> Mapping[str, str]:
    """Return the description of each of ``models`` that has one, by its id."""
    rows = [model.to_dict(warnings=False) for model in islice(models, _MAX_MODELS)]
    words = {str(row.get("id")): list(_listed(row)) for row in rows}
    if server.name == "llama.cpp" and len(words) == 1:
        [own] = words.values()
        own += _name(_member(get("/props"), "model_path"))
    if server is UNKNOWN:
        deployments = _member(get("/model/info"), "data")
        for row in islice(deployments, _MAX_MODELS) if isinstance(deployments, list) else ():
            model = _member(_member(row, "litellm_params"), "model")
            words.get(str(_member(row, "model_name")), []).extend(_name(model))
    return {model: " ".join(found) for model, found in words.items() if found}


def context_lengths(models: Sequence[Model], server: ServerKind, get: GetJSON) -> Mapping[str, int]:
    """Return the context's length in tokens of each of ``models`` whose server says it, by the model's id."""
    rows = [model.to_dict(warnings=False) for model in islice(models, _MAX_MODELS)]
    lengths = {str(row.get("id")): [row.get(field) for field in _LENGTHS] for row in rows}
    if server.name == "llama.cpp" and len(lengths) == 1:
        [own] = lengths.values()
        own.append(_member(_member(get("/props"), "default_generation_settings"), "n_ctx"))
    known = (
        (model, length)
        for model, found in lengths.items()
        for length in found
        if isinstance(length, int) and 0 < length < _MAX_LENGTH
    )
    return dict(known)


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
