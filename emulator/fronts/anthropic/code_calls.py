"""Calls that code makes: how blocks name it as their caller, what may follow while it waits for results, and
what the model sees of it later.

Source: Anthropic's documentation, "Programmatic tool calling".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from emulator.answering.cell_resume import NO_OUTPUT
from emulator.conversation.client_history import ClientHistory
from emulator.core.errors import BadRequest
from emulator.core.protocol import HistoryProgram
from emulator.fronts.anthropic.parts import mapping
from emulator.rendering.prompt import cell_history

Content = str | Sequence[Mapping[str, Any]]

CODE = "code_execution"
"""The name of the server tool that maps to the code interpreter."""
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


class Cells:
    """The code in a conversation, from its first block on. Code that calls the client's tools ends in a later
    message than it begins."""

    def __init__(self, contents: Iterable[Content], history: ClientHistory) -> None:
        self._history = history
        blocks = (block for content in contents for block in _blocks(content))
        self._results = {
            str(block.get("tool_use_id")): mapping(block.get("content"))
            for block in blocks
            if block.get("type") == "code_execution_tool_result"
        }
        self._code: dict[str, str] = {}
        self._running = ""

    def start(self, block: Mapping[str, Any]) -> None:
        key = self._running = str(block.get("id"))
        self._code[key] = str(mapping(block.get("input")).get("code", ""))
        program = HistoryProgram(id=key, code=self._code[key])
        if (result := self._results.get(key)) is not None:
            output, failed = _output(result)
            fields = {"result": output or NO_OUTPUT, "failed": failed}
            program = program.model_copy(update=fields)
        self._history.add_program(program)

    def caller(self, block: Mapping[str, Any]) -> str | None:
        """The id of the code that made the call in ``block``."""
        is_direct = mapping(block.get("caller")).get("type") == "direct"
        return None if is_direct or not self._running else self._running

    def end(self, block: Mapping[str, Any]) -> None:
        """Add the code and its output, unless they are those of a program."""
        key, self._running = str(block.get("tool_use_id")), ""
        if not self._history.has_called(key):
            output, failed = _output(mapping(block.get("content")))
            cell = cell_history(self._code.get(key, ""), output, failed=failed)
            self._history.add_cell(cell)


def _output(result: Mapping[str, Any]) -> tuple[str, bool]:
    """What code wrote, and whether it failed."""
    output = f"{result.get('stdout') or ''}{result.get('stderr') or ''}".rstrip("\n")
    return output, bool(result.get("return_code")) or "error_code" in result
