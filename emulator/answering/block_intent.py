"""Decide whether a block runs, is shown, or is doubtful: its code and the words around it.

    code: a session, an own function with a tool's name, a blank to fill in      -> shown
          a stub declared again, modules to install, another language, a request -> doubtful
    words before the block (`intent`), then the words after it

A doubtful block of tools that only read runs. For other tools the model is asked once, and a doubt that
remains is no call. A call whose long text is streamed early is decided before its first character; all other
calls of tools that act wait for the end of their block and the words after it. A coding agent's reply ends
with its block, so that costs nothing, while a call that has left cannot be taken back. Plain and streamed
answers take the same decisions.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from emulator.answering.draft_block import DraftBlock
from emulator.answering.intent import Intent, intent_after
from emulator.answering.user_request import Request
from emulator.programs import validate
from emulator.programs.program import Program
from emulator.reading.diagnostics import Diagnostic
from emulator.tools.effects import Effect
from emulator.tools.toolset import Toolset

_FOREIGN_LABEL = re.compile(
    r"\s*(?:`{3,}|~{3,})\s*(?:js|jsx|ts|tsx|javascript|typescript|java|c|cpp|c\+\+|csharp|cs|go|rust|rs|ruby|rb|php"
    r"|kotlin|swift|r|perl|lua|html|css|text|txt|plaintext|output|console|diff|markdown|md)\b",
    re.IGNORECASE,
)

_WITHHELD = "the user wants no call yet"


@dataclass
class IntentJudge:
    """Judges the blocks of one reply, in order."""

    toolset: Toolset
    request: Request = field(default_factory=Request)
    required: bool = False
    """The model must call: words alone do not make a block content."""
    constrained: bool = False
    """The reply has no words around a call, so a call that the user withholds is shown."""
    confirmed: bool = False
    """The model was asked about a doubtful block; a block in its answer is meant."""
    _shown: bool = False
    _defined: set[str] = field(default_factory=set)

    def acts(self, tools: Collection[str]) -> bool:
        """Return True if a tool may change something."""
        found = (self.toolset.find(name) for name in tools)
        return any(tool is None or tool.effect is not Effect.READS for tool in found)

    def before(self, block: DraftBlock) -> Intent:
        """Judge from the words before a block and its text so far."""
        if self._shown_code_rule(block):
            return Intent.SHOWN
        code = Intent.DOUBTFUL if self._doubt(block) else Intent.MEANT
        words = block.intent_before
        # After code that is shown, more code is likely to be shown: a file, then how to run it.
        shown = self._shown or "```" in block.before
        if words is None:
            asked = self.request.asks_for_code and block.before.strip()
            words = Intent.DOUBTFUL if shown or asked else Intent.MEANT
        elif words is Intent.DOUBTFUL and shown:
            words = Intent.SHOWN
        return self._bounded(max(code, words))

    def judge(self, block: DraftBlock, after: str) -> Intent:
        """Judge a whole block and the words after it."""
        if block.is_committed:
            return Intent.MEANT
        before = self.before(block)
        return max(before, self._bounded(intent_after(after, acts=self.acts(block.tools))))

    def rule(self, block: DraftBlock) -> str:
        """Return why a block that was judged does not run, for the inspector."""
        if rule := self._shown_code_rule(block) or self._doubt(block):
            return rule
        before = block.intent_before
        if before is None and block.before.strip() and self.request.asks_for_code:
            return "the user asks for code"
        if (before is None or before is Intent.DOUBTFUL) and (self._shown or "```" in block.before):
            return "it follows code that is shown"
        return "the words before it" if before else "the words after it"

    def unknown_calls(self, block: DraftBlock) -> list[Diagnostic]:
        """Diagnostics for calls of unknown tools, if the block is meant as a call and not as
        documentation."""
        unknown = validate.unknown_calls(Program(tuple(block.statements)), self.toolset)
        own = block.own_names
        is_script = own is not None and (own.has_definitions or own.is_script)
        is_attempt = block.dialect != "python" or (
            any(one.near for one in unknown) and not (is_script or block.is_session)
        )
        return [one.diagnostic for one in unknown] if self.required or is_attempt else []

    def remember_shown(self, block: DraftBlock) -> None:
        """Later blocks may use what a shown block defines."""
        self._shown = True
        if block.own_names is not None:
            self._defined |= block.own_names.defined

    def _bounded(self, intent: Intent) -> Intent:
        if self.required:
            intent = min(intent, Intent.DOUBTFUL)
        return Intent.MEANT if self.confirmed and intent is Intent.DOUBTFUL else intent

    def _shown_code_rule(self, block: DraftBlock) -> str:
        own = block.own_names
        if block.has_blank:
            return "an argument is a blank to fill in"
        if self.constrained and self._is_withheld(block):
            return _WITHHELD
        if block.is_session:
            return "it shows an interactive session"
        if own is not None and own.shadows_tool:
            return "it defines a function with a tool's name"
        return "" if self._defined.isdisjoint(block.tools) else "shown code defines its functions"

    def _doubt(self, block: DraftBlock) -> str:
        own, request = block.own_names, self.request
        if _FOREIGN_LABEL.match(block.pieces[0]):
            return "its label names another language"
        if self._is_withheld(block):
            return _WITHHELD
        if own is None:
            return ""
        if own.is_script or (own.has_definitions and request.asks_for_script):
            return "it is a script"
        return "it declares an offered function again" if own.repeats_stub else ""

    def _is_withheld(self, block: DraftBlock) -> bool:
        found = () if self.required else map(self.toolset.find, block.tools)
        return any(tool is not None and self.request.withholds(tool) for tool in found)
