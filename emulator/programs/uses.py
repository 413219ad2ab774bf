"""Which results a program treats as text: one that is JSON is a value for code, unless code says otherwise.

``read_file("package.json").replace(...)``, ``json.loads(read_file(...))`` and ``print(read_file(...))`` want
the text as it came, and ``search(...)["hits"]`` wants what it says. Pure AST; where the uses of a result do
not tell, or tell both, the value is what JSON says, and `driver` tries the text should that fail. It knows
nothing of results.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator

from sandbox.parsing import children, walk

_TEXT_METHODS = frozenset(name for name in dir(str) if not name.startswith("_")) - frozenset(
    {"index", "count"}
)
_VALUE_METHODS = frozenset(
    name for kind in (list, dict) for name in dir(kind) if not name.startswith("_")
) - frozenset({"index", "count"})
_PARSERS = frozenset("loads safe_load literal_eval fromstring StringIO reader DictReader".split())
_MATCHERS = frozenset("search match fullmatch findall finditer sub subn split".split())


_KEY = re.compile(r"[\w.-]*")
"""What the keys of records look like; `"not found" in result` looks for words in a text."""

_SHOWN = "shown"
"""The sign of a use that only prints the result."""
_PARSED = "parsed"
"""The sign of a use that takes the text apart by itself."""


def read_as_text(tree: ast.Module, tools: Collection[str]) -> dict[tuple[int, str], bool]:
    """The calls whose results are text to the program: line of the statement, and the tool's name.

    True where it parses the text, so that it has to be the text as it came.

    Variables must have names of their own (`scopes.separate`).
    """
    parents: dict[ast.AST, ast.AST] = {}
    uses: dict[str, list[ast.expr]] = defaultdict(list)
    calls: list[tuple[ast.Call, str]] = []
    for node in walk(tree):
        for child in children(node):
            parents[child] = node
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                uses[name].append(node)
            case ast.Call(func=ast.Name(id=name)) if name in tools:
                calls.append((node, name))
    found: dict[tuple[int, str], set[object]] = defaultdict(set)
    for call, name in calls:
        found[_line(call, parents), name] |= {
            _SHOWN if _is_shown(use, parents) else _sign(use, parents)
            for use in _uses_of(call, parents, uses)
        }
    return {
        place: _PARSED in signs
        for place, signs in found.items()
        if signs == {_SHOWN} or (signs - {_SHOWN, None} and False not in signs)
    }


def _uses_of(
    call: ast.expr, parents: dict[ast.AST, ast.AST], uses: dict[str, list[ast.expr]]
) -> Iterator[ast.expr]:
    """Where the result is used: in place, or through the variable that it is given to."""
    node: ast.AST = call
    while isinstance(parents[node], ast.Await):
        node = parents[node]
    match parents[node]:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield from uses[name]
        case ast.NamedExpr(target=ast.Name(id=name)) as named:
            yield from [*uses[name], named]
        case _ if isinstance(node, ast.expr):
            yield node


def _sign(use: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool | str | None:
    """True where the use is one of a text, False where it is one of a value; None where it may be either."""
    match parents[use]:
        case ast.Attribute(attr=name):
            if name in _TEXT_METHODS:
                return True
            return False if name in _VALUE_METHODS else None
        case ast.Subscript(value=value, slice=ast.Constant(value=str())) if value is use:
            return False
        case ast.Call(func=ast.Name(id="isinstance"), args=[value, kind]) if value is use:
            return False if isinstance(kind, ast.Name) and kind.id in ("list", "dict") else None
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name)):
            return True if name in _MATCHERS else None
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[value, *_]):
            return _PARSED if name in _PARSERS and value is use else None
        case ast.Compare(ops=[ast.Eq() | ast.NotEq()]) as compared:
            others = [side for side in (compared.left, *compared.comparators) if side is not use]
            return True if any(map(_is_text, others)) else None
        case ast.Compare(left=ast.Constant(value=str(word)), ops=[ast.In() | ast.NotIn()]):
            return None if _KEY.fullmatch(word) else True
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return True if _is_text(left if right is use else right) else None
    return None


def _is_shown(use: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether the use only prints the result: in a ``print``, or in a text that is printed."""
    parent = parents[use]
    if isinstance(parent, ast.FormattedValue) and parent.format_spec is None:
        text = parents[parent]
        assert isinstance(text, ast.JoinedStr)
        use, parent = text, parents[text]
    match parent:
        case ast.Call(func=ast.Name(id="str"), args=[value]) if value is use:
            return _is_shown(parent, parents)
        case ast.Call(func=ast.Name(id="print"), args=args):
            return use in args
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _line(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> int:
    while not isinstance(node, ast.stmt):
        node = parents[node]
    return node.lineno
