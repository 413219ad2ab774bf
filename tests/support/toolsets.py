"""Toolsets from schemas, and what must be true of each."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from emulator.tools.toolset import Toolset

#: Names that a stub may use in addition to its own.
SHOWN = {"Any", "Literal", "Annotated", "BaseModel", "ConfigDict", "Field", *dir(builtins)}


def offered(*functions: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": function} for function in functions]


def toolset(parameters: Any, name: str = "tool") -> Toolset:
    return Toolset.parse(offered({"name": name, "parameters": parameters}))


def assert_sound(tools: Toolset) -> None:
    """The stubs parse to the models and functions that they should, use no name that they do not
    define, and hold no fence; so does the preamble."""
    tree = ast.parse(tools.stubs)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(tree.body) == len(classes) + len(functions)
    assert (sorted(classes), set(functions)) == (sorted(tools.constructors), tools.names)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    assert used <= SHOWN | tools.constructors
    assert "```" not in tools.stubs
    assert "~~~" not in tools.stubs
    assert tools.stubs.replace("\n", "").isprintable()
    assert all(isinstance(node, ast.FunctionDef) for node in ast.parse(tools.preamble).body)
