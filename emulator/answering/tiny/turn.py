"""A turn with a very small model: what it is shown, and the grammar that holds its reply.

Such a model copies well and composes badly. So it sees examples first, then few functions directly
before the request; strings and numbers are copied from the request; and a result is put to it as
the answer which it only has to say. Measured in docs/accuracy.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.answering.call_policy import CallPolicy
from emulator.answering.grammar.calls import gbnf
from emulator.answering.grammar.rules import UnusableGrammar
from emulator.answering.tiny.shortlist import shortlist
from emulator.answering.transcript import ModelMessage, TranscriptSpan, render, transcript
from emulator.protocol import Message
from emulator.tools.toolset import Toolset

DEFAULTS = {"temperature": 0, "max_tokens": 512}
"""Fields for a request that does not say: sampling spoils copying, and prose may never end."""

RESULTS = ("tool", "function")

_TURN = re.compile(r"^=== (system|user|assistant)\n", re.MULTILINE)


@dataclass(frozen=True)
class TinyTurn:
    """What to send upstream."""

    messages: list[ModelMessage]
    grammar: str | None
    """None where prose is wanted, or no grammar can be had."""


def tiny_turn(
    messages: Sequence[Message],
    toolset: Toolset,
    choice: CallPolicy,
    passages: Sequence[TranscriptSpan] = (),
) -> TinyTurn:
    """The turn that follows `messages`.

    Where results came last and no call is required, the model is asked to say them, and not offered
    another call.
    """
    asked = max((n for n, m in enumerate(messages) if m.role == "user"), default=None)
    request = "" if asked is None else messages[asked].text
    results = [m.text for m in messages[asked or 0 :] if m.role in RESULTS]
    if messages[-1].role in RESULTS and not choice.required:
        content = render("tiny_results.jinja", request=request, results=results)
        return TinyTurn([{"role": "user", "content": content}], None)
    # What a result says may be what the next call needs.
    source = "\n".join([request, *results])
    offered = shortlist(toolset.tools, request)
    examples = render(
        "tiny.jinja", tools=offered.tools, evident=offered.evident, choice=str(choice)
    )
    try:
        grammar = gbnf(
            offered.tools,
            required=choice.required,
            only=choice.name,
            parallel=not choice.one_at_a_time,
            source=source,
        )
    except UnusableGrammar:
        grammar = None
    return TinyTurn(few_shot(examples, transcript(messages, toolset, passages)), grammar)


def opening_messages() -> list[ModelMessage]:
    """The turns with which every prompt for such a model begins."""
    return few_shot(render("tiny.jinja", tools=(), evident=False, choice="auto"), [])[:-1]


def few_shot(examples: str, messages: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """The turns of a rendered ``tiny.jinja``, then the conversation `told`.

    The last turn, which offers the functions, goes in front of the last user message; the
    system message that opens the conversation goes behind the first turn. No client can open a turn:
    tools are one line each and begin with a Python name.
    """
    _, *parts = _TURN.split(examples)
    turns: list[ModelMessage] = [
        {"role": role, "content": text.strip("\n")}
        for role, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    offer = turns.pop()["content"]
    system = [str(m["content"]) for m in messages[:1] if m["role"] == "system"]
    turns[0]["content"] = "\n\n".join([turns[0]["content"], *system])
    rest = [dict(m) for m in messages[len(system) :]]
    request = rest.pop()["content"] if rest and rest[-1]["role"] == "user" else ""
    return [*turns, *rest, {"role": "user", "content": _behind(offer, request)}]


def _behind(offer: str, request: Any) -> Any:
    if isinstance(request, str):
        return f"{offer}\n\n{request}"
    return [{"type": "text", "text": f"{offer}\n\n"}, *request]
