"""Read the statements of a reply's blocks, and note in each block what decides whether it runs: the tools
that it calls, and quotations."""

from __future__ import annotations

from contextlib import suppress

from emulator.programs.name_resolution import NameResolution
from emulator.reading.readers import Statement, Unreadable, read, used_tools
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
        self.names = cached_tool_names(
            toolset.spellings, toolset.constructors, toolset.readers, forced=forced
        )
        self._toolset = toolset
        self._python_names = cached_tool_names(toolset.names)
        self._quotations = quotations
        self._foreign = foreign
        self._resolution = NameResolution(toolset)

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
        if block.error is not None and block.is_labelled and not block.has_statements:
            with suppress(Unreadable):  # in a syntax that its first line does not show
                self.add(block, read("markup", block.inner, self.names))
                block.error = None
        if block.error is not None:
            block.tools |= block.mentioned_tools(self.names)
            block.is_quoted = block.is_quoted or self._quotations.quotes_text(block.inner)
        elif block.dialect != "python" and block.has_statements and not block.is_quoted:
            text = block.raw if block.dialect == "command" else block.inner
            if self._quotations.quotes_block(text, block.statements):
                block.quote_all()

    def add(self, block: DraftBlock, statements: list[Statement]) -> bool:
        """Add statements to the block. Returns True if one of them calls a tool."""
        new = False
        for written in statements:
            statement = self._resolution.resolve(written)
            tools = self._tools(statement)
            block.tools |= tools
            # Who wrote a call is asked first, whether or not its name is offered.
            if tools or self._resolution.calls_unknown(statement):
                block.is_quoted |= self._quotations.quotes_statement(written, statement)
            if block.dialect != "python":
                self._foreign.add(statement, block)
            if block.is_quoted:  # what follows a quoted call may need its result
                block.quoted.append(statement)
            else:
                block.statements.append(statement)
                new = new or bool(tools)
        block.calls_tool = block.calls_tool or new
        return new

    def _tools(self, statement: Statement) -> set[str]:
        """The Python names of the offered functions that the statement calls."""
        if (call := statement.call) is not None:
            return {call.name} & self._toolset.names
        return set(used_tools(statement.tree or statement.source, self._python_names))
