"""One round of an answer with hosted calls, and its messages in the history of the next round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from emulator.answering.hosted_history import assistant_message, result_message
from emulator.answering.prompt import cell_history
from emulator.events import (
    AnswerEvent,
    CodeComplete,
    CodeFinished,
    CodeStarted,
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
            case CodeStarted(resumes=earlier):
                self.code = None if earlier else ""
            case CodeComplete(code) if self.code is not None:
                self.code = code
            case CodeFinished(status, text=text) if self.code and status != "incomplete":
                words, failed = "".join(self.words[self.cell_words :]), status == "failed"
                self.cells += cell_history(self.code, text, failed=failed, words=words)
                self.cell_words = len(self.words)
            case ContentDelta(text):
                self.words.append(text)
            case ReasoningDelta(text):
                self.reasoning.append(text)

    def messages(self, results: Mapping[str, HostedResult]) -> list[Message]:
        """The round in the history."""
        words = "".join(self.words[self.cell_words :])
        answer = assistant_message(words, self.calls, "".join(self.reasoning))
        answer = answer.model_copy(update={"program": self.program} if self.program else {})
        results_here = (result_message(key, results[key]) for key in self.run_here)
        return [*self.cells, answer, *results_here]
