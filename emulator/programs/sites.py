"""The calls of tools in a program, and the list, tuple and dict displays that store their results. Reads only
syntax."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from sandbox.parsing import children, walk

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


def expand_generators(tree: ast.Module) -> None:
    """Make a list comprehension of each generator expression whose items are all taken before any is
    inspected."""
    for node in walk(tree):
        match node:
            case ast.Call(
                func=ast.Name(id="list" | "tuple" | "sorted"), args=[ast.GeneratorExp() as lazy, *_]
            ):
                pass
            case ast.Call(func=ast.Attribute(attr="join"), args=[ast.GeneratorExp() as lazy]):
                pass
            case _:
                continue
        node.args[0] = ast.copy_location(ast.ListComp(lazy.elt, lazy.generators), lazy)


def leaves(value: ast.expr) -> Iterator[ast.expr]:
    """The expressions whose values a display stores, through nested displays; for another expression
    itself."""
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from leaves(part)
        case ast.ListComp(elt=part) | ast.DictComp(value=part):
            yield from leaves(part)
        case _:
            yield value


def has_comprehension(value: ast.expr) -> bool:
    """Return True for a list or dict comprehension, and for a display that stores one."""
    match value:
        case ast.ListComp() | ast.DictComp():
            return True
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
            return any(map(has_comprehension, parts))
    return False
