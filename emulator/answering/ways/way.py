"""The interface of a way to ask a model, and the ordinary way: Python in labelled blocks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from emulator.conversation.answer_request import AnswerRequest
from emulator.conversation.profiles import Profile
from emulator.programs.ended import EndedProgram
from emulator.reading.reply_splitter import EventSplitter, ReplySplitter
from emulator.rendering.custom_template import render_custom
from emulator.rendering.model_template import NoTools, tools_prompt
from emulator.rendering.prompt import instruct, repair_messages, tools_instructions
from emulator.rendering.transcript import ModelMessage, WriteMessage, joined, render
from emulator.reply.draft_block import DraftBlock
from emulator.tools.toolset import Toolset

if TYPE_CHECKING:
    from emulator.interpreter.interpreter_session import InterpreterSession


@dataclass(frozen=True, kw_only=True)
class PromptInputs:
    """What a prompt is made of."""

    request: AnswerRequest
    habit: str
    """The dialect of the model's calls."""
    ended: EndedProgram | None = None
    """A program that just ended."""
    session: InterpreterSession | None = None
    new_files: Sequence[str] = ()
    """Files of the interpreter of which the model does not know."""

    @property
    def format_text(self) -> str:
        """The instructions for the form of a final answer."""
        form = self.request.answer_format
        return render("format.jinja", schema=form.schema) if form else ""


class Prompt(NamedTuple):
    messages: list[ModelMessage]
    fields: dict[str, Any]
    """The other fields of the upstream's request."""
    reply: Way
    """How its reply is read."""


@dataclass(frozen=True)
class Way:
    any_call_acts: bool = False
    """Every valid call in a block acts: nothing teaches the model how to label what runs."""

    def prompt(self, inputs: PromptInputs, fields: dict[str, Any]) -> Prompt:
        """The prompt that ends in the last message of ``inputs``; ``fields`` are the client's."""
        request, session = inputs.request, inputs.session
        messages = instruct(
            request.chat.messages,
            request.toolset,
            request.call_policy,
            request.profile,
            inputs.format_text,
            write_instructions=self.instructions,
            write_message=self.message,
            ended=inputs.ended,
            habit=inputs.habit,
            libraries=session.libraries if session else None,
            deferred=request.deferred,
            new_files=inputs.new_files,
        )
        return Prompt(messages, fields, self)

    def instructions(
        self, toolset: Toolset, profile: Profile, listing: str, **values: str | bool
    ) -> str:
        """How to call the ``toolset``; ``listing`` names functions that it lacks."""
        if profile.template:
            return render_custom(profile.template, **values)
        if profile.chat_template:
            with suppress(NoTools):  # it was checked at start, but not with these tools
                tools = joined(tools_prompt(profile.chat_template, toolset), listing)
                return render("model_tools.jinja", tools=tools, **values)
        return tools_instructions("tools.jinja", **values)

    @property
    def message(self) -> WriteMessage | None:
        """Writes an earlier message of the model as the model did; None: calls as Python."""
        return None

    def splitter(self, splitter: ReplySplitter) -> EventSplitter:
        """What splits a reply."""
        return splitter

    def shown(self, block: DraftBlock) -> str:
        """A block that is not run, as the user reads it."""
        return block.as_shown

    def repair(self, reply: str, **facts: Any) -> list[ModelMessage]:
        """An unusable reply and the request for a better one (prompts/repair.jinja)."""
        return repair_messages(reply, **facts)


PYTHON = Way()
