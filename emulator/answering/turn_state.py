"""The course of an answer over its turns with the model: what was asked, repaired and run so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from emulator.answering.call_policy import CallPolicy
from emulator.answering.interpreter_session import InterpreterSession
from emulator.answering.prompt import cell_messages, repair_messages
from emulator.answering.quotations import Quotations
from emulator.answering.reply_reader import CodeDraft, ReplyReader
from emulator.answering.transcript import ModelMessage
from emulator.answering.usage_counter import UsageCounter
from emulator.answering.verdicts import CellResult, UnusableReply
from emulator.errors import ModelFailed
from emulator.reading.diagnostics import render
from emulator.settings import Settings


@dataclass
class TurnState:
    """How far an answer has come over its turns."""

    messages: list[ModelMessage]
    fields: dict[str, Any]
    call_policy: CallPolicy
    session: InterpreterSession | None
    """None also when no more code may be run."""
    attempt: int = 0
    """Repairs so far."""
    promised: bool = False
    """The first reply was prose that promises a call: an answer, if none is called."""
    repeated_call: CodeDraft | None = None
    """A valid call that was asked about, since it goes round in a circle: what leaves if all else fails."""
    sent: str = ""
    cells: list[str] = field(default_factory=list)
    repair_messages: list[ModelMessage] = field(default_factory=list)
    """The replies that were of no use, and what was said to them."""
    failures: int = 0
    """Cells that failed in a row."""
    unfinished_block: str = ""
    """The block that the last reply was cut off in: the next one is to go on with it."""
    quotations: Quotations | None = None
    """What stands in the messages that are not the assistant's: it is asked about before it is called."""
    quotation_questioned: bool = False
    """The model was asked whether it meant a quotation; what it had said stands, unless it calls."""
    limits: dict[str, int] = field(default_factory=dict)
    """The client's own limits on the tokens of the answer, where a part of them is used up."""

    def add_cell_result(self, reply: ReplyReader, verdict: CellResult) -> None:
        """A cell was run: the next turn goes on with its output."""
        assert self.session is not None
        code = reply.draft.code
        self.failures = self.failures + 1 if verdict.failed else 0
        # Whoever writes the same cell again goes round in a circle.
        last = code in self.cells or self.failures > self.session.max_failures
        self.cells.append(code)
        last = last or len(self.cells) >= self.session.max_cells
        self.messages += cell_messages(
            reply.prose.sent, code, verdict.output, failed=verdict.failed, last=last
        )
        self.call_policy = replace(self.call_policy, required=False, name=None)
        self.attempt, self.promised, self.sent = 0, False, ""
        if last:
            self.session = None

    def add_repair(self, reply: ReplyReader, verdict: UnusableReply) -> None:
        """The reply was of no use: the next turn asks for what it should have been."""
        self.attempt += 1
        self.promised = self.promised or verdict.kind == "promised"
        self.unfinished_block = reply.draft.truncated_block
        if reply.draft.has_repeated_calls:
            self.repeated_call = reply.draft
        exchange = repair_messages(reply.text, kind=verdict.kind, **_facts(verdict))
        self.messages += exchange
        self.repair_messages += exchange

    def can_continue(self, reply: ReplyReader, meter: UsageCounter, settings: Settings) -> bool:
        """Whether the model may be asked to go on with a reply that was cut off; takes from its budget.

        The budget is that of repairs, the longest reply, and the client's own limit on tokens.
        """
        if self.attempt >= settings.repair_attempts:
            return False
        if max(reply.size, len(reply.draft.truncated_block)) > settings.max_reply_chars:
            return False
        for limit in _TOKEN_LIMITS & self.fields.keys():
            left = self.limits.setdefault(limit, self.fields[limit]) - meter.completion
            if left <= 0:
                return False
            self.fields[limit] = left
        return True

    def confirm_quotation(
        self, reply: ReplyReader, verdict: UnusableReply, settings: Settings
    ) -> bool:
        """Whether the model may be asked if it means what it has quoted; once asked, that is called."""
        if self.attempt >= settings.repair_attempts:
            if self.call_policy.required:
                raise self.model_failed(verdict)
            return False
        if self.quotations is not None:
            for text in verdict.facts["quoted"]:
                self.quotations.confirm(text)
        self.quotation_questioned = True
        self.sent = self.sent or reply.prose.sent
        return True

    def model_failed(self, verdict: UnusableReply) -> ModelFailed:
        """The error to raise when there is no next turn."""
        reason = REASONS[verdict.kind]
        details = _facts(verdict)["diagnostics"]
        message = f"The model {reason}, also after {self.attempt} repair attempts."
        return ModelFailed(f"{message}\n{details}".rstrip(), code=f"model_{verdict.kind}")


_TOKEN_LIMITS = frozenset({"max_tokens", "max_completion_tokens"})
REASONS = {
    "invalid": "wrote code that cannot be used",
    "required": "did not call a function although tool_choice requires it",
    "empty": "gave an empty answer",
    "output": "wrote code that calls no function",
    "promised": "promised a call and made none",
    "cut": "was cut off in the middle of a call",
    "quoted": "only quoted a call that it must make",
    "format": "did not answer in the form that response_format asks for",
}


def _facts(verdict: UnusableReply) -> dict[str, Any]:
    facts = {
        "diagnostics": "",
        "output": "",
        "names": [],
        **verdict.facts,
    }
    if not isinstance(facts["diagnostics"], str):
        facts["diagnostics"] = render(facts["diagnostics"])
    return facts
