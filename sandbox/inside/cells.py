"""Change a notebook's cell so that calls it waits for at the same time are pending together. Knows only
syntax.

Runs inside the kernel. For offered functions ``f`` and ``g``:

| in the cell | becomes |
|---|---|
| ``await f(1)`` | ``await _awaited_(_pending_(f)(1))`` |
| ``asyncio.gather(f(1), *[g(x) for x in y])`` | the same, with ``_pending_(f, asyncio)(1)`` and so on |
| ``create_task(f(1))`` of an object ``group`` | ``create_task(_pending_(f, group)(1))`` |
| ``[f(1), g(2)]``, ``{c: f(c) for c in cities}`` | ``_together_([_pending_(f)(1), _pending_(g)(2)])``, ... |

``_pending_(f)`` returns a function that makes a `tasks.PendingCall`. It returns ``f`` itself if the name no
longer means an offered function, or if ``group`` is not an asyncio object. All other calls are sent one after
the other, each when the cell reaches it.

Stops: nothing. A hostile cell could make the same calls itself.
"""

import ast
import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeGuard

from sandbox.inside.asyncio_changes import settled
from sandbox.inside.calls import OFFERED
from sandbox.inside.tasks import PendingCall, wait_together
from sandbox.inside.values import AWAITED

_PENDING, _TOGETHER = "_pending_", "_together_"

_TAKE_AWAITABLES = frozenset(
    "as_completed create_task ensure_future gather run run_until_complete shield wait wait_for".split()
)


def change_cells(shell: Any) -> None:
    """Change each cell of this kernel before it runs."""
    shell.user_ns.update({AWAITED: settled, _PENDING: _pending, _TOGETHER: wait_together})
    transform = shell.transform_ast
    shell.transform_ast = lambda tree: _transform(transform(tree))


def _pending(function: Any, receiver: Any = asyncio) -> Callable[..., Any]:
    takes_awaitables = receiver is asyncio or isinstance(
        receiver, asyncio.AbstractEventLoop | asyncio.TaskGroup
    )
    for name, offered in OFFERED.items():
        if function is offered and takes_awaitables:
            return partial(PendingCall, name)
    return function  # type: ignore[no-any-return]


def _transform(tree: ast.AST) -> ast.AST:
    """Change a cell. Not recursive: a sum of 500 terms is nested deeper than Python's stack."""
    for node in [*ast.walk(tree)]:  # parents come before their children
        match node:
            case ast.Await(value=value):
                if _is_call(value):
                    _defer(value)
                node.value = _insert(AWAITED, value)
            case ast.Call(func=ast.Attribute(value=ast.Name() as receiver, attr=attribute)):
                if attribute in _TAKE_AWAITABLES:
                    for argument in node.args:
                        for call in filter(_is_call, _parts(argument)):
                            _defer(call, receiver)
        for field, child in ast.iter_fields(node):
            if isinstance(child, list):
                child[:] = [_together(item) for item in child]
            else:
                setattr(node, field, _together(child))
    return tree


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield an argument of ``gather`` or the like, and the expressions in it whose values are awaited."""
    yield node
    match node:
        case ast.Starred(value=inner) | ast.ListComp(elt=inner) | ast.GeneratorExp(elt=inner):
            yield from _parts(inner)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            for item in items:
                yield from _parts(item)


def _together(node: Any) -> Any:
    """`node`, changed if it is a display or a comprehension whose items are calls."""
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Dict(values=items):
            calls = [item for item in items if _is_call(item)]
            several = len(calls) > 1
        case ast.ListComp(elt=item) | ast.DictComp(value=item) if _is_call(item):
            calls = [item]
            several = not any(each.is_async for each in node.generators)
        case _:
            return node
    if not several:
        return node
    for call in calls:
        _defer(call)
    return _insert(_TOGETHER, node)


def _is_call(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OFFERED
    )


def _defer(call: ast.Call, receiver: ast.Name | None = None) -> None:
    call.func = _insert(_PENDING, call.func, *([receiver] if receiver else []))


def _insert(name: str, *arguments: ast.expr) -> ast.Call:
    """A call of our function `name`, at the place of its first argument."""
    function = ast.copy_location(ast.Name(name, ast.Load()), arguments[0])
    return ast.copy_location(ast.Call(function, [*arguments], []), arguments[0])
