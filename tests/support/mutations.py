"""Requests of real clients and chunks of upstreams, mutated at random: an application must refuse or serve
each, and never fail.

Knows nothing of HTTP. Hypothesis provides the randomness, and minimizes a request that fails.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

# fmt: off
HOSTILE: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63, 2**64, -(2**70), 10**400, 1e308, 0.5, "", " ", "x" * 5000, "\x00",
    "\ud800", "\u202e\u2066", "\r\ninjected: yes", "../../etc/passwd", "{{7*7}}${7*7}%s%n",
    "data:image/png;base64,AAAA", "data:,%", "1e999", "NaN", "auto", "none", "required", "function",
    "#/$defs/none", [], [None], [[[[]]]], {}, {"": None}, {"type": None}, {"type": "function"},
    {"$ref": "#"}, {"type": "auto"}, {"anyOf": [{"$ref": "#"}]},
)
PARAMETERS = ("after", "limit", "order", "purpose", "include", "include[]", "stream", "starting_after")
VALUES = ("", "1", "-1", "0", "asc", "²", "1e5", "9" * 400, "\x00", "\ud800", "true", "a" * 3000)
IDS = (
    "0" * 32, "", "%00", "\x00", "..", "%2e%2e%2f", "\ud800", "'; DROP TABLE files;--", "é" * 50, "a" * 2000,
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


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: bytes | None = None


def mutated_request(
    dice: random.Random, rules: list[tuple[str, str]], bodies: list[tuple[str, Any]]
) -> Request:
    """``rules`` are (method, rule) of an application, ``bodies`` (path, JSON) of its clients."""
    path, body = dice.choice(bodies)
    method = "POST"
    if dice.random() < 0.25:
        method, rule = dice.choice(rules)
        path = _path(dice, rule)
    changed = mutated(dice, body)
    return Request(method, path, _written(dice, changed) if method == "POST" else None)


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


def _written(dice: random.Random, body: Any) -> bytes:
    try:
        raw = bytearray(
            json.dumps(body, ensure_ascii=dice.random() < 0.5).encode("utf-8", "replace")
        )
    except RecursionError:
        return b"[" * 100_000
    if raw and dice.random() < 0.1:
        match dice.randrange(4):
            case 0:
                del raw[dice.randrange(len(raw)) :]
            case 1:
                raw[dice.randrange(len(raw))] = dice.randrange(256)
            case 2:
                raw += b"}"
            case _:
                raw = bytearray(b"\xef\xbb\xbf") + raw
    return bytes(raw)


def _path(dice: random.Random, rule: str) -> str:
    path = ""
    for piece in rule.split("/")[1:]:
        path += "/" + (_id(dice, piece) if piece.startswith("<") else piece)
    if dice.random() < 0.5:
        pairs = [(dice.choice(PARAMETERS), dice.choice(VALUES)) for _ in range(dice.choice((1, 2)))]
        path += "?" + "&".join(f"{name}={_quoted(value)}" for name, value in pairs)
    return path


def _id(dice: random.Random, piece: str) -> str:
    prefixes = {"<file_id>": "file-", "<container_id>": "cntr_", "<response_id>": "resp_"}
    return _quoted(prefixes.get(piece, "exec_") + dice.choice(IDS))


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "replace"), safe="")
