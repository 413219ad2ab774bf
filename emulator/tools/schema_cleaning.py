"""Clean a client's JSON Schema: refuse what is dangerous, rewrite what is outdated.

The result is plain JSON Schema 2020-12: only keywords listed here, every ``$ref`` in the form
``#/$defs/NAME`` with a NAME that is a Python identifier, only definitions that are used. This also
protects the proxy: datamodel-code-generator reads local files through ``$ref`` and ``$id``.

Knows nothing of tools, Python signatures or argument values.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from emulator.tools import dialects, names
from emulator.tools.expansion import STRICT
from emulator.tools.problems import shorten
from emulator.tools.schema import (
    SCHEMA_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    Definitions,
    Schema,
    SchemaError,
    at,
    guard,
    guard_application,
    kind_of,
)
from emulator.tools.validator import compile_validator, enforceable

_PLAIN_KEYWORDS = (
    "contentEncoding",
    "contentMediaType",
    "dependentRequired",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "uniqueItems",
)


def clean_schema(parameters: object, param: str, *, strict: bool = False) -> dict[str, Any]:
    """Return a tool's `parameters` as self-contained JSON Schema 2020-12 of an object.

    Absent, null or empty parameters mean a tool without parameters. `param` is the place in the
    request, for errors: ``tools[0].function.parameters``. `strict`: the client's flag, after which
    a required member that may be null may be omitted (`expansion.Members`). Raises SchemaError.
    """
    if parameters is None or parameters == {}:
        return {"type": "object", "properties": {}}
    guard(parameters, param)
    if not isinstance(parameters, dict):
        raise SchemaError(f"parameters must be an object, not {kind_of(parameters)}", param)
    _guard_shape(parameters, param)
    cleaned = _Cleaner(parameters, param, strict=strict).clean_schema()
    guard_application(cleaned, param)
    compile_validator(cleaned, param)
    return cleaned


class _Cleaner:
    """One pass over one schema. Definitions are cleaned when their first use is found."""

    def __init__(self, root: dict[str, Any], param: str, *, strict: bool) -> None:
        # A reference must start with "#", so the root's own name has no effect.
        self.root = {keyword: part for keyword, part in root.items() if keyword != "$id"}
        self.param = param
        self.strict = strict
        self.definition_names: dict[tuple[str, ...], str] = {}
        self.pending: list[tuple[str, object, str]] = []

    def clean_schema(self) -> dict[str, Any]:
        root = self.schema(self.root, self.param)
        assert isinstance(root, dict)
        definitions: dict[str, Schema] = {}
        while self.pending:
            name, target, place = self.pending.pop()
            definitions[name] = self.schema(target, place)
        root = _as_object(root, definitions, self.param)
        if () in self.definition_names:
            # "#" means the whole schema: give it a name, so that a part can be validated alone.
            name = self.definition_names[()]
            definitions[name] = root
        self._guard_unused()
        if definitions:
            root = {**root, "$defs": dict(sorted(definitions.items()))}
        return root

    def _guard_unused(self) -> None:
        """Check unused definitions too: they are dropped, but an unsafe one is refused, since
        silence would mislead.
        """
        for holder in ("$defs", "definitions"):
            unused = self.root.get(holder)
            if isinstance(unused, dict):
                for key, node in unused.items():
                    self.schema(node, at(at(self.param, holder), key))

    def schema(self, node: object, place: str) -> Schema:
        if isinstance(node, bool):
            return node
        if node is None:
            return {}
        if not isinstance(node, dict):
            raise SchemaError(f"a schema must be an object, not {kind_of(node)}", place)
        for keyword, reason in _REFUSED.items():
            if keyword in node:
                raise SchemaError(f"{keyword} is not supported: {reason}", at(place, keyword))
        written, node = node, dialects.modernize(node)
        cleaned: dict[str, Any] = {}
        for keyword, clean_keyword in _KEYWORDS.items():
            if keyword in node:
                inside = at(place, dialects.spelling(keyword, node, written))
                clean_keyword(self, cleaned, keyword, node[keyword], inside)
        if self.strict and "required" in cleaned:
            cleaned[STRICT] = True
        return dialects.apply_nullable(cleaned) if node.get("nullable") is True else cleaned

    # One method for each kind of keyword; _KEYWORDS maps the keywords to them.

    def type(self, out: dict[str, Any], keyword: str, value: object, place: str) -> None:
        written = value if isinstance(value, list | tuple) else [value]
        types: list[str] = []
        for name in written:
            known = dialects.TYPE_NAMES.get(name.lower(), "") if isinstance(name, str) else ""
            if known == "":
                known_types = ", ".join(sorted(dialects.TYPES))
                raise SchemaError(f"unknown type {name!r}; expected {known_types}", place)
            if known is None:
                return
            if known not in types:
                types.append(known)
        if types:
            out[keyword] = types[0] if len(types) == 1 else types

    def text(self, out: dict[str, Any], keyword: str, value: object, _place: str) -> None:
        if isinstance(value, str) and value:
            out[keyword] = value

    def enum(self, out: dict[str, Any], keyword: str, value: object, place: str) -> None:
        if value is None:
            return
        if not isinstance(value, list | tuple):
            raise SchemaError(f"enum must be an array, not {kind_of(value)}", place)
        if value:
            written = {json.dumps(choice, sort_keys=True): choice for choice in value}
            out[keyword] = list(written.values())

    def required(self, out: dict[str, Any], keyword: str, value: object, place: str) -> None:
        if value is None or isinstance(value, bool):
            return  # on a property itself (draft 3): `dialects` handles it
        if not isinstance(value, list | tuple) or not all(isinstance(n, str) for n in value):
            raise SchemaError("required must be an array of property names", place)
        if value:
            out[keyword] = list(dict.fromkeys(value))

    def data(self, out: dict[str, Any], keyword: str, value: object, _place: str) -> None:
        out[keyword] = value

    def plain(self, out: dict[str, Any], keyword: str, value: object, _place: str) -> None:
        if value is not None:
            out[keyword] = value

    def pattern(self, out: dict[str, Any], keyword: str, value: object, place: str) -> None:
        if isinstance(value, str) and not enforceable(value):
            # The model still sees the pattern; only the check is dropped, because it could be made to hang.
            note = f"(must match the pattern {value})"
            out["description"] = f"{out.get('description', '')} {note}".strip()
        else:
            self.plain(out, keyword, value, place)

    def subschema(self, out: dict[str, Any], keyword: str, value: object, place: str) -> None:
        out[keyword] = self.schema(value, place)

    def subschemas(self, out: dict[str, Any], keyword: str, value: object, place: str) -> None:
        if not isinstance(value, list | tuple):
            raise SchemaError(f"{keyword} must be an array, not {kind_of(value)}", place)
        if value:
            out[keyword] = [self.schema(node, at(place, i)) for i, node in enumerate(value)]

    def schema_map(self, out: dict[str, Any], keyword: str, value: object, place: str) -> None:
        if value is None:
            return
        if not isinstance(value, dict):
            raise SchemaError(f"{keyword} must be an object, not {kind_of(value)}", place)
        out[keyword] = {
            key: self.schema(node, at(place, key))
            for key, node in value.items()
            if keyword != "patternProperties" or enforceable(key)
        }

    def reference(self, out: dict[str, Any], keyword: str, value: object, place: str) -> None:
        if not isinstance(value, str) or not value.startswith("#"):
            raise SchemaError("$ref must point inside the schema: start with #", place)
        steps = _pointer(value, place)
        if steps not in self.definition_names:
            target, target_place = self._target(steps, value, place)
            hint = names.identifier(steps[-1] if steps else "parameters", fallback="definition")
            name = names.unique(hint[:60], set(self.definition_names.values()))
            self.definition_names[steps] = name
            if steps:
                self.pending.append((name, target, target_place))
        out[keyword] = f"#/$defs/{self.definition_names[steps]}"

    def _target(self, steps: tuple[str, ...], written: str, place: str) -> tuple[object, str]:
        node: Any = self.root
        found = self.param
        for step in steps:
            if isinstance(node, dict) and step in node:
                node, found = node[step], at(found, step)
            elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node, found = node[int(step)], at(found, int(step))
            else:
                raise SchemaError(f"$ref {written[:200]!r} does not resolve", place)
        if not isinstance(node, dict | bool):
            raise SchemaError(f"$ref {written[:200]!r} does not point at a schema", place)
        return node, found


_REFUSED = {
    "$id": "a schema cannot change what its references mean",
    "$dynamicRef": "use $ref",
    "$recursiveRef": "use $ref",
}

_Rule = Callable[[_Cleaner, dict[str, Any], str, object, str], None]

#: In the order in which the keywords are read and written. All others are dropped, including x-*.
_KEYWORDS: dict[str, _Rule] = {
    "title": _Cleaner.text,
    "description": _Cleaner.text,
    "$ref": _Cleaner.reference,
    "type": _Cleaner.type,
    "enum": _Cleaner.enum,
    **dict.fromkeys(SCHEMA_MAP_KEYWORDS, _Cleaner.schema_map),
    "required": _Cleaner.required,
    **dict.fromkeys(SCHEMA_LIST_KEYWORDS, _Cleaner.subschemas),
    **dict.fromkeys(SCHEMA_KEYWORDS, _Cleaner.subschema),
    **dict.fromkeys(_PLAIN_KEYWORDS, _Cleaner.plain),
    **dict.fromkeys(("const", "default", "examples"), _Cleaner.data),
    "pattern": _Cleaner.pattern,
}


def _guard_shape(parameters: dict[str, Any], param: str) -> None:
    """Refuse arguments that are written without a schema around them, ``{"city": {"type": "string"}}``.

    Dropped as unknown keywords, they would leave a tool without arguments.
    """
    if parameters.keys() & _STRUCTURE:
        return
    is_schema = not parameters.keys().isdisjoint(_KEYWORDS)
    for name, part in parameters.items():
        if name.startswith(("$", "x-")) or name in _KEYWORDS.keys() - {"title", "description"}:
            continue
        if not is_schema or (isinstance(part, dict) and "type" in part):
            message = 'is not a keyword of JSON Schema; arguments belong in "properties"'
            raise SchemaError(f'"{shorten(name)}" {message}', at(param, name))


#: Keywords that define the members of an object.
_STRUCTURE = frozenset(
    {"$ref", "additionalProperties", "definitions", *SCHEMA_MAP_KEYWORDS, *SCHEMA_LIST_KEYWORDS}
)


def _as_object(root: dict[str, Any], definitions: Definitions, param: str) -> dict[str, Any]:
    """Check that the arguments are one object; OpenAI also refuses any other type here.

    A root that is only a reference is replaced by its definition, because readers look for
    properties there.
    """
    followed: set[str] = set()
    while root.keys() <= {"$ref", "title", "description"} and "$ref" in root:
        name = root["$ref"].removeprefix("#/$defs/")
        target = definitions.get(name)
        if name in followed or not isinstance(target, dict):
            break
        followed.add(name)
        remarks = {k: v for k, v in root.items() if k != "$ref"}
        root = {**target, **remarks}
    kind = root.get("type", "object")
    if "object" not in (kind if isinstance(kind, list) else [kind]):
        raise SchemaError(f"parameters must be of type object, not {kind}", at(param, "type"))
    return {**root, "type": "object"}


def _pointer(reference: str, place: str) -> tuple[str, ...]:
    """RFC 6901 in its URI fragment form: ``#/$defs/a~1b`` -> ("$defs", "a/b")."""
    pointer = unquote(reference[1:])
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise SchemaError("$ref must be a JSON pointer such as #/$defs/Name", place)
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/"))
