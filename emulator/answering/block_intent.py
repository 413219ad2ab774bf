"""Decide whether a block runs, is shown, or is doubtful: its code and the words around it.

    code: a session, an own function with a tool's name, definitions and
          nothing else                                                           -> shown
          a stub declared again, modules to install, another language, a
          quotation, a request, code that cannot be read                         -> doubtful
    words before the block (`intent`), then the words after it

A doubtful block of tools that only read runs. For other tools two doubts make it content; with one the model
is asked once, and a doubt that remains is no call. Nothing of a block that cannot be read runs, so one doubt
is enough to ask about it; without a doubt it is sent back for repair.

A call whose long text is streamed early is decided before its first character; all other calls of tools that
act wait for the end of their block and the words after it. A coding agent's reply ends with its block, so
that costs nothing, while a call that has left cannot be taken back. Plain and streamed answers take the same
decisions.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from emulator.answering.draft_block import DraftBlock
from emulator.answering.intent import (
    Intent,
    continues_sentence,
    intent_after,
    intent_before,
)
from emulator.answering.quotations import attributes
from emulator.answering.user_request import Request
from emulator.programs import validate
from emulator.programs.program import Program
from emulator.reading.diagnostics import Diagnostic
from emulator.reading.openings import names_call
from emulator.reading.tool_names import cached_tool_names
from emulator.tools.effects import Effect
from emulator.tools.toolset import Toolset

_FOREIGN_LABEL = re.compile(
    r"\s*(?:`{3,}|~{3,})\s*(?:js|jsx|ts|tsx|javascript|typescript|java|c|cpp|c\+\+|csharp|cs|go|rust|rs|ruby|rb|php"
    r"|kotlin|swift|r|perl|lua|html|css|text|txt|plaintext|output|console|diff|markdown|md)\b",
    re.IGNORECASE,
)


@dataclass
class IntentJudge:
    """Judges the blocks of one reply, in order."""

    toolset: Toolset
    request: Request = field(default_factory=Request)
    required: bool = False
    """The model must call: words alone do not make a block content."""
    constrained: bool = False
    """The reply is JSON: a call that is shown leaves as Python."""
    confirmed: bool = False
    """The model was asked about a doubtful block; a block in its answer is meant."""
    _shown: bool = False
    _shown_call: bool = False
    _defined: set[str] = field(default_factory=set)

    def acts(self, tools: Collection[str]) -> bool:
        """Return True if a tool may change something."""
        found = (self.toolset.find(name) for name in tools)
        return any(tool is None or tool.effect is not Effect.READS for tool in found)

    def before(self, block: DraftBlock) -> Intent:
        """Judge from the words before a block and its text so far."""
        if self._shown_code_rule(block):
            return Intent.SHOWN
        doubts = self._doubts(block)
        shown = block.intent_before is Intent.SHOWN or self._withholds(block.tools)
        shown = shown and block.intent_before is not Intent.MEANT
        shown = shown or (len(doubts) > 1 and (self.acts(block.tools) or self._shown_call))
        return self._bounded(Intent.SHOWN if shown else Intent(bool(doubts)))

    def judge(self, block: DraftBlock, after: str) -> Intent:
        """Judge a whole block and the words after it."""
        if block.is_committed:
            return Intent.MEANT
        before = self.before(block)
        return max(before, self._bounded(self._after(block, after)))

    def judge_cell(
        self, before: str, tools: Collection[str], after: str = "", *, is_repeated: bool = False
    ) -> Intent:
        """Judge code for the interpreter by the words around it. Only a call of a tool that acts may be
        doubtful. ``is_repeated``: its calls were made before the user's message."""
        words = intent_before(before)
        if not self.acts(tools):
            return self._bounded(Intent.SHOWN if words is Intent.SHOWN else Intent.MEANT)
        withheld = words is not Intent.MEANT and self._withholds(tools)
        if words is None and before.strip() and is_repeated:
            words = Intent.DOUBTFUL
        said = [words or Intent.MEANT, intent_after(after, acts=True), Intent(2 * withheld)]
        return self._bounded(max(said))

    def rule(self, block: DraftBlock) -> str:
        """Return why a block that was judged does not run, for the inspector."""
        reasons = [self._shown_code_rule(block), *self._doubts(block), "the words after it"]
        return next(filter(None, reasons))

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
        """Later blocks may use what a shown block defines, and are likely to be shown too."""
        self._shown = True
        self._shown_call |= bool(block.tools) and not block.is_quoted
        if block.own_names is not None:
            self._defined |= block.own_names.defined

    def _after(self, block: DraftBlock, after: str) -> Intent:
        attributed = block.is_quoted and attributes(block.before, after)
        if attributed or continues_sentence(block.before, after):
            return Intent.SHOWN
        return intent_after(after, acts=self.acts(block.tools))

    def _bounded(self, intent: Intent) -> Intent:
        if self.required:
            intent = min(intent, Intent.DOUBTFUL)
        return Intent.MEANT if self.confirmed and intent is Intent.DOUBTFUL else intent

    def _shown_code_rule(self, block: DraftBlock) -> str:
        own = block.own_names
        if block.is_session:
            return "it shows an interactive session"
        if own is not None and own.shadows_tool:
            return "it defines a function with a tool's name"
        if own is not None and own.only_defines:
            return "it defines functions and calls none"
        return "" if self._defined.isdisjoint(block.tools) else "shown code defines its functions"

    def _doubts(self, block: DraftBlock) -> list[str]:
        """Why the block may be content. An announcement outweighs all that its code does not say."""
        own, request, words = block.own_names, self.request, block.before.strip()
        # These three are one doubt.
        hint = block.intent_before
        asked = request.asks_for_code or (words and request.asks and block.is_ambiguous)
        follows_code = self._shown or "```" in block.before
        code = {
            "its label names another language": _FOREIGN_LABEL.match(block.pieces[0]),
            "the user wants no call yet": self._withholds(block.tools),
            "it is a script": own
            and (own.is_script or (own.has_definitions and request.asks_for_script)),
            "it declares an offered function again": own and own.repeats_stub,
            "it appears in an earlier message": block.is_quoted,
        }
        context = {
            "the words before it": hint,
            "the user asks a question, or for code": asked and not hint,
            "it repeats earlier calls": words and block.is_repeated and not (hint or asked),
            "it follows code that is shown": follows_code,
            "it follows a call that is shown": self._shown_call,
            "it cannot be read": words and block.error and block.is_ambiguous,
        }
        found = code if block.intent_before is Intent.MEANT else code | context
        return [reason for reason, holds in found.items() if holds]

    def _withholds(self, tools: Collection[str]) -> bool:
        found = () if self.required else map(self.toolset.find, tools)
        return any(tool is not None and self.request.withholds(tool) for tool in found)
