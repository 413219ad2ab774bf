"""Tools, as clients send them, that several tests offer."""

from __future__ import annotations

from typing import Any


def function(name: str, parameters: dict[str, Any] | None = None, description: str = "") -> Any:
    """One item of a ``tools`` array."""
    body: dict[str, Any] = {"name": name, "description": description or f"Do {name}."}
    if parameters is not None:
        body["parameters"] = parameters
    return {"type": "function", "function": body}


def strings(*names: str, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The schema of an object whose members are all strings."""
    properties = {name: {"type": "string"} for name in (*names, *optional)}
    return {"type": "object", "properties": properties, "required": list(names)}


GET_WEATHER = function(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "City, e.g. London"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["location"],
    },
    "Get the current weather of a place.",
)
GET_WEATHER["function"]["annotations"] = {"readOnlyHint": True}
SEND_MAIL = function("send_mail", strings("to", "body"), "Send a mail.")
CREATE_EVENT = function(
    "create_event",
    {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "place": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
                "required": ["city"],
            },
            "guests": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                    "required": ["name"],
                },
            },
        },
        "required": ["title", "place"],
    },
    "Put an event into the calendar.",
)
