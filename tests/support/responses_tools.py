"""Tools, replies and forms in the shape of the Responses API."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

GET_WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather of a place.",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
    "strict": False,
}

SHELL: Json = {"type": "custom", "name": "shell", "description": "Run a command."}

FORM: Json = {
    "text": {
        "format": {
            "type": "json_schema",
            "name": "Rain",
            "schema": {
                "type": "object",
                "properties": {"rain": {"type": "boolean"}},
                "required": ["rain"],
            },
        }
    }
}

LONDON = '```tool_code\nget_weather(location="London")\n```'
