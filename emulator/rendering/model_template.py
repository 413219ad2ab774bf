"""The tools in the model's own words: what its chat template adds to a prompt when a request has tools.

Servers without a parser for the model's calls still have that template. It is rendered twice, with tools and
without; the difference becomes our instructions, and our readers read the reply. `template_renderer` renders.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from emulator.rendering import template_renderer
from emulator.tools.toolset import Toolset

MAX_CHARACTERS = 200_000
_SECONDS = 20
"""For all renderings together, on a busy machine."""
_SYSTEM, _USER = "\ue000system\ue000", "\ue000user\ue000"
_CONVERSATIONS = (
    ({"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}),
    ({"role": "user", "content": _USER},),  # some templates refuse a system message
)
_NO_TOOLS = "it shows no tools"
_OPEN = re.compile(r"[\[<][^\]>\s]*$")
_TOKEN = re.compile(
    r"<\|[^\s|<>]{1,40}\|>|<｜[^｜<>]{1,40}｜>|\[/?[A-Z_]{1,40}\]|</?s>|<(?:start|end)_of_turn>"
)
_ROLES = r"(?:system|user|assistant|developer|model|tool)\b"


class NoTools(ValueError):
    """The template cannot be rendered, or shows no tools; the message says why."""


def tools_prompt(path: str, toolset: Toolset) -> str:
    """The part of the rendered template that is about tools. Raises `NoTools`."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.python_name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in toolset.tools
    ]
    try:
        template = Path(path).expanduser().read_text("utf-8")
    except OSError as error:
        raise NoTools(str(error.strerror)) from error
    except UnicodeDecodeError as error:
        raise NoTools(str(error)) from error
    if len(template) > MAX_CHARACTERS:
        raise NoTools(f"it is longer than {MAX_CHARACTERS} characters")
    prompts, problem = _prompts(template, json.dumps(tools), datetime.now(UTC).date())
    for text in prompts:
        if all(tool.python_name in text for tool in toolset.tools):
            return text
    raise NoTools(_NO_TOOLS if prompts else problem)


@lru_cache(maxsize=64)  # clients offer the same tools with every request
def _prompts(template: str, tools: str, day: date) -> tuple[Sequence[str], str]:  # noqa: ARG001
    """The difference in each conversation that can be rendered, and why the first cannot.

    ``day``: templates show the date.
    """
    renderings = [
        {"messages": messages, "tools": offered}
        for messages in _CONVERSATIONS
        for offered in (json.loads(tools), None)
    ]
    results = _render(template, renderings)
    pairs = [*zip(results[::2], results[1::2], strict=True)]
    # A template that is only for requests with tools fails without.
    found = [_difference(o.get("text", ""), w["text"]) for w, o in pairs if "text" in w]
    return found, next((w["error"] for w, _ in pairs if "error" in w), "")


def _render(template: str, renderings: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    command = [sys.executable, "-I", template_renderer.__file__]
    request = json.dumps({"template": template, "renderings": renderings})
    try:
        ended = subprocess.run(
            command, input=request.encode(), capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return [{"error": f"it takes longer than {_SECONDS} seconds"}] * len(renderings)
    if ended.returncode:
        limits = f"{template_renderer.CPU_SECONDS} seconds or {template_renderer.MEMORY >> 20} MiB"
        return [{"error": f"it needs more than {limits}"}] * len(renderings)
    results: list[dict[str, str]] = json.loads(ended.stdout)
    return results


def _difference(without: str, with_tools: str) -> str:
    full = _pieces(with_tools)
    plain = _pieces(without) if without else [""] * len(full)
    # Tokens that are there without tools are around messages, and so are those at the end.
    tokens = set(_TOKEN.findall("".join(full[-1:] if without else full[1:]) + without))
    added = (_added(*pair) for pair in zip(plain, full, strict=False))
    return "\n\n".join(filter(None, (_without_headers(text, tokens) for text in added)))


def _pieces(rendered: str) -> list[str]:
    return rendered.replace(_USER, _SYSTEM).split(_SYSTEM)


def _added(plain: str, full: str) -> str:
    """What ``full`` has in addition to ``plain``, which is its beginning and end."""
    start = _shared(plain, full)
    end = _shared(plain[start:][::-1], full[start:][::-1])
    added = full[start : len(full) - end]
    # Neighbours share their first characters, such as ``[INST]`` and ``[TOOLS]..[/TOOLS][INST]``.
    while start and added[-1:] == plain[start - 1]:
        start -= 1
        added = plain[start] + added[:-1]
    opened = _OPEN.search(plain[:start])
    return f"{opened.group() if opened else ''}{added}"


def _without_headers(text: str, tokens: Collection[str]) -> str:
    """``text`` without the ``tokens`` around messages and the roles in them."""
    if not tokens:
        return text.strip()
    token = f"(?:{'|'.join(map(re.escape, sorted(tokens)))})"
    header = rf"\s*{token}(?:\s*{_ROLES}|[^\n<>]{{0,60}}(?={token}))?\s*"
    return re.sub(header, "\n", text).strip()


def _shared(first: str, second: str) -> int:
    """The length of the beginning that both have."""
    pairs = enumerate(zip(first, second, strict=False))
    differs = (index for index, (one, other) in pairs if one != other)
    return next(differs, min(len(first), len(second)))
