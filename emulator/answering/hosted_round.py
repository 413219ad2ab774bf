"""One round of an answer with hosted calls, and its messages in the history of the next round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.conversation.answer_request import AnswerRequest
from emulator.core import json_codec
from emulator.core.events import (
    AnswerEvent,
    CodeComplete,
    CodeFinished,
    CodeStarted,
    ContentDelta,
    Finish,
    ModelViewReport,
    ProgramFinished,
    ProgramStarted,
    ReasoningDelta,
    RefusalDelta,
    ToolCall,
    Usage,
)
from emulator.core.protocol import HistoryCall, HistoryProgram, Message
from emulator.history import ModelView
from emulator.hosted.hosted_tool import HostedResult
from emulator.rendering.prompt import cell_history


@dataclass
class Round:
    """The replies of the model up to its next calls, or one run of a program or cell.

    All replies but the last are cells that make no calls.
    """

    cells: list[Message] = field(default_factory=list)
    """These cells, with the words before each, and their outputs."""
    words: list[str] = field(default_factory=list)
    cell_words: int = 0
    """The number of the ``words`` that are before the last of these cells."""
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    run_here: list[str] = field(default_factory=list)
    """The ids of the calls whose results are known when the round ends."""
    waits_for_approval: bool = False
    finish: Finish = field(default_factory=lambda: Finish("stop", Usage()))
    program: HistoryProgram | None = None
    """The program that the round starts, if the client sees it."""
    code: str | None = None
    """The cell that runs. None if a waiting cell resumes, whose calls the history has."""
    cell_output: str = ""
    cell_failed: bool = False
    ended: list[ProgramFinished] = field(default_factory=list)
    model_view: ModelView | None = None

    @property
    def sent(self) -> list[str]:
        """The ids of the calls that end the answer: the client's, and those that it must approve."""
        return [call.id for call in self.calls if call.id not in self.run_here]

    def note(self, event: AnswerEvent) -> None:
        """Note what the history of the next round must have."""
        match event:
            case ToolCall():
                self.calls.append(event)
            case ProgramStarted(key, code, fingerprint):
                self.program = HistoryProgram(id=key, code=code, fingerprint=fingerprint)
            case ProgramFinished():
                self.ended.append(event)
            case CodeStarted(resumes=earlier):
                self.code = None if earlier else ""
            case CodeComplete(code) if self.code is not None:
                self.code = code
            case CodeFinished(status, text=text) if self.code and status != "incomplete":
                self.cell_output, self.cell_failed = text, status == "failed"
            case ModelViewReport(view, of_cell=True, last=last):
                if self.code:  # otherwise an empty cell, or one that resumed
                    self._add_cell(self.code, view, last=last)
            case ModelViewReport(view):
                self.model_view = view
            case ContentDelta(text) | RefusalDelta(text):
                self.words.append(text)
            case ReasoningDelta(text):
                self.reasoning.append(text)

    def _add_cell(self, code: str, view: ModelView, *, last: bool) -> None:
        words = "".join(self.words[self.cell_words :])
        cell, output = cell_history(
            code, self.cell_output, failed=self.cell_failed, words=words, last=last
        )
        self.cells += [cell.model_copy(update={"model_view": view}), output]
        self.cell_words = len(self.words)

    @property
    def answer(self) -> Message:
        """The last reply in the history."""
        words = "".join(self.words[self.cell_words :])
        answer = assistant_message(words, self.calls, "".join(self.reasoning))
        changes = {"program": self.program, "model_view": self.model_view}
        return answer.model_copy(update={name: one for name, one in changes.items() if one})

    def messages(self, results: Mapping[str, HostedResult]) -> list[Message]:
        """The round in the history."""
        results_here = (result_message(key, results[key]) for key in self.run_here)
        return [*self.cells, self.answer, *results_here]


def visible_messages(
    request: AnswerRequest, messages: Sequence[Message], words: str, sent: Sequence[str]
) -> list[Message]:
    """What the client's history will have of an answer whose history is ``messages``.

    The client gets ``words`` and the calls with the ids ``sent``, and perhaps hosted calls and cells.
    """
    if not request.shows_hosted:
        answer = next(one for one in reversed(messages) if one.role == "assistant")
        own = [call for call in answer.tool_calls or () if call.id in sent]
        return [answer.model_copy(update={"content": words, "tool_calls": own or None})]
    visible_ids = {
        call.id
        for one in messages
        for call in one.tool_calls or ()
        if (tool := request.hosted.find(_name(call))) is None or tool.is_sent_back
    }
    visible = []
    for one in messages:
        if one.role == "tool":
            visible += [one] if one.tool_call_id in visible_ids else []
        elif calls := [call for call in one.tool_calls or () if call.id in visible_ids]:
            visible.append(one.model_copy(update={"tool_calls": calls}))
        elif one.text or not one.tool_calls:
            visible.append(one.model_copy(update={"tool_calls": None}))
    return visible


def _name(call: HistoryCall) -> str:
    return call.as_function.name if call.as_function else ""


def assistant_message(words: str, calls: Sequence[ToolCall], reasoning: str = "") -> Message:
    """The model's reply, as a client's history has it."""
    fields: dict[str, Any] = {"role": "assistant", "content": words}
    if calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": _function(call),
                "caller": call.caller or None,
            }
            for call in calls
        ]
    if reasoning:  # native models read it; DeepSeek refuses its calls without it
        fields["reasoning_content"] = reasoning
    return Message.model_validate(fields)


def _function(call: ToolCall) -> dict[str, str]:
    return {"name": call.name, "arguments": json_codec.dumps(call.arguments).decode()}


def result_message(call: str, result: HostedResult) -> Message:
    return Message(role="tool", tool_call_id=call, content=result.content, is_error=result.is_error)
