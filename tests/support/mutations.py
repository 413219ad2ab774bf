"""JSON of real clients and upstreams, mutated at random: an application must refuse or serve it.

Hypothesis provides the randomness, and minimizes what fails.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"

# fmt: off
HOSTILE: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63, 2**64, -(2**70), 10**400, 1e308, 0.5, "", " ", "x" * 5000, "\x00",
    "\ud800", "\u202e\u2066", "\r\ninjected: yes", "../../etc/passwd", "{{7*7}}${7*7}%s%n",
    "data:image/png;base64,AAAA", "data:,%", "1e999", "NaN", "auto", "none", "required", "function",
    "#/$defs/none", [], [None], [[[[]]]], {}, {"": None}, {"type": None}, {"type": "function"},
    {"$ref": "#"}, {"type": "auto"}, {"anyOf": [{"$ref": "#"}]},
)
# fmt: on
SCHEMAS: tuple[Any, ...] = (
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"type": ["string", "null", 5]},
    {"enum": []},
    {"enum": [2**64, {"a": [1]}, None]},
    {"minimum": 2**64, "maximum": -(2**64), "type": "integer"},
    {"multipleOf": 0},
    {"pattern": "(a+)+$(", "type": "string"},
    {"properties": {"class": {"type": "object", "properties": {"": {}}}, "x-y": {"const": "\x00"}}},
    {"items": [{"type": "string"}, True, False]},
    {"allOf": [{"type": "string"}, {"type": "integer"}], "not": {}},
    {"required": "all", "properties": []},
    {"dependentSchemas": {"a": {"if": {}, "then": False}}},
    {"type": "object", "additionalProperties": {"$ref": "#"}},
    True,
    False,
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every member of ``value``: its holder and its key; outer members first."""
    children = list(value.items()) if isinstance(value, dict) else []
    children = list(enumerate(value)) if isinstance(value, list) else children
    for key, _ in children:
        yield value, key
    for _, child in children:
        yield from _places(child)


def mutated(dice: random.Random, body: Any) -> Any:
    """A copy of ``body`` with one change or several."""
    body = copy.deepcopy(body)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 5))):
        places = list(_places(body))
        if not places:
            return dice.choice(HOSTILE)
        holder, key = dice.choice(places)
        match dice.randrange(7):
            case 0:
                del holder[key]
            case 1 | 2:
                holder[key] = copy.deepcopy(dice.choice(HOSTILE))
            case 3:
                holder[key] = copy.deepcopy(dice.choice(SCHEMAS))
            case 4:  # another member
                other, name = dice.choice(places)
                holder[key] = copy.deepcopy(other[name])
            case 5:
                holder[key] = [copy.deepcopy(holder[key])] * dice.choice((0, 1, 2, 40))
            case 6 if isinstance(holder, dict):
                name = dice.choice(("type", "id", "name", "content", "", "$ref", "\x00"))
                holder[name] = holder[key]
            case _:
                deep: Any = holder[key]
                for _ in range(dice.choice((3, 40, 300))):
                    deep = {"a": deep} if dice.random() < 0.5 else [deep]
                holder[key] = deep
    return body


def request_bodies() -> Iterator[tuple[str, Any]]:
    """(path, body) of what clients sent, and of others with each kind of tool, item, block and part."""
    for name in ("client_requests.jsonl", "varied_requests.jsonl"):
        for line in map(json.loads, (DATA / name).read_text().splitlines()):
            if line.get("body"):
                yield line["path"], line["body"]
