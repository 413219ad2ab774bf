"""Check that Monty runs a program exactly as CPython does.

Monty 1.4.0 agrees with CPython wherever it has a feature, with few exceptions. `check` refuses a program
that may meet one of them, before the program runs, so that no `except` of the program hides it:

* lazy iterators are lists (generator expressions, `map`, `filter`, `zip`, ...): allowed if the program
  cannot see the difference;
* a set keeps its insertion order: allowed if the program does not see the order;
* a class has no special methods except `__init__`; exceptions hold one text; `*=` makes a new list;
* of the library, and of the attributes of builtin types, only those in the tables of `facts`.

Reads only syntax. In doubt it refuses.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Collection
from typing import Any

from sandbox.engine import AWAITABLE
from sandbox.errors import Unsupported
from sandbox.monty.facts import (
    BUILTINS,
    DUMPS,
    EXACT,
    FOLDS,
    KNOWN,
    LAZY_CALLS,
    LAZY_VIEWS,
    METHODS,
    MODULES,
    MUTATORS,
    PURE,
    SEARCHES,
    SET_USES,
    MontyProgram,
)
from sandbox.parsing import walk


def check(tree: ast.Module, pausing: Collection[str]) -> None:
    """Raise Unsupported for the first feature that Monty may run differently than CPython.

    Calls of the names in ``pausing`` pause.
    """
    program = MontyProgram(tree, frozenset(pausing))
    if program.catches and any(name.startswith(AWAITABLE) for name in program.uses):
        raise Unsupported("monty ends all coroutines when one fails")
    for node in program.nodes:
        rule = _RULES.get(type(node))
        problem = rule(program, node) if rule else None
        if problem:
            raise Unsupported(f"monty has {problem}", getattr(node, "lineno", None))


# The rules. Each returns the problem of a node, or None.


def _generator(program: MontyProgram, node: ast.GeneratorExp) -> str | None:
    consumer = program.consumer(node)
    if consumer in EXACT or (consumer in FOLDS and not program.effects(node)):
        return None
    return "no lazy generator expressions"


def _call(program: MontyProgram, node: ast.Call) -> str | None:
    name = program.builtin(node.func)
    if name in LAZY_CALLS:
        return _mapped(program, node, name)
    if name in LAZY_VIEWS:
        return _view(program, node, name)
    if (rule := _CALLS.get(name or "")) is not None:
        return rule(program, node)
    if isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES and len(node.args) > 1:
        return f"another {node.func.attr}() of parts of texts"
    return None


def _mapped(program: MontyProgram, node: ast.Call, name: str) -> str | None:
    consumer, parent = program.consumer(node), program.parents[node]
    direct = isinstance(parent, ast.Call) and parent.args[:1] == [node]
    pure = bool(node.args) and (
        program.builtin(node.args[0]) in PURE
        or (isinstance(node.args[0], ast.Lambda) and not program.effects(node.args[0].body))
    )
    if direct and (consumer in EXACT or (consumer in FOLDS and pure)):
        return None
    return f"no lazy {name}()"


def _view(program: MontyProgram, node: ast.Call, name: str) -> str | None:
    consumer = program.consumer(node)
    if consumer in EXACT or consumer in FOLDS or consumer in ("any", "all"):
        return None
    if consumer in ("for", "comprehension"):
        loop = program.loop(node)
        parts = loop.body if isinstance(loop, ast.For) else [loop]
        if not program.mutates(*parts):
            return None
    return f"no lazy {name}()"


def _next(program: MontyProgram, node: ast.Call) -> str | None:
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Name) or program.builtin(getattr(first, "func", None)) == "iter":
        return None
    return "no next() of a lazy iterator"


def _print(_: MontyProgram, node: ast.Call) -> str | None:
    for word in node.keywords:
        stream = isinstance(word.value, ast.Attribute) and word.value.attr in ("stdout", "stderr")
        if word.arg not in ("sep", "end", "flush") and not (word.arg == "file" and stream):
            return "no print() to a file"
    return None


def _dumps(_: MontyProgram, node: ast.Call) -> str | None:
    unknown = {word.arg for word in node.keywords} - DUMPS
    return "not all arguments of json.dumps()" if unknown or len(node.args) > 1 else None


def _delta(program: MontyProgram, node: ast.Call) -> str | None:
    values = [*node.args, *(word.value for word in node.keywords)]
    whole = all(isinstance(each, ast.Constant) and isinstance(each.value, int) for each in values)
    return "no timedelta() of fractions" if program.catches and not whole else None


_CALLS: dict[str, Callable[[MontyProgram, ast.Call], str | None]] = {
    "next": _next,
    "pow": lambda _, node: "not all of pow()" if len(node.args) != 2 else None,
    "print": _print,
    "dumps": _dumps,
    "timedelta": _delta,
    "iter": lambda _, node: "no iter() of a function" if len(node.args) != 1 else None,
}


def _class(_: MontyProgram, node: ast.ClassDef) -> str | None:
    for decorator in node.decorator_list:
        if not (isinstance(decorator, ast.Name) and decorator.id == "dataclass"):
            return "no decorated classes"
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name, decorator_list=[]):
                if name.startswith("__") and name != "__init__":
                    return f"no {name}() in classes"
            case ast.AnnAssign() | ast.Assign() | ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                return "only plain methods and values in classes"
    return "no inheritance" if node.bases or node.keywords else None


def _attribute(program: MontyProgram, node: ast.Attribute) -> str | None:
    name = node.attr
    if isinstance(node.value, ast.Name) and node.value.id in program.modules:
        module = program.modules[node.value.id]
        return None if name in MODULES.get(module, ()) else f"no {module}.{name}"
    if name == "__name__":
        return None
    if name.startswith("__") or (name in KNOWN and name not in METHODS):
        return f"no attribute {name}"
    parent = program.parents[node]
    called = isinstance(parent, ast.Call) and parent.func is node
    kind = program.builtin(node.value)
    if kind in ("str", "list", "dict", "int", "float", "set") and name != "fromkeys":
        return f"no {kind}.{name} as a function"
    return f"no method {name} as a value" if name in MUTATORS and not called else None


def _import(_: MontyProgram, node: ast.Import) -> str | None:
    missing = [each.name for each in node.names if each.name not in MODULES]
    return f"no module {missing[0]}" if missing else None


def _import_from(_: MontyProgram, node: ast.ImportFrom) -> str | None:
    offered = MODULES.get(node.module or "", frozenset())
    missing = [each.name for each in node.names if each.name not in offered]
    return f"no {node.module}.{missing[0]}" if missing else None


def _name(program: MontyProgram, node: ast.Name) -> str | None:
    name, parent = node.id, program.parents[node]
    if name in program.pausing:
        if name in vars(builtins):
            return f"a builtin called {name!r}, and a function of the host has the same name"
        direct = isinstance(parent, ast.Call) and parent.func is node
        return (
            None
            if direct or not _as_callback(program, node)
            else f"no callbacks to the host, such as {name}"
        )
    if name in program.bound:
        direct = isinstance(parent, ast.Call) and parent.func is node
        calls = name in program.pausing_functions and not direct and _as_callback(program, node)
        return f"no callbacks to the host, such as {name}" if calls else None
    if name in vars(builtins) and name not in BUILTINS:
        return f"no {name}"
    return None


def _lambda(program: MontyProgram, node: ast.Lambda) -> str | None:
    calls = _as_callback(program, node) and program.may_pause(node.body)
    return "no callbacks to the host" if calls else None


def _as_callback(program: MontyProgram, node: ast.AST) -> bool:
    """Return True if a function is an argument of a call, rather than stored or returned."""
    return isinstance(program.parents[node], (ast.Call, ast.keyword, ast.Starred))


def _set(program: MontyProgram, node: ast.expr) -> str | None:
    """Sets differ only in their order."""
    if isinstance(node, ast.Call) and program.builtin(node.func) not in ("set", "frozenset"):
        return None
    if (
        isinstance(node, ast.Set)
        and len(node.elts) == 1
        and not isinstance(node.elts[0], ast.Starred)
    ):
        return None
    return None if _unordered(program, node) else "another order of sets"


def _unordered(program: MontyProgram, node: ast.expr) -> bool:
    """Return True if no use of the set ``node`` sees its order."""
    parent = program.parents[node]
    while isinstance(parent, (ast.BinOp, ast.BoolOp, ast.IfExp)):
        node, parent = parent, program.parents[parent]
    match parent:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is node:
            pass
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is node:
            pass
        case _:
            return _order_free(program, node)
    loads = [use for use in program.uses[name] if isinstance(use.ctx, ast.Load)]
    return all(_order_free(program, use) for use in loads)


def _order_free(program: MontyProgram, node: ast.expr) -> bool:
    """Return True if the operation on the set ``node`` does not depend on its order."""
    parent = program.parents[node]
    match parent:
        case ast.Call(func=ast.Name(id="sorted" | "len" | "bool")) if node in parent.args:
            return True
        case ast.Attribute(attr=name):
            called = program.parents[parent]
            return isinstance(called, ast.Call) and called.func is parent and name in SET_USES
    return isinstance(parent, (ast.Compare, ast.If, ast.While)) or (
        isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    )


def _scaled(_: MontyProgram, node: ast.AugAssign) -> str | None:
    number = isinstance(node.value, ast.Constant) and isinstance(node.value.value, float)
    return "another *= of lists" if isinstance(node.op, ast.Mult) and not number else None


def _handler(_: MontyProgram, node: ast.ExceptHandler) -> str | None:
    for inner in walk(node):
        match inner:
            case ast.Call(func=ast.Name(id="repr"), args=[ast.Name(id=name)]) if name == node.name:
                return "another repr of exceptions"
            case ast.FormattedValue(value=ast.Name(id=name), conversion=114) if name == node.name:
                return "another repr of exceptions"
    return None


def _raised(_: MontyProgram, node: ast.Raise) -> str | None:
    match node.exc:
        case ast.Call(args=[]) | ast.Call(args=[ast.Constant(value=str())] | [ast.JoinedStr()]):
            return None
        case ast.Call():
            return "only texts in exceptions"
    return None


def _constant(_: MontyProgram, node: ast.Constant) -> str | None:
    kind = type(node.value).__name__
    return f"not all of {kind}" if kind in ("bytes", "complex") else None


def _keys(_: MontyProgram, node: ast.Dict | ast.Subscript) -> str | None:
    for key in node.keys if isinstance(node, ast.Dict) else [node.slice]:
        if isinstance(key, ast.Constant) and isinstance(key.value, (bool, float, complex)):
            return "another way with keys that equal ones of another type"
    return None


def _awaited(program: MontyProgram, node: ast.Await) -> str | None:
    match node.value:
        case ast.Call(func=ast.Name(id=name)) if name in program.coroutines:
            return None
        case ast.Call(func=ast.Name(id=name)) if name.startswith(AWAITABLE):
            return None
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module))) if module in program.modules:
            return None
    return "no event loop: it awaits only calls, own coroutines and asyncio.gather"


_RULES: dict[type[ast.AST], Callable[[MontyProgram, Any], str | None]] = {
    ast.GeneratorExp: _generator,
    ast.ClassDef: _class,
    ast.Attribute: _attribute,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Name: _name,
    ast.Lambda: _lambda,
    ast.Set: _set,
    ast.SetComp: _set,
    ast.AugAssign: _scaled,
    ast.ExceptHandler: _handler,
    ast.Raise: _raised,
    ast.Constant: _constant,
    ast.Dict: _keys,
    ast.Subscript: _keys,
    ast.Call: lambda program, node: _call(program, node) or _set(program, node),
    ast.Await: _awaited,
    ast.AsyncFor: lambda *_: "no async for",
    ast.AsyncWith: lambda *_: "no async with",
    ast.Yield: lambda *_: "no yield",
    ast.YieldFrom: lambda *_: "no yield from",
    ast.Delete: lambda *_: "no del",
    ast.TryStar: lambda *_: "no except*",
}
