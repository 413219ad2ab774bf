"""Calls that code makes: how blocks name it as their caller, and what may follow while it waits for results.

Source: Anthropic's documentation, "Programmatic tool calling".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from emulator.errors import BadRequest

Content = str | Sequence[Mapping[str, Any]]

_CODE = re.compile(r"code_execution(?:_20\d{6})?")
_FIRST = "code_execution_20250825"
_LATER = "code_execution_20260120"
"""The caller in blocks for this version of the tool and all later ones."""


def is_code_execution(kind: object) -> bool:
    """Return True for a type of the code execution tool, which also names it as a caller."""
    return isinstance(kind, str) and _CODE.fullmatch(kind) is not None


def caller_type(tools: Sequence[Mapping[str, Any]]) -> str | None:
    """How blocks name the code execution tool in ``tools`` as a caller. None without one."""
    kinds = (str(tool.get("type")) for tool in tools if is_code_execution(tool.get("type")))
    kind = next(kinds, None)
    return kind and (_LATER if kind > _FIRST else _FIRST)


def check_results(answer: Content, following: Mapping[str, Content]) -> None:
    """Check the contents, by place, that follow the last ``answer``. Raises `BadRequest`.

    While code waits for the results of its calls, a client may send only these, as text.
    """
    if not any(_is_made_by_code(block) for block in _blocks(answer)):
        return
    for place, content in following.items():
        for n, block in enumerate(_blocks(content)):
            at = f"{place}[{n}]"
            if block.get("type") != "tool_result":
                message = (
                    f"{at}: code waits for the results of its calls, and nothing else may follow."
                )
                raise BadRequest(message, at)
            for m, part in enumerate(_blocks(block.get("content") or "")):
                if part.get("type") != "text":
                    inner = f"{at}.content[{m}]"
                    raise BadRequest(f"{inner}: a result for code must be text.", inner)


def _blocks(content: Content) -> Sequence[Mapping[str, Any]]:
    return [{"type": "text"}] if isinstance(content, str) else content


def _is_made_by_code(block: Mapping[str, Any]) -> bool:
    caller = block.get("caller")
    return isinstance(caller, Mapping) and is_code_execution(caller.get("type"))
