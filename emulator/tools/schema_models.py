"""Read schemas into type trees, and name the objects nested in them: the models of a toolset.

A `Catalog` belongs to one toolset. Objects with equal schemas become one model, also across tools.

Writes no source (`stubs` and `codegen` do) and validates no value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from emulator.tools import expansion, names
from emulator.tools.schema import Definitions, Schema, children, reference
from emulator.tools.type_trees import Parameter, TypeTree, bounds, choice

MAX_MODELS = 300
#: Limit of schemas read for one tool: mutually recursive lists have exponentially many paths.
MAX_TREES = 20_000
MAX_SEEN = 20
#: Models that refer to more definitions than this are not compared with those of other tools.
MAX_SHARED = 100

#: Keywords that describe a value without changing its type.
_REMARKS = ("title", "description", "default", "examples")


@dataclass(frozen=True)
class SchemaModel:
    """A nested object with named fields; its name is unique in the toolset."""

    name: str
    fields: tuple[Parameter, ...]
    open: bool
    """True if members other than the fields are allowed."""
    description: str


class Catalog:
    """The models of one toolset, in the order in which they were found."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._taken = set(taken)
        self._names: dict[str, str] = {}
        self._models: dict[str, SchemaModel] = {}
        self._keys: dict[tuple[int, str], tuple[Definitions, str]] = {}
        self._pending: list[tuple[str, Schema, Definitions]] = []
        self._budget = MAX_TREES

    @property
    def models(self) -> tuple[SchemaModel, ...]:
        return tuple(self._models[name] for name in self._names.values())

    def parameters(self, schema: Schema, definitions: Definitions) -> tuple[Parameter, ...]:
        """Return the members of an object schema as parameters, in schema order."""
        self._budget = MAX_TREES
        parameters = tuple(self._fields(expansion.members(schema, definitions), definitions))
        while self._pending:  # nested models: not recursive, because a chain of them may be long
            name, described, its_definitions = self._pending.pop(0)
            self._models[name] = self._build_model(name, described, its_definitions)
        return parameters

    def tree(
        self,
        schema: Schema,
        definitions: Definitions,
        hint: str = "",
        *,
        item: bool = False,
        seen: expansion.ModelView = frozenset(),
    ) -> TypeTree:
        """Return the type tree of `schema`; `hint` is used to name a model without a title."""
        self._budget -= 1
        if self._budget < 0 or len(seen) > MAX_SEEN:
            return {}
        view, passed = expansion.expand_seen(schema, definitions, seen)
        if "const" in view:
            return choice([view["const"]])
        if "enum" in view:
            return choice(view["enum"])
        if expansion.branches(view) and "properties" not in view:
            return self._union(expansion.alternatives(view), definitions, hint, item, passed)
        kinds = expansion.types(view)
        if len(kinds) > 1:
            each = ({**view, "type": kind} for kind in kinds)
            return self._union(each, definitions, hint, item, passed)
        if not kinds or view.get("not") == {}:
            return {}
        if kinds[0] == "array":
            return self._array(view, definitions, hint, passed)
        if kinds[0] == "object":
            inside = expansion.members(view, definitions, passed)
            if inside.properties and len(self._names) < MAX_MODELS:
                return {"$ref": self._model(schema, definitions, hint, item)}
            return self._dictionary(view, definitions, hint, passed)
        return {"type": kinds[0], **bounds(view, kinds[0])}

    def _union(
        self,
        parts: Iterator[Schema],
        definitions: Definitions,
        hint: str,
        item: bool,
        seen: expansion.ModelView,
    ) -> TypeTree:
        trees: list[TypeTree] = []
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
        self, view: dict[str, Any], definitions: Definitions, hint: str, seen: expansion.ModelView
    ) -> TypeTree:
        tree: TypeTree = {"type": "array", **bounds(view, "array")}
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
        self, view: dict[str, Any], definitions: Definitions, hint: str, seen: expansion.ModelView
    ) -> TypeTree:
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
        bare = _without_remarks(schema)
        key = self._key(bare, definitions)
        if key not in self._names:
            # A definition is described by its own remarks, an inline object by those of the parameter.
            referred_name = reference(bare)
            about = expansion.expand(bare if referred_name else schema, definitions)
            title = about.get("title", referred_name)
            name = names.class_name(title, hint, self._taken, item=item)
            self._taken.add(name)
            self._names[key] = name
            self._pending.append((name, bare if referred_name else schema, definitions))
        return self._names[key]

    def _build_model(self, name: str, schema: Schema, definitions: Definitions) -> SchemaModel:
        inside = expansion.members(schema, definitions)
        about = expansion.expand(schema, definitions) if reference(schema) else {}
        return SchemaModel(
            name,
            tuple(self._fields(inside, definitions)),
            open=inside.extra not in (None, False),
            description=about.get("description", ""),
        )

    def _key(self, bare: Schema, definitions: Definitions) -> str:
        """Return a key that is equal for objects with equal schemas, in any tool."""
        written = json.dumps(bare, sort_keys=True)
        cached = self._keys.get((id(definitions), written))
        if cached is None:
            reached = _reachable_definitions(bare, definitions)
            identity = id(definitions) if len(reached) >= MAX_SHARED else 0
            closure = "" if identity else json.dumps(reached, sort_keys=True)
            digest = hashlib.sha256(f"{identity}\n{written}\n{closure}".encode()).hexdigest()
            cached = self._keys[(id(definitions), written)] = (definitions, digest)
        return cached[1]

    def _fields(self, inside: expansion.Members, definitions: Definitions) -> Iterator[Parameter]:
        python_names = names.parameter_names(inside.properties)
        for name, schema in inside.properties.items():
            yield Parameter(
                name,
                python_names[name],
                schema,
                name in inside.required,
                self.tree(schema, definitions, hint=name),
            )


def _without_remarks(schema: Schema) -> Schema:
    """Return `schema` without remarks, and without an ``allOf`` of a single schema."""
    if not isinstance(schema, dict):
        return schema
    bare = {k: v for k, v in schema.items() if k not in _REMARKS and k != "$defs"}
    if bare.keys() == {"allOf"} and len(bare["allOf"]) == 1:
        return _without_remarks(bare["allOf"][0])
    return bare


def _reachable_definitions(schema: Schema, definitions: Definitions) -> dict[str, Schema]:
    """Return the first `MAX_SHARED` definitions that `schema` refers to, directly or indirectly."""
    found: dict[str, Schema] = {}
    pending: list[Schema] = [schema]
    while pending and len(found) < MAX_SHARED:
        node = pending.pop()
        name = reference(node)
        if name is not None and name not in found:
            found[name] = definitions.get(name, {})
            pending.append(found[name])
        pending.extend(children(node))
    return found
