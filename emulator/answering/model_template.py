"""The tools in the model's own words: what its chat template adds to a prompt when a request has tools.

Servers without a parser for the model's calls still have that template. It is rendered twice, with tools and
without; the difference becomes our instructions, and our readers read the reply. A template comes from a
server, so it runs in Jinja's sandbox.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from emulator.tools.toolset import Toolset

MAX_CHARACTERS = 200_000
_SYSTEM, _USER = "\ue000system\ue000", "\ue000user\ue000"
_CONVERSATIONS = (
    ({"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}),
    ({"role": "user", "content": _USER},),  # some templates refuse a system message
)
_OPEN = re.compile(r"[\[<][^\]>]*$")
_MARKERS = re.compile(r"^(?:<\|\w+\|>\s*)+|(?:\s*<\|\w+\|>)+$")


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
    problem = "it shows no tools"
    for messages in _CONVERSATIONS:
        try:
            text = _difference(path, messages, tools)
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            problem = str(error)
        except OSError as error:
            raise NoTools(str(error.strerror)) from error
        else:
            if all(tool.python_name in text for tool in toolset.tools):
                return text
    raise NoTools(problem)


def _difference(
    path: str, messages: Sequence[Mapping[str, str]], tools: Sequence[Mapping[str, Any]]
) -> str:
    template = _template(path)
    without, with_tools = (
        _pieces(template.render(messages=messages, tools=t)) for t in (None, tools)
    )
    added = (_added(plain, full) for plain, full in zip(without, with_tools, strict=False))
    return "\n\n".join(filter(None, added))


def _pieces(rendered: str) -> list[str]:
    return rendered.replace(_USER, _SYSTEM).split(_SYSTEM)


def _added(plain: str, full: str) -> str:
    """What ``full`` has in addition to ``plain``, which is its beginning and end, without role markers."""
    start = _shared(plain, full)
    end = _shared(plain[start:][::-1], full[start:][::-1])
    added = full[start : len(full) - end]
    # ``[INST]`` and ``[TOOLS]..[/TOOLS][INST]`` share their first character.
    while _OPEN.search(plain[:start]) and added[-1:] == plain[start - 1]:
        start -= 1
        added = plain[start] + added[:-1]
    return _MARKERS.sub("", added.strip())


def _shared(first: str, second: str) -> int:
    """The length of the beginning that both have."""
    pairs = enumerate(zip(first, second, strict=False))
    differs = (index for index, (one, other) in pairs if one != other)
    return next(differs, min(len(first), len(second)))


def _raise(message: str) -> None:
    raise TemplateError(message)


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


# As the transformers library renders chat templates.
_ENVIRONMENT = ImmutableSandboxedEnvironment(
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.loopcontrols"],
    autoescape=False,  # the reader is a model, not a browser
)
_ENVIRONMENT.filters["tojson"] = _to_json
_ENVIRONMENT.globals.update(
    raise_exception=_raise,
    strftime_now=lambda form: datetime.now().strftime(form),  # noqa: DTZ005 (the model's user's day)
    bos_token="",
    eos_token="",
    add_generation_prompt=True,
)


@lru_cache(maxsize=16)
def _template(path: str) -> Template:
    text = Path(path).expanduser().read_text("utf-8")
    if len(text) > MAX_CHARACTERS:
        raise TemplateError(f"it is longer than {MAX_CHARACTERS} characters")
    return _ENVIRONMENT.from_string(text)
