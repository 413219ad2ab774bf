"""The state of one answer between its turns with the model.

A turn ends in one of three ways (`verdicts`):

* `FinalReply`: the answer is complete;
* `CellResult`: `add_cell_result` appends the cell and its output; the repair budget starts again;
* `UnusableReply`: `add_repair` appends the reply and a request for a better one, and takes one from the
  budget.

The budget is the setting `repair_attempts`, counted in `attempt`. Whatever makes the proxy ask again
(diagnostics, a missing call, a repeated call, the question about a block, a truncated block) takes from it.
When it is used up, or the model writes the same reply twice, a repeated call is sent, else the text of the
*standing* reply is the answer: the first one, or the one that the model was asked about. Only a missing
required call, a missing form and nothing at all are errors. The messages only grow: each prompt starts with
the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from emulator.answering.ways.way import PYTHON, Way
from emulator.conversation.call_policy import CallPolicy
from emulator.core.errors import ModelFailed
from emulator.core.events import Usage
from emulator.interpreter.interpreter_session import InterpreterSession
from emulator.programs.saved import SavedProgram
from emulator.reading.diagnostics import render
from emulator.rendering.prompt import cell_messages
from emulator.rendering.transcript import ModelMessage
from emulator.reply.draft import Draft
from emulator.reply.question import Question
from emulator.reply.quotations import Quotations
from emulator.reply.reply_reader import ReplyReader
from emulator.reply.verdicts import CellResult, Fault, UnusableReply
from emulator.settings.settings import Settings
from emulator.upstream.failures import quote
from emulator.upstream.interface import MAX_REPLY_CHARS
from emulator.upstream.usage_counter import UsageCounter


@dataclass
class TurnState:
    """What earlier turns leave for the next one."""

    messages: list[ModelMessage]
    fields: dict[str, Any]
    call_policy: CallPolicy
    session: InterpreterSession | None
    """None without an interpreter, and when no more cells may run."""
    quotations: Quotations
    """Texts of other authors in the history. The model is asked before a call that it copied from them
    runs."""
    way: Way = PYTHON
    """How the replies are read."""
    uses_label: bool = False
    """The model has labelled a block as the prompt says."""
    counter: UsageCounter = field(default_factory=UsageCounter)
    attempt: int = 0
    """Repairs so far."""
    repeated_call: Draft | None = None
    """A valid call that repeats an earlier one. The model was asked about it; it is sent if no better reply
    comes."""
    standing: ReplyReader | None = None
    """The reply whose text is the answer if no better one comes."""
    question: Question | None = None
    """What the model was asked about that reply: words do not replace it."""
    answered: Question | None = None
    """The question that the model has answered with RUN, if the block cannot run."""
    last_text: str | None = None
    """The last unusable reply."""
    unfinished_block: str = ""
    """The code block in which the last reply was truncated; the next reply continues it."""
    follows_words: bool = False
    """That reply had more than the block."""
    sent: str = ""
    """The prose that the client has received."""
    repair_messages: list[ModelMessage] = field(default_factory=list)
    """Each unusable reply since the last cell, followed by the message that asked for a better one."""
    new_files: list[str] = field(default_factory=list)
    """Those that the prompt lists; none after a cell."""
    program: SavedProgram | None = None
    """The program that waits for results when the answer ends."""
    cells: list[str] = field(default_factory=list)
    failed_cells: int = 0
    """Consecutive cells that failed."""
    token_limits: dict[str, int] = field(default_factory=dict)
    """The client's original token limits, once the fields hold what remains of them."""

    def add_cell_result(self, reply: ReplyReader, result: CellResult) -> bool:
        """Append a cell and its output; the next turn continues from there. Returns True if no other cell may
        run."""
        assert self.session is not None
        code = reply.draft.code
        self.failed_cells = self.failed_cells + 1 if result.failed else 0
        # A model that writes the same cell again makes no progress.
        last = code in self.cells or self.failed_cells > self.session.max_failures
        self.cells.append(code)
        last = last or len(self.cells) >= self.session.max_cells
        self.messages += cell_messages(
            self.sent, code, result.output, failed=result.failed, last=last
        )
        self.call_policy = replace(self.call_policy, required=False, name=None)
        self.attempt, self.sent, self.repair_messages, self.new_files = 0, "", [], []
        self.standing, self.question, self.last_text = None, None, None
        if last:
            self.session = None
        return last

    def add_repair(self, reply: ReplyReader, written: str, verdict: UnusableReply) -> None:
        """Append an unusable reply, as it was ``written``, and the request for a better one."""
        self.attempt += 1
        self.last_text = written
        # The faults of a block for which the model said RUN: the word is no answer to them.
        self.answered = self.question if reply is self.standing else None
        self.question = verdict.facts.get("question")
        if self.question is not None or self.standing is None:
            self.standing = reply
        self.sent = self.sent or reply.prose.sent
        self.unfinished_block = reply.draft.truncated_block
        self.follows_words = reply.has_words
        if reply.draft.program.has_repeated_calls:
            self.repeated_call = reply.draft
        exchange = self.way.repair(written, kind=verdict.kind, **_facts(verdict))
        self.messages += exchange
        self.repair_messages += exchange

    def can_continue(self, reply: ReplyReader, settings: Settings) -> bool:
        """Return True if the model may continue a truncated reply.

        Three limits apply: repairs, the length of a reply, and the client's own token limit, of which the
        next turn gets the rest.
        """
        if self.attempt >= settings.repair_attempts:
            return False
        if max(reply.size, len(reply.draft.truncated_block)) > MAX_REPLY_CHARS:
            return False
        for name in _TOKEN_LIMITS & self.fields.keys():
            limit = self.token_limits.setdefault(name, self.fields[name])
            remaining = limit - self.counter.completion_tokens
            if remaining <= 0:
                return False
            self.fields[name] = remaining
        return True

    @property
    def usage(self) -> Usage:
        """The usage to report to the client, if the answer ends now."""
        return self.counter.usage(self.messages)

    def can_ask(self, written: str, settings: Settings) -> bool:
        """Return True if the model may be asked for a better reply."""
        return self.attempt < settings.repair_attempts and written != self.last_text

    def model_failed(self, verdict: UnusableReply, written: str) -> ModelFailed:
        """The error for an answer whose budget is used up."""
        return model_failed(verdict, _facts(verdict)["diagnostics"], self.attempt, written)


