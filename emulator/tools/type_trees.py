"""Type trees: the form to which a schema is reduced, and how Python writes it.

A tree is JSON Schema again, but only ``$ref`` to a model, ``enum``, ``anyOf``, arrays,
dictionaries, and scalars with their bounds. Signatures, model source and messages are all written
from this form, so they cannot disagree. `schema_models.Catalog` reads schemas into trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emulator.tools.schema import Schema, kind_of
from emulator.tools.validator import same

TypeTree = dict[str, Any]

MAX_CHOICES = 60
MAX_CHOICE_CHARACTERS = 2_000
MAX_DEFAULT = 80

_BOUNDS: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems"),
}

SCALARS = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function or one field of a model."""

    name: str
    """On the wire."""
    python_name: str
    schema: Schema
    required: bool
    tree: TypeTree

    @property
    def annotation(self) -> str:
        """The Python type, ``Literal["C", "F"] | None``."""
        return annotation(self.tree)

    def remark(self, keyword: str) -> str | None:
        """Return the title or description of this parameter itself, not of the definition it refers
        to.
        """
        return self.schema.get(keyword) if isinstance(self.schema, dict) else None

    @property
    def default(self) -> Any:
        """The tool's default. It is shown to the model, never put into arguments."""
        return self.schema.get("default") if isinstance(self.schema, dict) else None

    @property
    def shows_default(self) -> bool:
        """True if the default can be written in source: short, and of the parameter's type."""
        return (
            self.default is not None
            and len(repr(self.default)) <= MAX_DEFAULT
            and _is_of(self.default, self.tree)
        )


def quote(text: str) -> str:
    """A text as a Python literal in double quotes; in single ones if it contains a double quote."""
    return repr(text) if '"' in text else '"' + repr("'" + text)[2:]


def annotation(tree: TypeTree) -> str:
    """Return a tree as a Python annotation: ``list[Person] | None``."""
    if "$ref" in tree:
        return str(tree["$ref"])
    if "enum" in tree:
        written = (quote(v) if isinstance(v, str) else repr(v) for v in tree["enum"])
        return f"Literal[{', '.join(written)}]"
    if "anyOf" in tree:
        return " | ".join(map(annotation, tree["anyOf"]))
    kind = tree.get("type")
    if kind == "array":
        if "prefixItems" in tree:
            return f"tuple[{', '.join(map(annotation, tree['prefixItems']))}]"
        return f"list[{annotation(tree['items'])}]" if "items" in tree else "list"
    if kind == "object":
        values = tree.get("additionalProperties")
        return f"dict[str, {annotation(values)}]" if values else "dict[str, Any]"
    return SCALARS.get(str(kind), "Any")


def _is_of(value: Any, tree: TypeTree) -> bool:
    """Return True if `value` has the outermost type of `tree`."""
    if "enum" in tree:
        return any(same(value, each) for each in tree["enum"])
    if "anyOf" in tree:
        return any(_is_of(value, part) for part in tree["anyOf"])
    if "$ref" in tree:
        return False  # a dict as the default of a model would teach the wrong syntax
    kind = _kind_of(value)
    return kind == tree.get("type", kind) or (kind == "integer" and tree.get("type") == "number")


def choice(values: list[Any]) -> TypeTree:
    """Return a tree of `values`, or only of their types if there are too many or source cannot
    express them.
    """
    if None in values and len(values) > 1:
        return {"anyOf": [choice([v for v in values if v is not None]), {"type": "null"}]}
    if (
        all(isinstance(v, str | int | None) for v in values)
        and len(values) <= MAX_CHOICES
        and sum(len(repr(v)) for v in values) <= MAX_CHOICE_CHARACTERS
    ):
        return {"type": "null"} if values == [None] else {"enum": values}
    kinds = list(dict.fromkeys(map(_kind_of, values)))
    return {"type": kinds[0]} if len(kinds) == 1 else {"anyOf": [{"type": k} for k in kinds]}


def _kind_of(value: object) -> str:
    return "integer" if type(value) is int else kind_of(value)


def bounds(view: dict[str, Any], kind: str) -> TypeTree:
    """Return the bounds in an expanded schema for a value of type `kind`."""
    return {k: view[k] for k in _BOUNDS.get(kind, ()) if k in view}
