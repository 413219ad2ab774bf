"""What `calls` puts into a cell is defined by this. Runs inside the kernel.

Stops: nothing; the host reads what comes from here as it reads any call.
"""

import ast
import asyncio
import copy
from typing import Any

from sandbox.inside.calls import Groups
from sandbox.inside.each import each
from sandbox.inside.executors import run_beside
from sandbox.inside.groups import OFFERED, Later, begin, groups, taken
from sandbox.inside.inserted import (
    ASKED,
    BEGIN,
    BEGIN_ASKED,
    EACH,
    LATER,
    TAKEN,
    TAKEN_ASKED,
    TASK,
)
from sandbox.inside.tasks import (
    asked,
    begin_asked,
    forget,
    make_waiting,
    taken_asked,
    task,
)
from sandbox.inside.values import AWAITED


def look_ahead(shell: Any) -> None:
    """Let this kernel tell calls before their turn."""
    shell.user_ns.update({BEGIN: begin, TAKEN: taken, LATER: Later, EACH: each})
    shell.user_ns.update(
        {ASKED: asked, BEGIN_ASKED: begin_asked, TAKEN_ASKED: taken_asked, TASK: task}
    )
    shell.ast_transformers.append(_Transformer(shell.user_ns))
    shell.events.register("post_run_cell", lambda _: make_waiting())
    run_beside()


class _Transformer(ast.NodeTransformer):
    """What IPython gives each piece of code to."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self._variables = variables
        self._rewriter = Groups(OFFERED.keys, AWAITED)

    def visit(self, node: ast.AST) -> ast.AST:
        groups.clear()
        forget()
        there = self._variables
        if not isinstance(node, ast.Module) or there.get("asyncio", asyncio) is not asyncio:
            return node
        own = (value for value in list(there.values()) if isinstance(value, type))
        plain = not any(kind.__module__ == "__main__" for kind in own)
        before = copy.deepcopy(node)
        try:
            return self._rewriter.rewrite(node, {*there}, plain=plain)
        except RecursionError:
            return before
