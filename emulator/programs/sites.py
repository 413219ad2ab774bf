"""The calls of tools in a program. Reads only syntax."""

from __future__ import annotations

import ast
from collections.abc import Collection

from sandbox.parsing import children

Site = tuple[int, str]
"""A call in the source: the line of its statement, and the tool's name."""


def called_tool(node: ast.AST, tools: Collection[str]) -> str | None:
    """The name of the tool that ``node`` calls; None if it is no call of a tool."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in tools:
            return name
    return None


def call_sites(tree: ast.Module, tools: Collection[str]) -> dict[ast.AST, Site]:
    sites: dict[ast.AST, Site] = {}
    waiting: list[tuple[int, ast.AST]] = [(0, tree)]
    for line, node in waiting:  # it grows meanwhile
        if name := called_tool(node, tools):
            sites[node] = (line, name)
        waiting += (
            (child.lineno if isinstance(child, ast.stmt) else line, child)
            for child in children(node)
        )
    return sites
