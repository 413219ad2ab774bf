"""Nested objects as named models, and the Python type of any schema.

A `Catalog` belongs to one toolset. Reading a tool's parameters through it turns every schema into
a *tree*: JSON Schema again, but only ``$ref`` to a model, ``enum``, ``anyOf``, arrays, dictionaries
and scalars with their bounds. Signatures, model source and messages are all written from that one
reading, so they cannot disagree. Objects which say the same become one model, also across tools.

Writes no source (`stubs` and `codegen` do) and judges no value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emulator import names, shapes
from emulator.guards import Definitions, Schema, children, reference
from emulator.judge import same

Tree = dict[str, Any]

MAX_CHOICES = 60
MAX_CHOICE_CHARACTERS = 2_000
MAX_MODELS = 300
#: Schemas read for one tool. Lists of lists of one another have more paths than anyone can walk.
MAX_TREES = 20_000
MAX_SEEN = 20
MAX_DEFAULT = 80

#: What a schema says *about* a value, which makes it no other kind of value.
_REMARKS = ("title", "description", "default", "examples")

_BOUNDS: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems"),
}

_SCALARS = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function or one field of a model."""

    name: str
    """On the wire."""
    python_name: str
    schema: Schema
    required: bool
    tree: Tree

    @property
    def annotation(self) -> str:
        """The Python type, ``Literal['C', 'F'] | None``."""
        return annotation(self.tree)

    def remark(self, keyword: str) -> str | None:
        """A title or description of this very parameter, not of the definition it refers to."""
        return self.schema.get(keyword) if isinstance(self.schema, dict) else None

    @property
    def default(self) -> Any:
        """What the tool does by default; told to the model, never put into arguments."""
        return self.schema.get("default") if isinstance(self.schema, dict) else None

    @property
    def shows_default(self) -> bool:
        """Whether the default can stand in source: short, and of the parameter's type."""
        return (
            self.default is not None
            and len(repr(self.default)) <= MAX_DEFAULT
            and _is_of(self.default, self.tree)
        )


@dataclass(frozen=True)
class Model:
    """A nested object with named fields; its name is unique in the toolset."""

    name: str
    fields: tuple[Parameter, ...]
    open: bool
    """Whether members beside the fields are welcome."""
    description: str


