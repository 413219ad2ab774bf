"""A prompt template of the operator's own: a Jinja file in place of prompts/tools.jinja.

It is rendered in Jinja's sandbox: it sees the values below and nothing behind them, since what fills them
(names and descriptions of tools) comes from clients. `check` renders each at start, so that one that does
not work is found by its author and not by a client.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from emulator.answering.python_calls import fence
from emulator.settings import Settings

_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined,
    autoescape=False,  # the reader is a model, not a browser
)
_ENVIRONMENT.filters["fence"] = fence

_SAMPLE = 'def get_weather(*, city: str) -> Any:\n    """The weather in a city."""\n'


class TemplateUnusable(ValueError):
    """The message says which file, where in it, and why."""


def render_own(path: str, **values: Any) -> str:
    """The text of the file at ``path``. Raises `TemplateUnusable`."""
    try:
        return _template(path).render(**values)
    except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
        line = getattr(error, "lineno", None)
        place = f"{path}, line {line}" if line else path
        raise TemplateUnusable(f"template {place}: {error}") from error
    except OSError as error:
        raise TemplateUnusable(f"template {path}: {error.strerror}") from error


def check(settings: Settings) -> None:
    """Render each profile's template for a sample. Raises `TemplateUnusable`."""
    for row in settings.profiles:
        for choice in ("auto", "required", "get_weather") if row.template else ():
            text = render_own(
                row.template or "",
                stubs=_SAMPLE,
                choice=choice,
                one_at_a_time=choice != "auto",
                programs=choice == "auto",
                python="",
                taught="",
                answer_format="",
                habit="python",
            )
            if "get_weather" not in text:
                raise TemplateUnusable(
                    f"template {row.template}: what it says does not name the functions: "
                    "put {{ stubs }} into it"
                )


@lru_cache(maxsize=64)
def _template(path: str) -> Template:
    return _ENVIRONMENT.from_string(Path(path).expanduser().read_text())
