"""Code that needs an event loop keeps it: ``async with``, ``async for``, ``asyncio.as_completed``
and so on.

Everywhere else stubs are plain functions and are not awaited (`rewrites`). A coroutine function
that needs an event loop becomes a plain function that runs itself. Knows only syntax.
"""

from __future__ import annotations

import ast

from sandbox.parsing import parse, walk

_PLAIN = frozenset("run gather create_task ensure_future sleep".split())
"""The parts of asyncio that are not needed once stubs are plain functions."""


def needs_event_loop(node: ast.AST) -> bool:
    """Return True if a statement cannot be written without ``async``."""
    for inner in walk(node):
        match inner:
            case ast.AsyncFor() | ast.AsyncWith() | ast.comprehension(is_async=1):
                return True
            case ast.Attribute(value=ast.Name(id="asyncio"), attr=name) if name not in _PLAIN:
                return True
            case ast.Yield() if isinstance(node, ast.AsyncFunctionDef):
                return True
    return False


def run_with_asyncio(node: ast.AST) -> ast.AST:
    """Wrap a coroutine function in a plain function that runs it. Generators and other nodes stay
    unchanged.
    """
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
