"""Arguments that are neither JSON nor plain elements: Gemma's, MiniMax M3's, and elements named
after parameters.

Each reader takes the text and the index where the arguments begin. It returns the arguments and the
index after them, or raises `Unreadable`. Each reads its text once.
"""

from __future__ import annotations

import re
from typing import Any

from emulator.reading.calls import unquoted_scalar
from emulator.reading.elements import unwrap
from emulator.reading.statements import unreadable

_NESTING = 100
_CUT = "the call is cut off within its arguments"

# ---------------------------------------------------------------------------- Gemma

_QUOTES = ("<escape>", '<|"|>', '"')
_PLAIN = re.compile(r"[^,{}\[\]]*")
_KEY = re.compile(r"[\s,]*(?P<key>[\w.\-]+|\"[^\"\n]{1,200}\")\s*:\s*")
_SPACE = re.compile(r"[\s,]*")


def parse_gemma(text: str, at: int) -> tuple[dict[str, Any], int]:
    """``{city:<escape>Oslo<escape>,days:3}``; ``at`` is the index of the opening brace."""
    value, end = _gemma_value(text, at, 0)
    if not isinstance(value, dict):
        raise unreadable("expected the arguments in braces")
    return value, end


def _gemma_value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > _NESTING:
        raise unreadable(f"arguments nested more than {_NESTING} deep")
    for quote in _QUOTES:
        if text.startswith(quote, at):
            end = text.find(quote, at + len(quote))
            if end < 0:
                raise unreadable(_CUT)
            return text[at + len(quote) : end], end + len(quote)
    if text.startswith("{", at):
        return _gemma_object(text, at + 1, depth)
    if text.startswith("[", at):
        return _gemma_list(text, at + 1, depth)
    match = _PLAIN.match(text, at)
    word = match.group().strip() if match else ""
    end = match.end() if match else at
    if end >= len(text):
        raise unreadable(_CUT)
    return unquoted_scalar(word), end


def _gemma_object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while True:
        at = _after_space(text, at)
        if text.startswith("}", at):
            return found, at + 1
        key = _KEY.match(text, at)
        if key is None:
            raise unreadable(_CUT if at >= len(text) else "expected an argument: name:value")
        found[key["key"].strip('"')], at = _gemma_value(text, key.end(), depth + 1)


def _gemma_list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while True:
        at = _after_space(text, at)
        if text.startswith("]", at):
            return found, at + 1
        if at >= len(text) or text.startswith("}", at):
            raise unreadable(_CUT)
        item, at = _gemma_value(text, at, depth + 1)
        found.append(item)


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


# ---------------------------------------------------------------------------- MiniMax M3

MARK = "]<]minimax[>["
_MARKED = re.compile(rf"{re.escape(MARK)}\s*<(?P<close>/?)(?P<key>[^<>\n]{{1,200}})>")


def parse_marked(text: str, at: int) -> tuple[dict[str, Any], int]:
    """Nested elements, each preceded by a mark; ``at`` is the index after the call's header."""
    stack: list[tuple[str, dict[str, Any] | list[Any], int]] = [("", {}, at)]
    for tag in _MARKED.finditer(text, at):
        if not tag["close"]:
            if len(stack) > _NESTING:
                raise unreadable(f"arguments nested more than {_NESTING} deep")
            stack.append((tag["key"].strip(), {}, tag.end()))
            continue
        if len(stack) == 1:
            top = stack[0][1]
            return (top if isinstance(top, dict) else {}), tag.end()
        key, inner, begin = stack.pop()
        value: Any = inner or unwrap(text[begin : tag.start()])
        name, outer, start = stack[-1]
        if key == "item" and not (isinstance(outer, dict) and outer):
            outer = outer if isinstance(outer, list) else []
            outer.append(value)
            stack[-1] = (name, outer, start)
        elif isinstance(outer, dict):
            outer[key] = value
    raise unreadable(_CUT)
