"""An operator's own prompt template: a Jinja file that replaces prompts/tools.jinja.

The template is rendered in Jinja's sandbox because names and descriptions of tools come from clients.
`check_templates` renders each template at start, so that its author sees the error, not a client.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import structlog
from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from emulator.reading.openings import MARK
from emulator.rendering.model_template import NoTools, tools_prompt
from emulator.rendering.python_calls import fenced
from emulator.settings.settings import Settings
from emulator.tools.toolset import Toolset

log = structlog.get_logger()

_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined,
    autoescape=False,  # the reader is a model, not a browser
)
_ENVIRONMENT.filters["fenced"] = fenced

_SAMPLE = 'def get_weather(*, city: str) -> Any:\n    """The weather in a city."""\n'
_SAMPLE_TOOL = {"type": "function", "function": {"name": "get_weather"}}


class InvalidTemplate(ValueError):
    """The message names the file, the line and the reason."""


def render_custom(path: str, **values: Any) -> str:
    """Render the file at ``path``. Raises `InvalidTemplate`."""
    try:
        return _template(path).render(**values)
    except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
        line = getattr(error, "lineno", None)
        place = f"{path}, line {line}" if line else path
        raise InvalidTemplate(f"template {place}: {error}") from error
    except OSError as error:
        raise InvalidTemplate(f"template {path}: {error.strerror}") from error


def check_templates(settings: Settings) -> None:
    """Render each profile's templates with a sample. Raises `InvalidTemplate`."""
    for row in settings.profiles:
        if row.chat_template:
            try:
                tools_prompt(row.chat_template, Toolset.parse([_SAMPLE_TOOL]))
            except NoTools as error:
                raise InvalidTemplate(f"chat template {row.chat_template}: {error}") from error
        for choice in ("auto", "required", "get_weather") if row.template else ():
            text = render_custom(
                row.template or "",
                stubs=_SAMPLE,
                example="get_weather(city=...)",
                choice=choice,
                one_at_a_time=choice != "auto",
                programs=choice == "auto",
                python="",
                several=True,
                taught="",
                answer_format="",
                habit="python",
            )
            if "get_weather" not in text:
                raise InvalidTemplate(
                    f"template {row.template}: the rendered text does not show the functions; "
                    "add {{ stubs }} to it"
                )


@lru_cache(maxsize=64)
def teaches_label(path: str) -> bool:
    """Return True if the template at ``path`` tells the model how to label what runs. Logs once if not."""
    if MARK in Path(path).expanduser().read_text():
        return True
    log.info("any valid call in a block acts", template=path, reason=f"it does not name {MARK}")
    return False


@lru_cache(maxsize=64)
def _template(path: str) -> Template:
    return _ENVIRONMENT.from_string(Path(path).expanduser().read_text())
