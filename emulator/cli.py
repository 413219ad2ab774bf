"""The command line: read the settings, start what they ask for.

tool-use-api-emulator [serve] [--api-key KEY] [--base-url URL] [--port 8001]
tool-use-api-emulator doctor
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from pydantic import SecretStr, ValidationError

from emulator import logs
from emulator.settings import from_command_line

CURL = """\
curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{{
  "model": "{model}",
  "messages": [{{"role": "user", "content": "What is the weather in London?"}}],
  "tools": [{{"type": "function", "function": {{
    "name": "get_weather", "description": "Get the current weather of a city.",
    "parameters": {{"type": "object", "required": ["location"],
      "properties": {{"location": {{"type": "string", "description": "City"}}}}}}}}}}]}}'"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the settings, start what they ask for, serve until a signal comes."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    examining = given[:1] == ["doctor"]
    try:
        settings = from_command_line(given[1:] if examining else given)
    except ValidationError as error:
        sys.exit("\n".join(_complaint(detail) for detail in error.errors()))
    logs.configure(settings.log_level)
    if examining:
        from emulator import doctor

        sys.exit(doctor.main(settings))
    # gunicorn forks: everything with threads or child processes starts in the worker.
    from emulator.web.app import create_app
    from emulator.web.server import Server

    with ExitStack() as running:
        model = "any"
        if settings.local_model:
            from emulator.upstream import local_model

            url = running.enter_context(local_model.serve())
            model = local_model.MODEL_NAME
            settings = settings.model_copy(
                update={"base_url": url, "api_key": SecretStr("local"), "profile": "tiny"}
            )
        here = f"http://{settings.host}:{settings.port}"
        print(f"Serving {here}/v1 in front of {settings.base_url}. Try:\n", file=sys.stderr)
        print(CURL.format(url=here, model=model), flush=True)
        Server(settings, lambda: create_app(settings)).run()


def _complaint(detail: object) -> str:
    assert isinstance(detail, dict)
    place = ".".join(str(part) for part in detail["loc"])
    return f"{'--' + place.replace('_', '-') + ': ' if place else ''}{detail['msg']}"
