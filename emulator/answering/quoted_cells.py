"""Find the parts of a cell that a model copied from another author's text."""

from __future__ import annotations

import ast
from collections.abc import Collection

from emulator.answering.quotations import Quotations
from emulator.reading.python_syntax import calls_tool
from emulator.reading.tool_names import ToolNames
from sandbox.parsing import parse


def quoted_parts(code: str, quotations: Quotations, names: Collection[str]) -> list[str]:
    """Return the quoted parts of a cell that must not run before the model confirms them.

    A part is the whole cell, all of its statements with an effect, or a statement that calls an offered
    function. A single common line, such as an import, is not a quotation.
    """
    try:
        tree = parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [code] if quotations.contains(code) else []
    offered = ToolNames.of(names)
    effective = [
        (node, ast.get_source_segment(code, node) or "") for node in tree.body if _has_effect(node)
    ]
    parts = [text for _, text in effective]
    calls = [text for node, text in effective if calls_tool(node, offered)]
    if quoted := [text for text in calls if quotations.contains_call(text)]:
        return quoted
    if parts and all(map(quotations.contains, parts)):
        return parts
    return [code] if quotations.contains(code) and not quotations.confirmed(parts) else []


def _has_effect(statement: ast.stmt) -> bool:
    """Return True if a statement calls something. Printing a value that exists already does not count."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef() | ast.Pass():
            return False
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=args)):
            return any(isinstance(node, ast.Call) for arg in args for node in ast.walk(arg))
    return any(isinstance(node, ast.Call) for node in ast.walk(statement))
