"""Read one event of a chat's stream as a chunk.

The fields that the rest of the proxy reads are checked here: an upstream that sends another type has failed,
not the proxy.
"""

from __future__ import annotations

from emulator import json_codec
from emulator.errors import UpstreamFailed
from emulator.upstream.interface import Chunk, Received

_TEXTS = frozenset({"content", "reasoning_content", "reasoning"})
_TOKEN_COUNTS = ("prompt_tokens", "completion_tokens")


def read_chunk(event: bytes, received: Received) -> Chunk:
    """Return the chunk and record it in ``received``. Raises `UpstreamFailed`."""
    try:
        chunk = json_codec.loads(event)
    except json_codec.NotJSON as error:
        raise UpstreamFailed(f"The upstream sent an event that is not JSON: {error}") from error
    if not isinstance(chunk, dict):
        raise UpstreamFailed("The upstream sent an event that is not a JSON object.")
    if error_field := chunk.get("error"):
        message = error_field.get("message") if isinstance(error_field, dict) else error_field
        raise UpstreamFailed(f"The upstream reported an error: {message}")
    if not _read_choices(chunk.get("choices"), received) or not _is_usage(chunk.get("usage")):
        raise UpstreamFailed("The upstream sent an event that is not a chat.completion.chunk.")
    received.chunks += bool(chunk.get("choices"))
    received.usage = chunk.get("usage") or received.usage
    return chunk


def _read_choices(choices: object, received: Received) -> bool:
    """Record output and finish reasons in ``received``. Returns False if a field has the wrong type."""
    if not choices:
        return True
    if type(choices) is not list:
        return False
    for choice in choices:
        if type(choice) is not dict:
            return False
        if (reason := choice.get("finish_reason")) is not None:
            if type(reason) is not str:
                return False
            received.has_finish = received.has_finish or bool(reason)
        if delta := choice.get("delta"):
            if type(delta) is not dict:
                return False
            for name, value in delta.items():
                if value and name != "role":
                    received.has_output = True
                if type(value) is not str and value is not None and name in _TEXTS:
                    return False
    return True


def _is_usage(usage: object) -> bool:
    return usage is None or (
        type(usage) is dict and all(type(usage.get(name) or 0) is int for name in _TOKEN_COUNTS)
    )
