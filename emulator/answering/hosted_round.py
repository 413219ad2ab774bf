"""One round of an answer with hosted calls, and its messages in the history of the next round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from emulator.answering.hosted_history import assistant_message, result_message
from emulator.events import (
    AnswerEvent,
    ContentDelta,
    Finish,
    ProgramFinished,
    ProgramStarted,
    ReasoningDelta,
    ToolCall,
    Usage,
)
from emulator.hosted.hosted_tool import HostedResult
from emulator.protocol import HistoryProgram, Message


@dataclass
class Round:
    """One reply of the model, or one run of a program or cell."""

    words: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    run_here: list[str] = field(default_factory=list)
    """The ids of the calls whose results are known when the round ends."""
    waits_for_approval: bool = False
    finish: Finish = field(default_factory=lambda: Finish("stop", Usage()))
    program: HistoryProgram | None = None
    """The program that the round starts, if the client sees it."""
    ended: list[ProgramFinished] = field(default_factory=list)

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
            case ContentDelta(text):
                self.words.append(text)
            case ReasoningDelta(text):
                self.reasoning.append(text)

    def messages(self, results: Mapping[str, HostedResult]) -> list[Message]:
        """The round in the history."""
        answer = assistant_message("".join(self.words), self.calls, "".join(self.reasoning))
        answer = answer.model_copy(update={"program": self.program} if self.program else {})
        return [answer, *(result_message(key, results[key]) for key in self.run_here)]
