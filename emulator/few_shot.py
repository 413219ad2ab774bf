"""The messages for a very small model: a transcript of examples, then the conversation.

The examples come first and never change, so that the upstream keeps them in its prompt cache; the offered functions stand
directly before the request, where a small model still sees them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

ModelMessage = dict[str, Any]

_TURN = re.compile(r"^=== (system|user|assistant)\n", re.MULTILINE)


def few_shot(transcript: str, told: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """The turns of a rendered ``tiny.jinja``, then `told`.

    The last turn, which offers the functions, goes in front of the last user message; the conversation's own system
    messages go behind the first. A line of the transcript that opens a turn cannot come from a client: tools are one
    line each, beginning with a Python name.
    """
    _, *parts = _TURN.split(transcript)
    examples = [
        {"role": role, "content": text.strip("\n")}
        for role, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    offer = examples.pop()["content"]
    system = [str(m["content"]) for m in told if m["role"] == "system"]
    examples[0]["content"] = "\n\n".join([examples[0]["content"], *system])
    rest = [dict(m) for m in told if m["role"] != "system"]
    if not rest or rest[-1]["role"] != "user":
        return [*examples, *rest, {"role": "user", "content": offer}]
    request = rest.pop()["content"]
    return [*examples, *rest, {"role": "user", "content": _behind(offer, request)}]


def _behind(offer: str, request: Any) -> Any:
    if isinstance(request, str):
        return f"{offer}\n\n{request}"
    return [{"type": "text", "text": f"{offer}\n\n"}, *request]
