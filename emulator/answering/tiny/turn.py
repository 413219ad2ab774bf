"""A turn with a very small model: its prompt, and the schema that constrains its reply.

Such a model copies well and composes badly. So it sees examples first, then few functions directly before the
request; strings and numbers are copied from the request; and a result is presented as the answer, which the
model only has to say. Measured in docs/accuracy.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emulator.answering.call_policy import CallPolicy
from emulator.answering.constrained.schema import reply_schema
from emulator.answering.program_transcript import seen_history
from emulator.answering.tiny.shortlist import shortlist
from emulator.answering.transcript import ModelMessage, render
from emulator.programs.ended import EndedProgram
from emulator.protocol import Message
from emulator.tools.toolset import Toolset

DEFAULTS = {"temperature": 0, "max_tokens": 512}
"""Defaults for a request: sampling spoils copying, and prose may never end."""

RESULTS = ("tool", "function")

_TURN = re.compile(r"^=== (system|user|assistant)\n", re.MULTILINE)


@dataclass(frozen=True)
class TinyTurn:
    """What to send upstream."""

    messages: list[ModelMessage]
    schema: dict[str, Any] | None
    """None if prose is wanted, or nothing can be constrained."""


def tiny_turn(
    messages: Sequence[Message],
    toolset: Toolset,
    choice: CallPolicy,
    ended: EndedProgram | None = None,
    *,
    constrained: bool = True,
) -> TinyTurn:
    """The turn that follows ``messages``; its reply will be JSON if it can be ``constrained``.

    If results came last and no call is required, the model is only asked to say them. Otherwise it makes one
    call at most: with a list to fill it repeats the same call.
    """
    last_user = max((n for n, m in enumerate(messages) if m.role == "user"), default=None)
    request = "" if last_user is None else messages[last_user].text
    results = [m.text for m in messages[last_user or 0 :] if m.role in RESULTS]
    if messages[-1].role in RESULTS and not choice.required:
        content = render("tiny_results.jinja", request=request, results=results)
        return TinyTurn([{"role": "user", "content": content}], None)
    # The next call may need values from a result.
    source = "\n".join([request, *results])
    offered = shortlist(toolset.tools, request)
    policy = replace(choice, one_at_a_time=True)
    schema = reply_schema(offered.tools, policy, source=source) if constrained else None
    as_json = schema is not None
    examples = render(
        "tiny.jinja",
        tools=offered.tools,
        evident=offered.evident,
        choice=str(choice),
        constrained=as_json,
    )
    history = seen_history(messages, toolset, ended, constrained=as_json)
    return TinyTurn(few_shot(examples, history), schema)


def opening_messages(*, constrained: bool = True) -> list[ModelMessage]:
    """The turns at the start of every prompt for such a model."""
    values = {"tools": (), "evident": False, "choice": "auto", "constrained": constrained}
    return few_shot(render("tiny.jinja", **values), [])[:-1]


def few_shot(examples: str, messages: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """The turns of a rendered ``tiny.jinja``, followed by the conversation.

    The last turn, which offers the functions, is put before the last user message; an opening system message
    after the first turn. No client can open a turn: tools are one line each and start with a Python name.
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
    return [*turns, *rest, {"role": "user", "content": _prepend(offer, request)}]


def _prepend(offer: str, request: Any) -> Any:
    if isinstance(request, str):
        return f"{offer}\n\n{request}"
    return [{"type": "text", "text": f"{offer}\n\n"}, *request]
