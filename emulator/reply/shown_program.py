"""The program that the client sees as an item of the answer: with the tool `programmatic_tool_calling` of
Responses, or ``allowed_callers`` in Messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from emulator.core.events import ProgramStarted, program_id
from emulator.programs.saved import SavedProgram
from emulator.reading.diagnostics import Diagnostic, locate
from emulator.reply.draft_block import DraftBlock
from emulator.tools.toolset import Toolset

Seal = Callable[[SavedProgram, str], str]
"""Makes the fingerprint of a program with this id."""


class ShownProgram:
    """Without ``seal`` the client sees no program."""

    def __init__(self, toolset: Toolset, seal: Seal | None = None) -> None:
        self._toolset = toolset
        self._seal = seal
        self.id = ""
        """The program's id, the ``caller`` of its calls; "" before the program has started."""

    def start(
        self, block: DraftBlock, tool: str, call: str, program: SavedProgram
    ) -> Iterator[ProgramStarted]:
        """Start the program with its first call, of a ``tool`` and with the id ``call``, unless the call is
        the model's own."""
        found = self._toolset.find(tool)
        if self._seal is None or block.dialect != "python" or found is None or found.is_direct_only:
            return
        self.id, sealed = program_id(call), replace(program, is_shown=True)
        yield ProgramStarted(self.id, program.code, self._seal(sealed, self.id))

    def wrong_callers(self, block: DraftBlock, *, after_calls: bool) -> list[Diagnostic]:
        """Diagnostics for direct calls of tools that only programs may call.

        ``after_calls``: the answer has calls already; if no program made them, this block starts none.
        """
        is_program = self._seal is None or self.id or not after_calls
        if block.dialect == "python" and is_program:
            return []
        tools = (self._toolset.find(name) for name in sorted(block.tools))
        names = [tool.python_name for tool in tools if tool is not None and tool.is_program_only]
        hint = "write a Python block that calls it"
        faults = (
            Diagnostic(f"{name} is called only by programs", 1, 0, "", hint) for name in names
        )
        return [locate(fault, block.inner, 1) for fault in faults]
