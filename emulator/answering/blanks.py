"""Find arguments that are placeholders for a value that is still to be filled in: "<city name>", "YOUR_KEY",
``path/to/file``. A text that the conversation mentions is a value, and a text of several lines is content."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from emulator.answering.user_request import Request
from emulator.reading.python_syntax import called_tool
from emulator.reading.tool_names import ToolNames
from sandbox.parsing import parse, walk

_MAX_LENGTH = 120
_ELEMENTS = frozenset(
    "a b i p u s br hr td th tr ul ol li h1 h2 h3 em div img nav pre svg html head body main span "
    "table title style "
    "script strong button input form label section header footer article code details summary".split()
)
_BLANK = re.compile(
    r"\A\s*(?:<(?P<element>[A-Za-z][\w .,'/-]*)>(?:[/@:.]<[A-Za-z][\w .,'/-]*>)*|\[[A-Za-z][\w .'/-]*\]"
    r"|\{\{?\s*[A-Za-z][\w .'-]*\s*\}?\}|\.\.\.|…"
    r"|(?:your|my)[_ -][\w -]*(?:\.\w{1,8})?|x{3,}|(?:insert|enter)[_ ].*)\s*\Z",
    re.IGNORECASE,
)
_PART = re.compile(
    r"(?:^|[/\\])path[/\\]to(?:[/\\]|$)|\bYOUR_[A-Z_]+\b|<your[^>]*>|\byour_(?:api_key|token"
    r"|password|secret)\b"
    r"|<[a-z]+(?:[ _-][a-z]+)+>"
)
_HOST = re.compile(r"\bexample\.com\b", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    r"\s*(?P<name>\w+)(?:\s*:\s*str)?\s*=\s*(?P<quote>['\"])(?P<value>[^'\"\n]*)(?P=quote)\s*(?:#.*)?\Z"
)
_NAME = re.compile(r"YOUR_[A-Z_]+|[A-Z_]+_HERE")


def has_blank(
    code: str | ast.AST,
    names: ToolNames,
    request: Request,
    *,
    dots: bool,
    variables: Collection[str] = (),
) -> bool:
    """Return True if an argument of a tool's call in valid ``code`` is a blank, or one of ``variables``.

    Without ``dots``, ``f(x=...)`` is none: models copy it from the prompt (`example`) and mean a call.
    """
    tree = parse(code) if isinstance(code, str) else code
    return any(
        _is_blank(node, request, dots=dots) or (isinstance(node, ast.Name) and node.id in variables)
        for call in walk(tree)
        if isinstance(call, ast.Call) and called_tool(call, names)
        for node in _argument_nodes(call)
    )


def blank_variable(source: str, request: Request) -> str | None:
    """The variable to which a statement assigns a blank, or None."""
    assigned = _ASSIGNMENT.match(source)
    return assigned["name"] if assigned and is_blank(assigned["value"], request) else None


def is_blank(value: object, request: Request) -> bool:
    """Return True if a text is a blank."""
    if not isinstance(value, str) or len(value) > _MAX_LENGTH or "\n" in value.strip():
        return False
    found = _BLANK.match(value)
    html = found and (found["element"] or "").strip().lower() in _ELEMENTS
    if not ((found and not html) or _PART.search(value)):
        host = _HOST.search(value)
        return host is not None and not request.mentions(host.group())
    return value in ("...", "…") or not request.mentions(value)


def _argument_nodes(call: ast.Call) -> Iterator[ast.AST]:
    """The values that a call passes, also inside others. The keys of an object are names."""
    pending: list[ast.expr] = [*call.args, *(word.value for word in call.keywords)]
    for node in pending:
        match node:
            case ast.List(elts=values) | ast.Tuple(elts=values) | ast.Dict(values=values):
                pending += values
            case _:
                yield node


def _is_blank(node: ast.AST, request: Request, *, dots: bool) -> bool:
    match node:
        case ast.Constant(value=value):
            return dots if value is ... else is_blank(value, request)
        case ast.Name(id=name):
            return _NAME.fullmatch(name) is not None
    return False
