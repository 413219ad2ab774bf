"""Build the messages that the model reads from a request and its toolset.

Instructions and repair requests are templates in prompts/. One-line remarks on files, cells and items of the
history are where these are read (`attachments`, `execution`, `reply_cell`, `responses.history`). `transcript`
renders the history. Knows nothing of HTTP or sandboxes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from emulator.conversation.call_policy import CallPolicy
from emulator.conversation.deferred_tools import DeferredTools
from emulator.conversation.profiles import Profile
from emulator.core.protocol import Message
from emulator.programs.ended import EndedProgram
from emulator.rendering.foreign_syntax import foreign_call_syntax
from emulator.rendering.program_transcript import model_history
from emulator.rendering.python_calls import example
from emulator.rendering.transcript import (
    ModelMessage,
    WriteMessage,
    joined,
    merged,
    render,
)
from emulator.tools.toolset import Toolset

_PYTHON = "Standard library only: no files or network."
"""What programs can use."""

WriteInstructions = Callable[..., str]
"""(toolset, profile, the list of functions that it lacks, the template's values) -> how to call these."""


def instruct(
    messages: Sequence[Message],
    toolset: Toolset,
    choice: CallPolicy,
    profile: Profile,
    answer_format: str = "",
    *,
    write_instructions: WriteInstructions,
    write_message: WriteMessage | None = None,
    ended: EndedProgram | None = None,
    habit: str = "python",
    libraries: Mapping[str, str] | None = None,
    deferred: DeferredTools | None = None,
    new_files: Sequence[str] = (),
) -> list[ModelMessage]:
    """The messages for a turn in which the model may call ``toolset``'s functions.

    ``answer_format`` are the instructions for the form of a final answer, ``ended`` is a
    program that just ended, ``habit`` the dialect of the model's calls. ``libraries`` are the distributions
    that cells can import, with their versions; None without a code interpreter.
    ``deferred`` tools are only listed, ``new_files`` are those of the interpreter of which the model does not
    know.
    """
    instructions = answer_format
    if deferred and toolset.tools:
        toolset = deferred.toolset
    shown = deferred.shown(toolset) if deferred else toolset
    stubs = deferred.stubs(toolset) if deferred and toolset.tools else toolset.stubs
    if libraries is not None:
        direct = toolset.subset(tool for tool in shown.tools if tool.is_direct_only)
        if direct.tools:
            others = toolset.subset(tool for tool in toolset.tools if not tool.is_direct_only)
            stubs = deferred.stubs(others) if deferred else others.stubs
        instructions = render(
            "interpreter.jinja",
            stubs=stubs,
            direct_stubs=direct.stubs,
            choice=str(choice),
            libraries=", ".join(f"{name} {v}" for name, v in libraries.items()),
            answer_format=answer_format,
            taught=foreign_call_syntax(messages),
        )
    elif toolset.tools:
        instructions = write_instructions(
            shown,
            profile,
            deferred.listing if deferred else "",
            stubs=stubs,
            example=example(
                shown if shown.tools else toolset.subset(toolset.tools[:1]),
                programs=choice.programs,
            ),
            several=len(shown.tools) > 1 or any(tool.arguments for tool in shown.tools),
            choice=str(choice),
            one_at_a_time=choice.one_at_a_time,
            programs=choice.programs,
            python=_PYTHON,
            taught=foreign_call_syntax(messages),
            answer_format=answer_format,
            habit=habit,
        )
    history = model_history(messages, toolset, ended, new_files, write_message)
    if profile.system:
        return _after_system(instructions, history)
    return _without_system(instructions, history)


@lru_cache(maxsize=32)  # clients offer the same tools with every request
def tools_instructions(template: str, **values: str | bool) -> str:
    return render(template, **values)


def repair_messages(reply: str, *, constrained: bool = False, **facts: Any) -> list[ModelMessage]:
    """An unusable reply and the request for a better one."""
    facts["constrained"] = constrained
    return [
        {"role": "assistant", "content": reply or "..."},
        {"role": "user", "content": render("repair.jinja", **facts)},
    ]


def cell_messages(
    words: str, code: str, output: str, *, failed: bool, last: bool
) -> list[ModelMessage]:
    """A cell and its output; ``last`` if no other cell may run."""
    block = render("calls.jinja", text=words, source=code.rstrip("\n"))
    parts = [
        render("cell_output.jinja", output=output, files=(), failed=failed),
        render("after_cell.jinja", failed=failed, last=last),
    ]
    return [
        {"role": "assistant", "content": block},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def cell_history(
    code: str, output: str, *, failed: bool, words: str = "", last: bool = False
) -> list[Message]:
    """A cell that ran earlier, and the words before it, as the model saw them then."""
    cell, shown_output = cell_messages(words, code, output, failed=failed, last=last)
    end = Message.model_validate(shown_output | {"is_output": True})
    return [Message.model_validate(cell), end]


def _after_system(instructions: str, history: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Append the instructions to the client's opening system message."""
    opening = [m["content"] for m in history[:1] if m["role"] == "system"]
    content = joined(opening[0], instructions) if opening else instructions
    return [{"role": "system", "content": content}, *history[len(opening) :]]


def _without_system(instructions: str, history: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Put both into the first user message; later system messages become user messages."""
    opening = [m["content"] for m in history[:1] if m["role"] == "system"]
    rest = [{**m, "role": "user"} if m["role"] == "system" else m for m in history[len(opening) :]]
    head = [{"role": "user", "content": content} for content in (*opening, instructions)]
    return merged([*head, *rest])


def introduced(summary: str) -> str:
    """The summary as a later prompt shows it."""
    return f"Summary of the conversation so far:\n\n{summary}"
