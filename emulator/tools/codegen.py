"""Source of Pydantic v2 models for a prompt: what a model reads of the objects nested in its tools.

It is read and never executed. A test holds it to what datamodel-code-generator writes of the same models,
whose import takes a quarter of a second and 25 MiB, and each run some 10 ms.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from emulator.tools.models import Model
from emulator.tools.trees import Parameter, Tree

MAX_REMARK = 600

_KINDS = {
    "string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None",
}  # fmt: skip
_BOUNDS = {
    "minimum": "ge", "exclusiveMinimum": "gt", "maximum": "le", "exclusiveMaximum": "lt",
    "maxLength": "max_length", "maxItems": "max_length",
    "minLength": "min_length", "minItems": "min_length",
    "multipleOf": "multiple_of", "pattern": "pattern",
}  # fmt: skip
"""Keywords of a tree, and Pydantic's words for them."""
_LARGEST = 1e300
"""A bound that is larger is told to nobody: it may be no float."""
_ENDS: tuple[tuple[str, str, Callable[[float], int], Callable[[Iterable[int]], int]], ...] = (
    ("minimum", "exclusiveMinimum", math.ceil, max),
    ("maximum", "exclusiveMaximum", math.floor, min),
)


def source(models: Sequence[Model]) -> str:
    """One class statement for each model, in order; "" for none."""
    return "\n\n\n".join(map(_class, models))


def _class(model: Model) -> str:
    lines = [f"class {model.name}(BaseModel):"]
    if model.description:
        lines += _docstring(model.description[:MAX_REMARK])
    if model.open:
        lines.append("    model_config = ConfigDict(extra='allow')")
    lines += [f"    {_field(field)}" for field in model.fields]
    return "\n".join(lines)


def _docstring(text: str) -> list[str]:
    """Its lines, indented; one that ends or quotes as it should is for `ast` to write."""
    body: list[ast.stmt] = [ast.Expr(ast.Constant(text))]
    alone = ast.ClassDef("C", bases=[], keywords=[], body=body, decorator_list=[])
    return ast.unparse(ast.fix_missing_locations(alone)).split("\n")[1:]


def _field(field: Parameter) -> str:
    """``days: Annotated[int | None, Field(description='How many.', ge=1)] = 3``"""
    tree = field.tree if field.required else {"anyOf": [field.tree, {"type": "null"}]}
    written = _type(tree)
    about = [f"{word}={value}" for word, value in sorted(_about(field))]
    if about:
        written = f"Annotated[{written}, Field({', '.join(about)})]"
    if field.required:
        return f"{field.python_name}: {written}"
    default = field.default if _stands_in_source(field) else None
    return f"{field.python_name}: {written} = {default!r}"


def _stands_in_source(field: Parameter) -> bool:
    plain = isinstance(field.default, str | int | float)
    return plain and field.shows_default and not field.required


def _about(field: Parameter) -> Iterator[tuple[str, str]]:
    """What `Field` is told, by keyword, as source."""
    if words := _remarks(field):
        yield "description", repr(words)
    tree = field.tree
    if len(parts := tree.get("anyOf", ())) == 2 and parts[1] == {"type": "null"}:
        tree = parts[0]  # bounds stand only where there is but one kind that they can be of
    tree = {k: v for k, v in tree.items() if not isinstance(v, int | float) or abs(v) < _LARGEST}
    if tree.get("type") == "integer":
        tree = _of_integers(tree)
    for keyword, word in _BOUNDS.items():
        if keyword in tree:
            value = tree[keyword]
            if isinstance(value, float) and tree["type"] != "number" and value.is_integer():
                value = int(value)
            yield word, repr(float(value) if tree["type"] == "number" else value)


def _of_integers(tree: Tree) -> Tree:
    """A bound between two integers is the nearest of them that is allowed."""
    told = dict(tree)
    for inclusive, exclusive, nearest, tightest in _ENDS:
        between = [told.pop(exclusive)] if told.get(exclusive, 0) % 1 else []
        if found := [*([told[inclusive]] if inclusive in told else []), *between]:
            told[inclusive] = tightest(map(nearest, found))
    return told


def _remarks(field: Parameter) -> str:
    """The description, and what of the schema the rest of the line does not say."""
    notes = [(field.remark("description") or "")[:MAX_REMARK]]
    if isinstance(field.schema, dict) and isinstance(field.schema.get("format"), str):
        notes.append(f"(format: {field.schema['format'][:40]})")
    if field.default is not None and not _stands_in_source(field):
        notes.append(f"(default: {json.dumps(field.default)[:100]})")
    return " ".join(note for note in notes if note)


def _type(tree: Tree) -> str:
    return " | ".join(_parts(tree))


def _parts(tree: Tree) -> list[str]:
    """The kinds of value that it may be, each once, and ``None`` last."""
    return sorted(dict.fromkeys(_each(tree)), key="None".__eq__)


def _each(tree: Tree) -> Iterator[str]:
    if "$ref" in tree:
        yield tree["$ref"]
    elif "anyOf" in tree:
        for part in tree["anyOf"]:
            yield from _each(part)
    elif "enum" in tree:
        yield f"Literal[{', '.join(map(repr, tree['enum']))}]"
    elif tree.get("type") == "array":
        yield f"list[{_items(tree)}]"
    elif tree.get("type") == "object":
        yield f"dict[str, {_type(tree.get('additionalProperties') or {})}]"
    else:
        yield _KINDS.get(tree.get("type", ""), "Any")


def _items(tree: Tree) -> str:
    """Of a list; those of a tuple may each be of any of its kinds."""
    if "prefixItems" in tree:
        return _type({"anyOf": tree["prefixItems"]})
    return _type(tree.get("items", {}))
