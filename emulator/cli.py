"""The command line: read the settings, do what is asked for.

tool-emulator [serve] [--api-key KEY] [--base-url URL] [--port 8001]
tool-emulator doctor
tool-emulator explain TOOLS.json [--reply FILE]
tool-emulator --version

`python app.py` takes the same, from a checkout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import emulator

if TYPE_CHECKING:
    from emulator.settings import Settings

CURL = """\
curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{{
  "model": "{model}",
  "messages": [{{"role": "user", "content": "What is the weather in London?"}}],
  "tools": [{{"type": "function", "function": {{
    "name": "get_weather", "description": "Get the current weather of a city.",
    "parameters": {{"type": "object", "required": ["location"],
      "properties": {{"location": {{"type": "string", "description": "City"}}}}}}}}}}]}}'"""

USAGE = """\
{program} [serve] [settings]                          serve the proxy
{program} doctor [settings]                           which engines and fences work on this machine
{program} explain TOOLS.json [--reply FILE] [settings]
                 what a model is shown of the tools, and what would come of a reply; - is standard input
{program} --version

The settings:
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks for; ``serve`` if it names no command."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv == ["--version"]:
        print(f"tool-emulator {emulator.__version__}")
        return
    if argv[:1] in (["--help"], ["-h"]):
        print(USAGE.format(program=_program()))
    command = COMMANDS.get(argv[0]) if argv else None
    sys.exit(command(argv[1:]) if command else _serve(argv))


def _serve(arguments: Sequence[str]) -> int:
    """Serve until a signal comes."""
    settings = _settings(arguments)
    # gunicorn forks: everything with threads or child processes starts in the worker.
    from emulator.web.app import create_app
    from emulator.web.server import Server

    with ExitStack() as running:
        model = "any"
        if settings.local_model:
            from pydantic import SecretStr

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
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    settings = _settings(arguments)
    from emulator import doctor

    return doctor.main(settings)


def _explain(arguments: Sequence[str]) -> int:
    """Returns 0, or 1 if the reply is not usable."""
    parser = argparse.ArgumentParser(
        prog=f"{_program()} explain",
        description="What a model is shown of some tools, and what would come of a reply of its.",
        epilog="Settings (--profile tiny, --engines monty ...) may follow.",
        allow_abbrev=False,
    )
    parser.add_argument("tools", help="JSON file: a request, a tools array or one tool; -: stdin")
    parser.add_argument("--reply", metavar="FILE", help="what a model answered; -: stdin")
    options, rest = parser.parse_known_args(arguments)
    settings = _settings(rest)

    from emulator.errors import EmulatorError
    from emulator.explain import explain, read_tools

    try:
        request = read_tools(_read(options.tools))
        reply = _read(options.reply).decode(errors="replace") if options.reply else None
        explanation = explain(settings, request, reply)
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    except EmulatorError as error:
        sys.exit(f"{error.param}: {error.message}" if error.param else error.message)
    print(explanation)
    return 0 if explanation.usable else 1


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "serve": _serve,
    "doctor": _doctor,
    "explain": _explain,
}


def _settings(arguments: Sequence[str]) -> Settings:
    """The settings; exits with what is wrong with them."""
    from pydantic import ValidationError

    from emulator import logs
    from emulator.settings import from_command_line

    try:
        settings = from_command_line(arguments, _program())
    except ValidationError as error:
        sys.exit("\n".join(_complaint(detail) for detail in error.errors()))
    logs.configure(settings.log_level)
    return settings


def _program() -> str:
    return Path(sys.argv[0]).name


def _read(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


def _complaint(detail: object) -> str:
    assert isinstance(detail, dict)
    place = ".".join(str(part) for part in detail["loc"])
    return f"{'--' + place.replace('_', '-') + ': ' if place else ''}{detail['msg']}"
