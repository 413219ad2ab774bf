"""Requests for tools with more in their schemas than those of `cases`: bounds, patterns, unions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.cases import HALVES, Case, Words

Json = dict[str, Any]


def _tool(name: str, description: str, required: str, **properties: Json) -> Json:
    parameters = {"type": "object", "properties": properties, "required": required.split()}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


_DAY = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
_PLACE = {
    "type": "object",
    "properties": {
        "lat": {"type": "number", "minimum": -90, "maximum": 90},
        "lon": {"type": "number", "minimum": -180, "maximum": 180},
    },
    "required": ["lat", "lon"],
}
_LINE = {
    "type": "object",
    "properties": {
        "sku": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["sku", "quantity"],
}
_TARGET = {
    "anyOf": [
        {"type": "object", "properties": {"email": {"type": "string"}}, "required": ["email"]},
        {"type": "object", "properties": {"user_id": {"type": "integer"}}, "required": ["user_id"]},
    ]
}

RICH_TOOLS = {
    tool["function"]["name"]: tool
    for tool in (
        _tool(
            "book_room",
            "Books a hotel room.",
            "hotel arrival nights",
            hotel={"type": "string", "minLength": 2},
            arrival=_DAY,
            nights={"type": "integer", "minimum": 1, "maximum": 30},
        ),
        _tool(
            "nearby",
            "Finds places near a point.",
            "point radius_km",
            point=_PLACE,
            radius_km={"type": "number", "exclusiveMinimum": 0, "maximum": 50},
            kinds={
                "type": "array",
                "items": {"enum": ["cafe", "hotel", "museum"]},
                "minItems": 1,
                "uniqueItems": True,
            },
        ),
        _tool(
            "order",
            "Orders goods from the shop.",
            "lines",
            lines={"type": "array", "items": _LINE, "minItems": 1, "maxItems": 5},
            express={"type": "boolean"},
        ),
        _tool(
            "invite",
            "Invites somebody to the team.",
            "who role",
            who=_TARGET,
            role={"enum": ["reader", "writer", "owner"]},
        ),
        _tool(
            "set_thermostat",
            "Sets the heating.",
            "room celsius",
            room={"enum": ["kitchen", "bedroom", "bath"]},
            celsius={"type": "number", "minimum": 5, "maximum": 30, "multipleOf": 0.5},
        ),
        _tool(
            "pay",
            "Transfers money.",
            "iban amount currency",
            iban={"type": "string", "pattern": "^[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}$"},
            amount={"type": "number", "exclusiveMinimum": 0},
            currency={"const": "EUR"},
            note={"type": ["string", "null"], "maxLength": 35},
        ),
    )
}

RICH_CASES = tuple(
    Case(request, name, tuple(RICH_TOOLS))
    for request, name in (
        ("Book the Grand Hotel from 2026-05-12 for 3 nights", "book_room"),
        ("I need a room at the Ritz, arriving 2027-01-03, one week", "book_room"),
        ("Which cafes are within 2 km of 59.91, 10.75?", "nearby"),
        ("Find museums near latitude 48.86 and longitude 2.35, 5 km around", "nearby"),
        ("Order 3 of AB-123 and 1 of CD-456, express please", "order"),
        ("Buy 12 pieces of XY-001", "order"),
        ("Invite ann@example.org to the team as a writer", "invite"),
        ("Make user 42 an owner of the team", "invite"),
        ("Set the bedroom to 18.5 degrees", "set_thermostat"),
        ("Heat the kitchen to 21", "set_thermostat"),
        ("Pay 19.99 euros to DE89370400440532013000 for lunch", "pay"),
        ("Transfer 250 to NO9386011117947123", "pay"),
    )
)


def _wanted(case: Case) -> Json:
    return {
        name: " ".join(wanted.words) if isinstance(wanted, Words) else wanted[0]
        for name, wanted in case.arguments.items()
    }


EARLIER: Mapping[str, Json] = {
    "book_room": {"hotel": "Plaza", "arrival": "2025-11-30", "nights": 2},
    **{c.function: _wanted(c) for half in HALVES.values() for c in half if c.function is not None},
}
"""Right arguments for tools that a conversation may have called before."""
