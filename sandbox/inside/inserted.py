"""The expressions that are put into a cell instead of its calls. Runs inside the kernel.

Stops: nothing.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

BEGIN, TAKEN, LATER, EACH = "_begin_", "_taken_", "_later_", "_each_"
ASKED, BEGIN_ASKED, TAKEN_ASKED, TASK = "_asked_", "_begin_asked_", "_taken_asked_", "_task_"
AHEAD = "_ahead_"
"""A variable of the functions that are put in, by which they are told from the cell's own."""


Batch = int
"""Calls of the same one are of one display or comprehension; those of 0 are of none."""
ONLY_READS: Batch = -1
"""As in `sandbox.engine`, which a kernel does not have."""


@dataclass(frozen=True)
class Called:
    call: ast.Call
    batch: Batch


def later(called: Called) -> ast.Call:
    """The call as a value: which function, and what it is given."""
    call = called.call
    what = [ast.Constant(called.batch), ast.Constant(call.lineno), call.func, *call.args]
    made = ast.Call(ast.Name(LATER, ast.Load()), what, call.keywords)
    return ast.copy_location(made, call)


def ahead(call: ast.expr) -> ast.Lambda:
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(AHEAD)],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[ast.Constant(None)],
    )
    return ast.copy_location(ast.Lambda(arguments, call), call)


def taken_ahead(
    generators: list[ast.comprehension],
    group: Sequence[Called],
    read: Sequence[str] = (),
    changed: Sequence[str] = (),
) -> tuple[ast.Tuple, ast.Call]:
    """What to go over instead of `generators`, so that the calls of `group` are known before their turn.

    `read` are the variables that the calls use, `changed` those of what changes meanwhile.
    """
    names = sorted(
        {
            inner.id
            for generator in generators
            for inner in ast.walk(generator.target)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
        }
    )

    def variables(these: Sequence[str], context: ast.expr_context) -> ast.Tuple:
        return ast.Tuple([ast.Name(name, context) for name in these], context)

    calls = ast.Tuple([later(each) for each in group], ast.Load())
    item: list[ast.expr] = [variables(names, ast.Load()), calls, variables(read, ast.Load())]
    items = ast.GeneratorExp(ast.Tuple(item, ast.Load()), generators)
    given: list[ast.expr] = [items]
    if changed:
        given.append(ahead(variables(changed, ast.Load())))
    target = ast.Tuple([variables(names, ast.Store()), ast.Name(AHEAD, ast.Store())], ast.Store())
    return target, ast.Call(ast.Name(EACH, ast.Load()), given, [])