class Catalog:
    """The models of one toolset, in the order in which they were met."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._taken = set(taken)
        self._names: dict[str, str] = {}
        self._models: dict[str, Model] = {}
        self._keys: dict[tuple[int, str], tuple[Definitions, str]] = {}
        self._waiting: list[tuple[str, Schema, Definitions]] = []
        self._budget = MAX_TREES

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(self._models[name] for name in self._names.values())

    def parameters(self, schema: Schema, definitions: Definitions) -> tuple[Parameter, ...]:
        """The members of an object schema as parameters, in schema order."""
        self._budget = MAX_TREES
        parameters = tuple(self._fields(shapes.members(schema, definitions), definitions))
        while self._waiting:  # models in models: not by recursion, a chain of them may be long
            name, described, its_definitions = self._waiting.pop(0)
            self._models[name] = self._described(name, described, its_definitions)
        return parameters

    def tree(
        self,
        schema: Schema,
        definitions: Definitions,
        hint: str = "",
        *,
        item: bool = False,
        seen: shapes.Seen = frozenset(),
    ) -> Tree:
        """The kind of value that `schema` describes; `hint` names a model that has no title."""
        self._budget -= 1
        if self._budget < 0 or len(seen) > MAX_SEEN:
            return {}
        view, passed = shapes.expand_seen(schema, definitions, seen)
        if "const" in view:
            return _choice([view["const"]])
        if "enum" in view:
            return _choice(view["enum"])
        if shapes.branches(view) and "properties" not in view:
            return self._union(shapes.alternatives(view), definitions, hint, item, passed)
        kinds = shapes.types(view)
        if len(kinds) > 1:
            each = ({**view, "type": kind} for kind in kinds)
            return self._union(each, definitions, hint, item, passed)
        if not kinds or view.get("not") == {}:
            return {}
        if kinds[0] == "array":
            return self._array(view, definitions, hint, passed)
        if kinds[0] == "object":
            inside = shapes.members(view, definitions, passed)
            if inside.properties and len(self._names) < MAX_MODELS:
                return {"$ref": self._model(schema, definitions, hint, item)}
            return self._dictionary(view, definitions, hint, passed)
        return {"type": kinds[0], **_bounds(view, kinds[0])}

    def _union(
        self,
        parts: Iterator[Schema],
        definitions: Definitions,
        hint: str,
        item: bool,
        seen: shapes.Seen,
    ) -> Tree:
        trees: list[Tree] = []
        for part in parts:
            tree = self.tree(part, definitions, hint, item=item, seen=seen)
            for one in tree.get("anyOf", [tree]):
                if one not in trees:
                    trees.append(one)
        if not trees or {} in trees:
            return {}
        trees.sort(key=lambda one: one == {"type": "null"})
        return trees[0] if len(trees) == 1 else {"anyOf": trees}

    def _array(
        self, view: dict[str, Any], definitions: Definitions, hint: str, seen: shapes.Seen
    ) -> Tree:
        tree: Tree = {"type": "array", **_bounds(view, "array")}
        first = view.get("prefixItems")
        rest = view.get("items")
        if first and rest in (None, False):
            tree["prefixItems"] = [
                self.tree(part, definitions, hint, item=True, seen=seen) for part in first
            ]
        elif first:
            every = iter([*first, rest])
            tree["items"] = self._union(every, definitions, hint, True, seen)
        elif isinstance(rest, dict):
            tree["items"] = self.tree(rest, definitions, hint, item=True, seen=seen)
        return tree

    def _dictionary(
        self, view: dict[str, Any], definitions: Definitions, hint: str, seen: shapes.Seen
    ) -> Tree:
        values = [*view.get("patternProperties", {}).values()]
        extra = view.get("additionalProperties")
        if isinstance(extra, dict) or (extra is True and values):
            values.append(extra)
        if not values:
            return {"type": "object"}
        return {
            "type": "object",
            "additionalProperties": self._union(iter(values), definitions, hint, True, seen),
        }

    def _model(self, schema: Schema, definitions: Definitions, hint: str, item: bool) -> str:
        bare = _bare(schema)
        key = self._key(bare, definitions)
        if key not in self._names:
            # A definition is described where it stands, an object in place where it is used: there
            # the parameter's own remark says it.
            referred = reference(bare)
            about = shapes.expand(bare if referred else schema, definitions)
            title = about.get("title", referred)
            name = names.class_name(title, hint, self._taken, item=item)
            self._taken.add(name)
            self._names[key] = name
            self._waiting.append((name, bare if referred else schema, definitions))
        return self._names[key]

    def _described(self, name: str, schema: Schema, definitions: Definitions) -> Model:
        inside = shapes.members(schema, definitions)
        about = shapes.expand(schema, definitions) if reference(schema) else {}
        return Model(
            name,
            tuple(self._fields(inside, definitions)),
            open=inside.extra not in (None, False),
            description=about.get("description", ""),
        )

    def _key(self, bare: Schema, definitions: Definitions) -> str:
        """Equal for objects that say the same, in whichever tool."""
        written = json.dumps(bare, sort_keys=True)
        known = self._keys.get((id(definitions), written))
        if known is None:
            closure = json.dumps(_closure(bare, definitions), sort_keys=True)
            digest = hashlib.sha256(f"{written}\n{closure}".encode()).hexdigest()
            known = self._keys[(id(definitions), written)] = (definitions, digest)
        return known[1]

    def _fields(self, inside: shapes.Members, definitions: Definitions) -> Iterator[Parameter]:
        python_names = names.parameter_names(inside.properties)
        for name, schema in inside.properties.items():
            yield Parameter(
                name,
                python_names[name],
                schema,
                name in inside.required,
                self.tree(schema, definitions, hint=name),
            )


def annotation(tree: Tree) -> str:
    """A tree as Python writes it: ``list[Person] | None``."""
    if "$ref" in tree:
        return str(tree["$ref"])
    if "enum" in tree:
        return f"Literal[{', '.join(map(repr, tree['enum']))}]"
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
    return _SCALARS.get(str(kind), "Any")


def _is_of(value: Any, tree: Tree) -> bool:
    """Whether `value` is of the outermost type of `tree`."""
    if "enum" in tree:
        return any(same(value, choice) for choice in tree["enum"])
    if "anyOf" in tree:
        return any(_is_of(value, part) for part in tree["anyOf"])
    if "$ref" in tree:
        return False  # a dict where the stub shows a model would teach the wrong spelling
    kind = _kind_of(value)
    return kind == tree.get("type", kind) or (kind == "integer" and tree.get("type") == "number")


def _choice(values: list[Any]) -> Tree:
    if None in values and len(values) > 1:
        return {"anyOf": [_choice([v for v in values if v is not None]), {"type": "null"}]}
    if (
        all(isinstance(v, str | int | None) for v in values)
        and len(values) <= MAX_CHOICES
        and sum(len(repr(v)) for v in values) <= MAX_CHOICE_CHARACTERS
    ):
        return {"type": "null"} if values == [None] else {"enum": values}
    kinds = list(dict.fromkeys(map(_kind_of, values)))
    return {"type": kinds[0]} if len(kinds) == 1 else {"anyOf": [{"type": k} for k in kinds]}


def _kind_of(value: object) -> str:
    for python, kind in _KINDS:
        if isinstance(value, python):
            return kind
    return "null"


_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def _bounds(view: dict[str, Any], kind: str) -> Tree:
    return {k: view[k] for k in _BOUNDS.get(kind, ()) if k in view}


def _bare(schema: Schema) -> Schema:
    """`schema` without remarks, and without an ``allOf`` that holds but one schema."""
    if not isinstance(schema, dict):
        return schema
    bare = {k: v for k, v in schema.items() if k not in _REMARKS and k != "$defs"}
    if bare.keys() == {"allOf"} and len(bare["allOf"]) == 1:
        return _bare(bare["allOf"][0])
    return bare


def _closure(schema: Schema, definitions: Definitions) -> dict[str, Schema]:
    """The definitions that `schema` leads to."""
    found: dict[str, Schema] = {}
    waiting: list[Schema] = [schema]
    while waiting:
        node = waiting.pop()
        name = reference(node)
        if name is not None and name not in found:
            found[name] = definitions.get(name, {})
            waiting.append(found[name])
        waiting.extend(children(node))
    return found