def model_failed(verdict: UnusableReply, details: str, attempts: int, written: str) -> ModelFailed:
    """``written`` is the last reply, of which the error quotes the beginning."""
    plural = "" if attempts == 1 else "s"
    message = f"The model {_FAILURES[verdict.kind]} after {attempts} repair attempt{plural}."
    quoted = f"It wrote: {quote(written.strip())}" if written.strip() else ""
    parts = filter(None, (message, details.rstrip(), quoted))
    return ModelFailed("\n".join(parts), code=f"model_{verdict.kind}")


_TOKEN_LIMITS = frozenset({"max_tokens", "max_completion_tokens"})
_FAILURES: dict[Fault, str] = {
    "invalid": "still wrote code that cannot be used",
    "required": "did not call a function, although tool_choice requires it,",
    "empty": "still gave an empty answer",
    "output": "still wrote code that calls no function",
    "cut": "was still cut off in the middle of a call",
    "asked": "did not say whether its block, which tool_choice requires, should run",
    "format": "gave no answer that matches response_format",
}


def _facts(verdict: UnusableReply) -> dict[str, Any]:
    facts = {"diagnostics": "", "output": "", "names": [], "question": None, **verdict.facts}
    if not isinstance(facts["diagnostics"], str):
        facts["diagnostics"] = render(facts["diagnostics"])
    return facts
