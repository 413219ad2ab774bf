"""Render a chat template as the transformers library does. A program of its own that imports only Jinja:
``python -I template_renderer.py``.

A template comes from a server. Jinja's sandbox stops attribute access, but neither loops nor texts without
end; the limits of this process do. Standard input and output are JSON: a template and the values of each
rendering; the ``text`` or ``error`` of each.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

CPU_SECONDS, MEMORY = 3, 512 * 2**20
MAX_CHARACTERS = 2_000_000
"""Of a rendered text."""


class _Generation(Extension):
    """``{% generation %}`` marks what a model wrote, for its training."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=list)  # ``map`` is lazy


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
        autoescape=False,  # the reader is a model, not a browser
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_raise,
        strftime_now=lambda form: datetime.now().strftime(form),  # noqa: DTZ005 (the model's user's day)
        bos_token="",
        eos_token="",
        add_generation_prompt=True,
    )
    return environment


def _rendered(template: str, values: dict[str, Any]) -> dict[str, str]:
    try:
        text = _environment().from_string(template).render(**values)
    except Exception as error:  # noqa: BLE001 (a template can raise whatever code can)
        return {"error": (str(error) or type(error).__name__)[:500]}
    if len(text) > MAX_CHARACTERS:
        return {"error": f"it renders more than {MAX_CHARACTERS} characters"}
    return {"text": text}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    request = json.load(sys.stdin)
    results = [_rendered(request["template"], values) for values in request["renderings"]]
    json.dump(results, sys.stdout)
