"""Code that needs an event loop keeps it: ``async with``, ``async for``, tasks as they complete and such.

Elsewhere stubs are plain functions and nobody awaits them (`rewrites`). A coroutine function of this kind is
called as a plain function too: it drives itself. Knows only syntax.
"""

from __future__ import annotations

import ast

from sandbox.parsing import parse, walk

_PLAIN = frozenset("run gather create_task ensure_future sleep".split())
"""What of asyncio means the same without it."""


def is_concurrent(node: ast.AST) -> bool:
    """Whether a statement cannot be written without ``async``."""
    for inner in walk(node):
        match inner:
            case ast.AsyncFor() | ast.AsyncWith() | ast.comprehension(is_async=1):
                return True
            case ast.Attribute(value=ast.Name(id="asyncio"), attr=name) if name not in _PLAIN:
                return True
            case ast.Yield() if isinstance(node, ast.AsyncFunctionDef):
                return True
    return False


def driven(node: ast.AST) -> ast.AST:
    """A coroutine function as a function that runs it; generators and all else as they are."""
    if not isinstance(node, ast.AsyncFunctionDef) or any(
        isinstance(inner, ast.Yield) for inner in walk(node)
    ):
        return node
    wrapper = parse(
        f"def {node.name}(*args, **kwargs):\n"
        "    import asyncio\n"
        f"    return asyncio.run({node.name}_(*args, **kwargs))\n"
    ).body[0]
    assert isinstance(wrapper, ast.FunctionDef)
    wrapper.decorator_list, node.decorator_list = node.decorator_list, []
    node.name += "_"
    wrapper.body.insert(0, node)
    return ast.copy_location(wrapper, node)
