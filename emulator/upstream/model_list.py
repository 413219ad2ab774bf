"""What a list of models says about each of them, under the names that clients read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PARAMETERS = (
    *("tools", "tool_choice", "parallel_tool_calls", "response_format", "structured_outputs"),
    *("temperature", "top_p", "max_tokens", "stop"),
)
_CAPABILITIES = ("completion", "tools", "tool_use")
_NO_CHAT = frozenset({"embedding", "embeddings", "rerank", "reranker", "moderation", "image"})
"""Values of ``type`` in the lists of LM Studio, Together and others."""


def chats(row: Mapping[str, Any]) -> bool:
    """Return False if the list says that the model of ``row`` is for something else."""
    return str(row.get("type")) not in _NO_CHAT


def abilities(
    row: Mapping[str, Any], context_length: int, *, is_loaded: bool = True
) -> dict[str, Any]:
    """What to add to a model's ``row``: every model that chats can call tools here.

    ``supported_parameters`` and ``context_length`` are OpenRouter's names, ``capabilities`` Ollama's and LM
    Studio's, ``max_context_length`` LM Studio's and Mistral's, ``context_window`` Groq's. ``state`` is LM
    Studio's, too.
    """
    added: dict[str, Any] = {}
    if chats(row):
        added["supported_parameters"] = _joined(row.get("supported_parameters"), _PARAMETERS)
        added["capabilities"] = _joined(row.get("capabilities"), _CAPABILITIES)
    if context_length:
        names = ("context_length", "max_context_length", "context_window", "max_model_len")
        added |= dict.fromkeys(names, context_length)
    if not is_loaded:
        added["state"] = "not-loaded"
    return added


def _joined(listed: object, ours: tuple[str, ...]) -> Any:
    if isinstance(listed, dict):  # Mistral's
        return {**listed, "function_calling": True}
    return [*dict.fromkeys([*listed, *ours] if isinstance(listed, list) else ours)]
