"""An event of an upstream's stream as a chunk. What is read of one anywhere is of its type behind this:
garbage is the upstream's fault, not ours.
"""

from __future__ import annotations

from emulator import json_codec
from emulator.errors import UpstreamFailed
from emulator.upstream.reply import Chunk, Heard

_TEXTS = frozenset({"content", "reasoning_content", "reasoning"})
_COUNTED = ("prompt_tokens", "completion_tokens")


def read_chunk(event: bytes, heard: Heard) -> Chunk:
    """The chunk, of which ``heard`` is told. Raises `UpstreamFailed`."""
    try:
        chunk = json_codec.loads(event)
    except json_codec.NotJSON as error:
        raise UpstreamFailed(f"The upstream sent an event that is not JSON: {error}") from error
    if not isinstance(chunk, dict):
        raise UpstreamFailed("The upstream sent an event that is not a JSON object.")
    if reported := chunk.get("error"):
        message = reported.get("message") if isinstance(reported, dict) else reported
        raise UpstreamFailed(f"The upstream reported an error: {message}")
    _check(chunk, heard)
    return chunk


def _check(chunk: Chunk, heard: Heard) -> None:
    """Raises `UpstreamFailed` where anything is of another type than it should be."""
    choices, usage = chunk.get("choices"), chunk.get("usage")
    fits = not choices or type(choices) is list
    for choice in choices if choices and fits else ():
        if type(choice) is not dict:
            fits = False
            break
        if (reason := choice.get("finish_reason")) is not None:
            fits = fits and type(reason) is str
            heard.finishes = heard.finishes or bool(reason)
        if delta := choice.get("delta"):
            if type(delta) is not dict:
                fits = False
                break
            for name, text in delta.items():
                if text and name != "role":
                    heard.says = True
                if type(text) is not str and text is not None and name in _TEXTS:
                    fits = False
    if usage is not None:
        fits = fits and type(usage) is dict
        fits = fits and all(type(usage.get(name) or 0) is int for name in _COUNTED)
    if not fits:
        raise UpstreamFailed("The upstream sent an event that is no chat.completion.chunk.")
    heard.chunks += bool(choices)
    heard.usage = usage or heard.usage
