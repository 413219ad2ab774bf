"""Find the calls whose results a program uses as text. A result that is JSON is otherwise read as a value.

``read_file("package.json").replace(...)``, ``json.loads(read_file(...))`` and ``print(read_file(...))``
need the text as it came; ``search(...)["hits"]`` needs the JSON value. If the uses of a result do not
decide, or contradict each other, the program gets the JSON value, and `driver` tries the text if that
raises. Reads only syntax.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from enum import Enum

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
"""What keys look like: `"id" in result` tests for a key, `"not found" in result` searches a text."""


class Use(Enum):
    """What one use of a result says about it."""

    TEXT = "a string operation"
    PARSED = "the program parses the text itself, so it needs the text exactly as it came"
    VALUE = "an operation on lists or dicts"
    PRINTED = "only printed"
    UNDECIDED = "either"


def calls_read_as_text(tree: ast.Module, tools: Collection[str]) -> dict[tuple[int, str], bool]:
    """The calls whose results the program uses as text, by line of the statement and tool name.

    The value is True if the program parses the text. Variables of different scopes must have different names
    (`scopes.separate`).
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
    found: dict[tuple[int, str], set[Use]] = defaultdict(set)
    for call, name in calls:
        found[_line(call, parents), name] |= {
            Use.PRINTED if _is_printed(use, parents) else _classify(use, parents)
            for use in _uses_of(call, parents, uses)
        }
    return {
        place: Use.PARSED in kinds
        for place, kinds in found.items()
        if kinds == {Use.PRINTED} or (kinds & {Use.TEXT, Use.PARSED} and Use.VALUE not in kinds)
    }


def _uses_of(
    call: ast.expr, parents: dict[ast.AST, ast.AST], uses: dict[str, list[ast.expr]]
) -> Iterator[ast.expr]:
    """The expressions that use the result: the call itself, or the variable that stores it."""
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


def _classify(use: ast.expr, parents: dict[ast.AST, ast.AST]) -> Use:
    match parents[use]:
        case ast.Attribute(attr=name) if name in _TEXT_METHODS:
            return Use.TEXT
        case ast.Attribute(attr=name) if name in _VALUE_METHODS:
            return Use.VALUE
        case ast.Subscript(value=value, slice=ast.Constant(value=str())) if value is use:
            return Use.VALUE
        case ast.Call(
            func=ast.Name(id="isinstance"), args=[value, ast.Name(id="list" | "dict")]
        ) if value is use:
            return Use.VALUE
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name)) if name in _MATCHERS:
            return Use.TEXT
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[value, *_]) if (
            name in _PARSERS and value is use
        ):
            return Use.PARSED
        case ast.Compare(ops=[ast.Eq() | ast.NotEq()]) as compare:
            others = [side for side in (compare.left, *compare.comparators) if side is not use]
            return Use.TEXT if any(map(_is_string, others)) else Use.UNDECIDED
        case ast.Compare(left=ast.Constant(value=str(word)), ops=[ast.In() | ast.NotIn()]):
            return Use.UNDECIDED if _KEY.fullmatch(word) else Use.TEXT
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return Use.TEXT if _is_string(left if right is use else right) else Use.UNDECIDED
    return Use.UNDECIDED


def _is_printed(use: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    """Return True if the use is an argument of ``print``, perhaps as part of an f-string."""
    parent = parents[use]
    if isinstance(parent, ast.FormattedValue) and parent.format_spec is None:
        text = parents[parent]
        assert isinstance(text, ast.JoinedStr)
        use, parent = text, parents[text]
    match parent:
        case ast.Call(func=ast.Name(id="str"), args=[value]) if value is use:
            return _is_printed(parent, parents)
        case ast.Call(func=ast.Name(id="print"), args=args):
            return use in args
    return False


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _line(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> int:
    while not isinstance(node, ast.stmt):
        node = parents[node]
    return node.lineno
