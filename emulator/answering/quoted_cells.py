"""Is a cell of the code interpreter a quotation of somebody else? Knows nothing of blocks or replies."""

from __future__ import annotations

import ast
from collections.abc import Collection

from emulator.answering.quotations import Quotations
from emulator.reading.python_syntax import calls_tool
from emulator.reading.tool_names import ToolNames
from sandbox.parsing import parse


def quoted_parts(code: str, quotations: Quotations, names: Collection[str]) -> list[str]:
    """What of a cell stands in somebody else's message and must not run unasked; [] if nothing does.

    That is the whole cell, or all of its statements that do anything, or one that calls an offered function.
    What stands there piecemeal, such as an import, is not the other's code for that.
    """
    try:
        tree = parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [code] if quotations.holds(code) else []
    offered = ToolNames.of(names)
    doing = [(node, ast.get_source_segment(code, node) or "") for node in tree.body if _does(node)]
    parts = [text for _, text in doing]
    calling = [text for node, text in doing if calls_tool(node, offered)]
    if quoted := [text for text in calling if quotations.holds(text)]:
        return quoted
    if parts and all(map(quotations.holds, parts)):
        return parts
    return [code] if quotations.holds(code) and not quotations.confirmed(parts) else []


def _does(statement: ast.stmt) -> bool:
    """Whether a statement does something on its own: most calls do, printing what one has does not."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef() | ast.Pass():
            return False
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=args)):
            return any(isinstance(node, ast.Call) for arg in args for node in ast.walk(arg))
    return any(isinstance(node, ast.Call) for node in ast.walk(statement))
