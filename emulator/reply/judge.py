"""Decide what a block of a reply is for. One table about its syntax and its code; no words are judged.

The first row that holds decides:

| row | outcome |
|---|---|
| it calls nothing (a session, an own function, definitions, no call), and is not marked | shown |
| another author wrote a part of it | asked |
| it is marked: labelled tool_code, or in a model's own call syntax outside a fence | runs |
| tool_choice requires a call, or the model's profile says that any call acts | runs |
| the reply answers the question: it is nothing but the block that was asked about | runs; others are shown |
| the reply is nothing but such blocks, and the model has not used the label (no shell command) | runs |
| its functions declare that they only read, and the model has not used the label | runs |
| none of these | asked |

What runs without a mark must have no fault; otherwise it is asked about. That a reply has no words is known
at its end only: until then such a block is `OPEN`. A cell of the code interpreter that calls no function
which acts has rows of its own (`decide_cell`).

Knows nothing of prompts, and of quotations only what a block says of itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from emulator.core.cached_property import cached_property
from emulator.programs import validate
from emulator.programs.program import Program
from emulator.reading.openings import begins_with_call, names_call
from emulator.reading.readers import mentions_tool
from emulator.reading.statements import NoCall
from emulator.reading.tool_names import ToolNames, cached_tool_names
from emulator.reply.draft_block import DraftBlock
from emulator.reply.question import Question
from emulator.tools.toolset import Toolset


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
NO_CALL = Decision(BlockOutcome.SHOWN, "it calls no function")
SESSION = Decision(BlockOutcome.SHOWN, "it shows an interactive session")
SHADOWS = Decision(BlockOutcome.SHOWN, "it defines a function with a tool's name")
DEFINES = Decision(BlockOutcome.SHOWN, "it defines functions and calls none")
DEFINED_ABOVE = Decision(BlockOutcome.SHOWN, "shown code defines its functions")
QUOTED = Decision(
    BlockOutcome.ASKED, "it appears in an earlier message or in the description of a tool"
)
REQUIRED = Decision(BlockOutcome.RUNS, "tool_choice requires a call")
ANY_ACTS = Decision(BlockOutcome.RUNS, "any call of this model acts")
CONFIRMED = Decision(
    BlockOutcome.RUNS, "the model was asked, and wrote nothing but the block again"
)
ASKED_BEFORE = Decision(BlockOutcome.SHOWN, "the model was asked, and did not say RUN")
ALONE = Decision(BlockOutcome.RUNS, "the reply is nothing but code")
PERHAPS_ALONE = Decision(BlockOutcome.OPEN, "the reply may be nothing but code")
READS = Decision(BlockOutcome.RUNS, "it only reads")
FAULTY = Decision(BlockOutcome.ASKED, "it cannot run as it is")
NAMELESS = Decision(BlockOutcome.ASKED, "it is the arguments of a function without its name")
ASKED = Decision(BlockOutcome.ASKED, "it is not labelled tool_code")
CELL = Decision(BlockOutcome.RUNS, "it is Python for the code interpreter")
PERHAPS_LAST = Decision(BlockOutcome.OPEN, "words may follow it")
NOT_LAST = Decision(BlockOutcome.SHOWN, "it is not labelled tool_code, and words follow it")

UNMARKED = (ALONE, READS)
"""Rows by which a block runs that nothing marks: it must have no fault."""
_CERTAIN = (LABELLED, OWN_SYNTAX, REQUIRED, ANY_ACTS)
"""Rows by which the calls of a block run before it ends."""


@dataclass
class Judge:
    """Judges the blocks of one reply, in order."""

    toolset: Toolset
    required: bool = False
    any_acts: bool = False
    """The profile says that every valid call in a block acts."""
    uses_label: bool = False
    """The model has used the label in this conversation."""
    question: Question | None = None
    """What the model was asked, if this reply is its answer."""
    has_asked: bool = False
    """The model is asked about an earlier block of the reply: what follows belongs to the question."""
    _defined: set[str] = field(default_factory=set)

    @cached_property
    def names(self) -> ToolNames:
        toolset = self.toolset
        return cached_tool_names(toolset.spellings, toolset.constructors, toolset.readers)

    def acts(self, tools: Collection[str]) -> bool:
        """Return True unless all tools declare that they only read: a name is no evidence."""
        return not self.toolset.readers.issuperset(tools)

    def decide(self, block: DraftBlock, place: Place | None = None) -> Decision:
        """Judge a block; ``place`` is None while the reply goes on."""
        decision = self._decide_own(block, place)
        # The calls before a quoted one are the model's own.
        runs_first = block.has_run or (decision in _CERTAIN and block.calls_tool)
        if block.is_quoted and decision.outcome is not BlockOutcome.SHOWN and not runs_first:
            return QUOTED
        return decision

    def _decide_own(self, block: DraftBlock, place: Place | None = None) -> Decision:
        """Judge a block as if the model wrote all of it."""
        if block.is_marked:
            return LABELLED if block.is_labelled else OWN_SYNTAX
        if shown := self._calls_nothing(block, place):
            return shown
        if self.required:
            return REQUIRED
        if self.any_acts:
            return ANY_ACTS
        perhaps_alone = block.may_stand_alone and place in (None, Place.ALONE)
        if self.question is not None:
            if not (perhaps_alone and self.question.is_repeated_by(block.inner)):
                return ASKED_BEFORE
            return CONFIRMED if place else PERHAPS_ALONE
        if not (self.uses_label or self.has_asked):
            if block.tools and not self.acts(block.tools):
                return READS
            if perhaps_alone:
                return ALONE if place else PERHAPS_ALONE
        return ASKED

    def decides_early(self, block: DraftBlock) -> bool:
        """Return True if an unfinished block runs whatever follows in it: what only reads so far may act."""
        decision = self._decide_own(block)
        return decision.outcome is BlockOutcome.RUNS and (
            decision is not READS or not self._offers_acts
        )

    def decide_cell(self, block: DraftBlock, place: Place | None = None) -> Decision:
        """Judge Python for the code interpreter."""
        if self.acts(block.tools) or block.is_marked or block.is_quoted or self.required:
            return self.decide(block, place)
        if not self.uses_label or self.any_acts:
            return CELL
        if self.question is not None:
            return self.decide(block, place)
        if place is None:
            return PERHAPS_LAST
        return NOT_LAST if place is Place.FOLLOWED else ASKED

    def decides_cells_early(self, block: DraftBlock) -> bool:
        """Return True if Python for the code interpreter runs whatever it calls."""
        runs = self.required or self.any_acts or not (self.uses_label or self._offers_acts)
        return block.is_marked or runs

    @property
    def _offers_acts(self) -> bool:
        return self.acts([tool.python_name for tool in self.toolset.tools])

    def means_call(self, block: DraftBlock, place: Place | None = None) -> bool:
        """Return True if a block is meant as a call, whether or not it can run."""
        if block.calls_tool or block.is_labelled or block.cell is not None:
            return True
        if block.is_quoted and block.tools:
            return True
        is_alone = self.required or self.any_acts or place in (None, Place.ALONE)
        match block.dialect:
            case "python":
                return self._means_python_call(block)
            case "json" | "yaml" if not (block.error or block.is_cut):
                # Among words only an offered name is a sign.
                return is_alone and block.has_statements and names_call(block.inner, self.names)
            case "json" | "yaml":
                return mentions_tool(block.raw, self.names)
        if isinstance(block.error, NoCall):
            return is_alone or mentions_tool(block.raw, self.names)
        return block.has_statements or block.is_cut or block.error is not None

    def _means_python_call(self, block: DraftBlock) -> bool:
        own = block.own_names
        if not (block.error or block.is_cut):
            statements = (*block.statements, *block.quoted)
            unknown = validate.unknown_calls(Program(statements), self.toolset)
            is_script = own is not None and (own.has_definitions or own.is_script)
            is_near = any(one.is_near for one in unknown) and not (is_script or block.is_session)
            return bool(unknown) and (self.required or is_near)
        # Without a label it may be any language.
        is_code = block.statements or block.label or begins_with_call(block.inner, self.names)
        return bool(is_code and block.mentioned_tools(self.names))

    def remember_shown(self, block: DraftBlock) -> None:
        """Later blocks may use what a shown block defines."""
        if block.own_names is not None:
            self._defined |= block.own_names.defined

    def _calls_nothing(self, block: DraftBlock, place: Place | None) -> Decision | None:
        own = block.own_names
        if block.is_session:
            return SESSION
        if own is not None and own.shadows_tool:
            return SHADOWS
        if own is not None and own.only_defines:
            return DEFINES
        if not self._defined.isdisjoint(block.tools):
            return DEFINED_ABOVE
        return None if self.means_call(block, place) else NO_CALL
