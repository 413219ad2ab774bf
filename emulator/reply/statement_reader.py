"""Read the statements of a reply's blocks, and mark in each block what decides whether it runs: the tools
that it calls, and quotations."""

from __future__ import annotations

from emulator.reading.readers import Statement, Unreadable, used_tools
from emulator.reading.tool_names import cached_tool_names
from emulator.reply.draft_block import DraftBlock, ForeignStatements
from emulator.reply.quotations import Quotations
from emulator.tools.toolset import Toolset


class StatementReader:
    """Reads the blocks of one reply, one after the other."""

    def __init__(
        self,
        toolset: Toolset,
        quotations: Quotations,
        foreign: ForeignStatements,
        *,
        forced: bool = False,
    ) -> None:
        self.names = cached_tool_names(toolset.spellings, toolset.constructors, forced=forced)
        self._toolset = toolset
        self._python_names = cached_tool_names(toolset.names)
        self._quotations = quotations
        self._foreign = foreign

    def feed(self, block: DraftBlock, text: str) -> bool:
        """Read more of a block. Returns True if a new statement calls a tool."""
        try:
            return block.error is None and self.add(block, block.reader.feed(text))
        except Unreadable as error:
            block.error = error
            return False

    def close(self, block: DraftBlock) -> None:
        """Read the last statements of a block."""
        try:
            if block.error is None:
                self.add(block, block.reader.close())
        except Unreadable as error:
            block.error = error
        if block.error is not None:
            block.tools |= block.mentioned_tools(self.names)
            if self._quotations.contains(block.inner):
                block.quoted.append(block.inner)
        if block.is_program and block.dialect != "python" and (quoted := self._quoted(block)):
            block.quoted, block.is_program = quoted, False

    def add(self, block: DraftBlock, statements: list[Statement]) -> bool:
        """Add statements to the block. Returns True if one of them calls a tool."""
        new = False
        for statement in statements:
            tools = self._tools(statement)
            if tools:
                block.tools |= tools
                if self._quotations.contains_call(statement):
                    block.quoted.append(statement.source)
            if block.dialect != "python":
                self._foreign.add(statement, block)
            if not block.is_quoted:  # statements after a quoted call may need its result
                block.statements.append(statement)
                new = new or bool(tools)
        block.is_program = block.is_program or new
        return new

    def _quoted(self, block: DraftBlock) -> list[str]:
        """The text and the statements of a block that is a quotation as a whole."""
        text = block.raw if block.dialect == "command" else block.inner
        if not self._quotations.contains_block(text, block.statements):
            return []
        return [text, *(statement.source for statement in block.statements)]

    def _tools(self, statement: Statement) -> set[str]:
        """The Python names of the offered functions that the statement calls."""
        if (call := statement.call) is not None:
            return {call.name} & self._toolset.names
        return set(used_tools(statement.tree or statement.source, self._python_names))
