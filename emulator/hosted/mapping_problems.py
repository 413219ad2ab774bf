"""Whether the setting ``serve`` binds: the servers' tools take what is sent, and have what is read.

Asked at the start and by ``doctor``, so that no call is the first to find it. Of a place in a result only the
tool's ``outputSchema`` knows, if it has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from emulator.hosted.listing import Listing
from emulator.hosted.served_types import SERVED, ServedType, steps
from emulator.settings.command_line import nearest
from emulator.settings.serve_settings import ServeRow
from emulator.settings.settings import Settings
from emulator.tools import expansion
from emulator.tools.expanded_schema import ExpandedSchema
from emulator.tools.schema import Schema, SchemaError
from emulator.tools.schema_cleaning import clean_schema

_ITEMS = "string"
"""The type of what is in an array that is sent."""


def mapping_problems(
    settings: Settings, listings: Mapping[str, Listing]
) -> Iterator[tuple[str, str]]:
    """The types whose tool is missing at its server, or does not bind, and why. Of servers that are not in
    ``listings`` nothing is known."""
    for name, row in settings.serve.rows.items():
        if row.server in listings and (why := _problem(SERVED[name], row, listings[row.server])):
            yield name, why


def _problem(served: ServedType, row: ServeRow, listing: Listing) -> str:
    tools = {str(tool["name"]): tool for tool in listing.tools}
    if row.tool_name not in tools:
        listed = ", ".join(list(tools)[:20]) or "none"
        meant = nearest(row.tool_name, [*tools])
        return f"{row.server} has no tool {row.tool_name!r}{meant}; its tools: {listed}"
    tool = tools[row.tool_name]
    return _argument_problem(row, _Shape(tool.get("input_schema"))) or _result_problem(
        served, row, _Shape(tool.get("output_schema"))
    )


class _Shape:
    """What a schema says of a value and of the places in it. An unusable schema says nothing."""

    def __init__(self, schema: Any) -> None:
        try:
            self.root = clean_schema(schema, "schema") if schema else {}
        except SchemaError:
            self.root = {}
        self._expanded = ExpandedSchema(self.root.get("$defs", {}))
        self.members = self._expanded.members(self.root)

    def kinds(self, part: Schema) -> set[str]:
        """The types that a value may have; none if it may have any."""
        found = [{*expansion.types(view)} for view in self._views(part)]
        return set[str]().union(*found) if all(found) else set()

    def takes(self, part: Schema, kind: str) -> bool:
        """Return True if a value of type ``kind`` may be valid."""
        for view in self._views(part):
            kinds = expansion.types(view)
            is_right = not kinds or kind in kinds or (kind == "integer" and "number" in kinds)
            if is_right and (kind != "array" or self.takes(view.get("items", True), _ITEMS)):
                return True
        return False

    def at(self, part: Schema, path: str) -> Schema | None:
        """The schema of a place, which allows anything if it is unknown; None if there is no such place."""
        found: Schema | None = part
        for step in steps(path):
            found = None if found is None else self._step(found, step)
        return found

    def _step(self, part: Schema, step: str) -> Schema | None:
        kinds = self.kinds(part)
        if "array" in kinds and step.isdecimal():
            listed = [view.get("items", True) for view in self._views(part)]
            return next((one for one in listed if one is not True), True)
        if kinds and "object" not in kinds:
            return None
        members = self._expanded.members(part)
        is_open = members.extra is None and not members.properties
        return True if is_open else members.schema_of(step)

    def _views(self, part: Schema) -> list[dict[str, Any]]:
        parts = self._expanded.alternatives(part) or (part,)
        return [self._expanded.view(one) for one in parts]


def _argument_problem(row: ServeRow, shape: _Shape) -> str:
    known = shape.members.properties
    for vendors, own in row.names.items():
        if own not in known:
            takes = ", ".join(known) or "no arguments"
            return f"{row.tool} has no argument {own!r}: set {vendors} to its name for it ({takes})"
        kind = row.ARGUMENTS.get(vendors, "string")
        if not shape.takes(known[own], kind):
            kinds = " or ".join(sorted(shape.kinds(known[own])))
            return f"{row.tool} takes {own!r} as {kinds}; {vendors} is sent as {kind}"
    missing = [one for one in known if one in shape.members.required - {*row.names.values()}]
    if missing:
        return f"{row.tool} requires {', '.join(map(repr, missing))}, which is not sent"
    return ""


def _result_problem(served: ServedType, row: ServeRow, shape: _Shape) -> str:
    """What the tool's results do not have, as far as its schema says so."""
    for key, kind in (("results", "array"), ("result", "string")):
        path = getattr(row, key, "")
        if not path:
            continue
        place = shape.at(shape.root, path)
        kinds = {"nothing"} if place is None else shape.kinds(place)
        if place is None or kind not in (kinds or {kind}):
            found = " or ".join(sorted(kinds))
            return f"the outputSchema of {row.tool} has {found} at {path!r}: correct {key}"
        if key == "results":
            return _row_problem(served, row, shape, shape.at(place, "0"))
    return ""


def _row_problem(served: ServedType, row: ServeRow, shape: _Shape, one: Schema | None) -> str:
    """Which field of a hit the schema does not have. A default that is not there is "" in the hit, but a page
    is nothing without its address."""
    fields = (served.row_schema or {}).get("properties", {})
    needed = {*fields} & (row.model_fields_set | {"url"})
    for key in (key for key in fields if key in needed):
        path = getattr(row, key)
        if one is None or shape.at(one, path) is None:
            return f"the outputSchema of {row.tool} has no {path!r} in its results: correct {key}"
    return ""
