"""A request and its toolset -> the messages that the model reads.

Instructions, repairs and other texts stand in prompts/*.jinja; remarks of one line on files, cells and items
of the history stand where these are read (`attachments`, `execution`, `cell_draft`, `responses.history`).

The history in them is `transcript.py`'s. Knows nothing of HTTP or engines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from emulator.answering.call_policy import CallPolicy
from emulator.answering.custom_template import render_custom
from emulator.answering.foreign_syntax import foreign_call_syntax
from emulator.answering.profiles import Profile
from emulator.answering.python_calls import example
from emulator.answering.transcript import (
    ModelMessage,
    TranscriptSpan,
    joined,
    merged,
    render,
    transcript,
)
from emulator.protocol import Message
from emulator.tools.toolset import Toolset

# What programs can use in the most capable engine.
_PYTHON = {
    "kernel": "The standard library is available; files and the network are not.",
    "monty": "Only a subset of Python runs: no inheritance, no files, no network, and from the standard"
    " library only collections, datetime, functools, itertools, json, math and random.",
}


@dataclass(frozen=True)
class SandboxDescription:
    """What a model is to know of the interpreter's sandbox."""

    libraries: Mapping[str, str]
    """Distributions that can be imported -> their versions."""
    files: Sequence[str]
    """Paths below /mnt/data."""


def instruct(
    messages: Sequence[Message],
    toolset: Toolset,
    choice: CallPolicy,
    profile: Profile,
    answer_format: str = "",
    *,
    passages: Sequence[TranscriptSpan] = (),
    habit: str = "python",
    engines: Collection[str] = ("monty", "kernel"),
    sandbox: SandboxDescription | None = None,
) -> list[ModelMessage]:
    """The messages for a turn in which the model may call ``toolset``'s functions.

    ``answer_format`` is what to tell of the form of a final answer; ``passages`` what the model saw of
    the history; ``habit`` the dialect in which the model has been calling; ``engines`` the names of those
    that run programs; ``sandbox`` where its code runs, if there is an interpreter.
    """
    instructions = answer_format
    if sandbox is not None:
        instructions = render(
            "interpreter.jinja",
            stubs=toolset.stubs if toolset.tools else "",
            choice=str(choice),
            libraries=", ".join(f"{name} {v}" for name, v in sandbox.libraries.items()),
            files=sandbox.files,
            answer_format=answer_format,
            taught=foreign_call_syntax(messages),
        )
    elif toolset.tools:
        say = partial(render_custom, profile.template) if profile.template else _tools_prompt
        instructions = say(
            stubs=toolset.stubs,
            example=example(toolset, programs=choice.programs),
            choice=str(choice),
            one_at_a_time=choice.one_at_a_time,
            programs=choice.programs,
            python=_PYTHON["kernel" if "kernel" in engines else "monty"],
            taught=foreign_call_syntax(messages),
            answer_format=answer_format,
            habit=habit,
        )
    told = transcript(messages, toolset, passages)
    if profile.system:
        return _behind_system(instructions, told)
    return _without_system(instructions, told)


@lru_cache(maxsize=32)  # clients offer the same tools with every request
def _tools_prompt(**values: str | bool) -> str:
    return render("tools.jinja", **values)


def repair_messages(reply: str, **facts: Any) -> list[ModelMessage]:
    """What to append when a reply was no use: the reply itself, and what is wrong with it."""
    return [
        {"role": "assistant", "content": reply or "..."},
        {"role": "user", "content": render("repair.jinja", **facts)},
    ]


def cell_messages(
    words: str, code: str, output: str, *, failed: bool, last: bool
) -> list[ModelMessage]:
    """A cell that was run, and what came of it; ``last`` if no other may be run."""
    block = render("calls.jinja", text=words, source=code.rstrip("\n"))
    said = [
        render("cell_output.jinja", output=output, files=(), failed=failed),
        render("after_cell.jinja", failed=failed, last=last),
    ]
    return [
        {"role": "assistant", "content": block},
        {"role": "user", "content": "\n\n".join(said)},
    ]


def _behind_system(instructions: str, told: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Our instructions behind a system message of the client's that opens the conversation."""
    opening = [m["content"] for m in told[:1] if m["role"] == "system"]
    content = joined(opening[0], instructions) if opening else instructions
    return [{"role": "system", "content": content}, *told[len(opening) :]]


def _without_system(instructions: str, told: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The same in the first user message; later system messages are the user's words where they stand."""
    opening = [m["content"] for m in told[:1] if m["role"] == "system"]
    rest = [{**m, "role": "user"} if m["role"] == "system" else m for m in told[len(opening) :]]
    head = [{"role": "user", "content": content} for content in (*opening, instructions)]
    return merged([*head, *rest])
