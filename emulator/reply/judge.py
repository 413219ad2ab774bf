"""Decide what a block of a reply is for. One table about its syntax and its code; no words are judged.

The first row that holds decides:

| row | outcome |
|---|---|
| it is labelled tool_code, or written in a model's own call syntax outside a fence | runs |
| it calls no offered function as offered: a session, an own function of that name, only definitions | shown |
| tool_choice requires a call | runs |
| the model's profile says that any call acts | runs |
| the model was asked about this block, and wrote it again | runs |
| the reply is nothing but such blocks, and the model has not used the label (no shell command) | runs |
| its functions only read, and the model has not used the label | runs |
| the model was asked about another block | shown |
| none of these | asked |

That a reply has no words is known at its end only: until then such a block is `OPEN`. A cell of the
code interpreter that calls no function which acts has rows of its own (`decide_cell`). "Asked" is one
question for each answer: "RUN", the block again, or a labelled block runs it (`turn_state`).

Knows nothing of prompts, and of quotations only what a block says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from emulator.programs import validate
from emulator.programs.program import Program
from emulator.reading.diagnostics import Diagnostic
from emulator.reading.openings import names_call
from emulator.reading.tool_names import cached_tool_names
from emulator.tools.effects import Effect
from emulator.tools.toolset import Toolset

if TYPE_CHECKING:
    from emulator.reply.draft_block import DraftBlock


class BlockOutcome(Enum):
    """What becomes of a block."""

    RUNS = auto()
    SHOWN = auto()
    """It is content, as the model wrote it."""
    ASKED = auto()
    """The model is asked once whether it should run."""
    OPEN = auto()
    """The rest of the reply decides."""


class Place(Enum):
    """What is around a block in its reply."""

    ALONE = auto()
    """No words."""
    LAST = auto()
    """Words or blocks before it."""
    FOLLOWED = auto()
    """Words or a block after it."""


class Decision(NamedTuple):
    """An outcome, and the row of the table that led to it, for the inspector."""

    outcome: BlockOutcome
    row: str


LABELLED = Decision(BlockOutcome.RUNS, "it is labelled tool_code")
OWN_SYNTAX = Decision(BlockOutcome.RUNS, "it is the model's own call syntax")
SESSION = Decision(BlockOutcome.SHOWN, "it shows an interactive session")
SHADOWS = Decision(BlockOutcome.SHOWN, "it defines a function with a tool's name")
DEFINES = Decision(BlockOutcome.SHOWN, "it defines functions and calls none")
DEFINED_ABOVE = Decision(BlockOutcome.SHOWN, "shown code defines its functions")
REQUIRED = Decision(BlockOutcome.RUNS, "tool_choice requires a call")
ANY_ACTS = Decision(BlockOutcome.RUNS, "any call of this model acts")
REPEATED = Decision(BlockOutcome.RUNS, "the model was asked about it, and wrote it again")
ALONE = Decision(BlockOutcome.RUNS, "the reply is nothing but code")
PERHAPS_ALONE = Decision(BlockOutcome.OPEN, "the reply may be nothing but code")
READS = Decision(BlockOutcome.RUNS, "it only reads")
ASKED_BEFORE = Decision(BlockOutcome.SHOWN, "the model was asked, and did not say RUN")
ASKED = Decision(BlockOutcome.ASKED, "it is not labelled tool_code")
CELL = Decision(BlockOutcome.RUNS, "it is Python for the code interpreter")
PERHAPS_LAST = Decision(BlockOutcome.OPEN, "words may follow it")
NOT_LAST = Decision(BlockOutcome.SHOWN, "it is not labelled tool_code, and words follow it")


@dataclass
class Judge:
    """Judges the blocks of one reply, in order."""

    toolset: Toolset
    required: bool = False
    any_acts: bool = False
    """The profile says that every valid call in a block acts."""
    uses_label: bool = False
    """The model has used the label in this conversation."""
    was_asked: bool = False
    """The model was asked about a block, and this reply is its answer."""
    is_asked: Callable[[DraftBlock], bool] = field(default=lambda _: False)
    """Return True if the model was asked about this block."""
    has_asked: bool = False
    """The model is asked about an earlier block of the reply: what follows belongs to the question."""
    _defined: set[str] = field(default_factory=set)

    def acts(self, tools: Collection[str]) -> bool:
        """Return True if a tool may change something."""
        found = (self.toolset.find(name) for name in tools)
        return any(tool is None or tool.effect is not Effect.READS for tool in found)

    def decide(self, block: DraftBlock, place: Place | None = None) -> Decision:
        """Judge a block; ``place`` is None while the reply goes on."""
        if block.is_trusted:
            return LABELLED if block.is_labelled else OWN_SYNTAX
        if shown := self._calls_nothing(block):
            return shown
        if self.required:
            return REQUIRED
        if self.any_acts:
            return ANY_ACTS
        if self.was_asked and self.is_asked(block):
            return REPEATED
        if not self.uses_label:
            if not (self.acts(block.tools) or self.has_asked):
                return READS
            if block.may_stand_alone and place in (None, Place.ALONE):
                return ALONE if place else PERHAPS_ALONE
        return ASKED_BEFORE if self.was_asked else ASKED

    def decides_early(self, block: DraftBlock) -> bool:
        """Return True if an unfinished block runs whatever follows in it: what only reads so far may act."""
        decision = self.decide(block)
        return decision.outcome is BlockOutcome.RUNS and (
            decision is not READS or not self._offers_acts
        )

    def decide_cell(self, block: DraftBlock, place: Place | None = None) -> Decision:
        """Judge Python for the code interpreter."""
        if self.acts(block.tools) or block.is_trusted or self.required:
            return self.decide(block, place)
        if not self.uses_label or self.any_acts:
            return CELL
        if self.was_asked:
            return REPEATED if self.is_asked(block) else ASKED_BEFORE
        if place is None:
            return PERHAPS_LAST
        return NOT_LAST if place is Place.FOLLOWED else ASKED

    def decides_cells_early(self, block: DraftBlock) -> bool:
        """Return True if Python for the code interpreter runs whatever it calls."""
        runs = self.required or self.any_acts or not (self.uses_label or self._offers_acts)
        return block.is_trusted or runs

    @property
    def _offers_acts(self) -> bool:
        return self.acts([tool.python_name for tool in self.toolset.tools])

    def unknown_calls(self, block: DraftBlock) -> list[Diagnostic]:
        """Diagnostics for calls of unknown tools, if the block is meant as a call and not as
        documentation."""
        unknown = validate.unknown_calls(Program(tuple(block.statements)), self.toolset)
        own = block.own_names
        is_script = own is not None and (own.has_definitions or own.is_script)
        if block.dialect == "json":
            is_attempt = names_call(block.inner, cached_tool_names(self.toolset.names))
        else:
            is_attempt = block.dialect != "python" or (
                any(one.near for one in unknown) and not (is_script or block.is_session)
            )
        return [one.diagnostic for one in unknown] if self.required or is_attempt else []

    def remember_shown(self, block: DraftBlock) -> None:
        """Later blocks may use what a shown block defines."""
        if block.own_names is not None:
            self._defined |= block.own_names.defined

    def _calls_nothing(self, block: DraftBlock) -> Decision | None:
        own = block.own_names
        if block.is_session:
            return SESSION
        if own is not None and own.shadows_tool:
            return SHADOWS
        if own is not None and own.only_defines:
            return DEFINES
        return None if self._defined.isdisjoint(block.tools) else DEFINED_ABOVE
