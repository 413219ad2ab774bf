"""The command line: read the settings, do what is asked for.

tool-emulator [serve] [--api-key KEY] [--base-url URL] [--port 8001]
tool-emulator doctor
tool-emulator upstream [--ask]
tool-emulator explain TOOLS.json [--reply FILE]
tool-emulator chat [QUESTION] [--tools FILE] [--mcp SERVER]
tool-emulator keys new NAME
tool-emulator --version

`python app.py` takes the same, from a checkout.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import emulator
from emulator.import_blocks import block_imports

if TYPE_CHECKING:
    from emulator.configuration import Configuration

USAGE = """\
{program} [serve] [settings]          serve the proxy
{program} doctor [settings]           which engines and fences work on this machine
{program} upstream [--ask] [settings] which upstream is used, and what chose it; whether it answers
                 and which server it is
{program} explain TOOLS.json [--reply FILE] [settings]
                 what a model is shown of the tools, and what would come of a reply; - is standard input
{program} chat [QUESTION] [--tools FILE] [--mcp SERVER]
                 talk with a model, with tools that run here; chat --help tells more
{program} keys new NAME               a new client key, and its table for client_keys_file
{program} --version, --help, --help-all

{settings}

Each is also a variable (--base-url: EMULATOR_BASE_URL) and a key of emulator.toml (base_url).
Command line > EMULATOR_* > emulator.toml > DEEPSEEK_API_KEY, OPENAI_* > default.{more}
"""

NOT_CONFIGURED = 3
"""The exit code of ``upstream`` where nothing names one."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks for; ``serve`` if it names no command."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if "--version" in argv:
        print(f"tool-emulator {emulator.__version__}")
        return
    for asked in ("--help-all", "--help", "-h"):
        if asked in argv and argv[0] not in ("explain", "chat"):
            _help(everything=asked == "--help-all")
            return
    command = COMMANDS.get(argv[0]) if argv else None
    if argv and not command and not argv[0].startswith("-"):
        from emulator.command_line import nearest

        likely = nearest(argv[0], list(COMMANDS))
        _refuse(f"{argv[0]}: there is no such command{likely}")
    try:
        sys.exit(command(argv[1:]) if command else _serve(argv))
    except KeyboardInterrupt:
        sys.exit(130)


def _help(*, everything: bool) -> None:
    from emulator.command_line import settings_help

    more = "" if everything else " All settings: --help-all"
    listed = settings_help(everything=everything)
    print(USAGE.format(program=_program(), settings=listed, more=more), end="")


def _serve(arguments: Sequence[str]) -> int:
    """Serve until a signal comes."""
    with block_imports():
        made = _configuration(arguments)
        from emulator.serve import CannotServe, serve

        try:
            serve(made, _say)
        except CannotServe as error:
            _refuse(str(error), code=error.code)
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    settings = _configuration(arguments, listens=False).settings
    from emulator import doctor

    return doctor.main(settings)


def _upstream(arguments: Sequence[str]) -> int:
    """Returns 0, or `NOT_CONFIGURED`."""
    made = _configuration([argument for argument in arguments if argument != "--ask"])
    print(made.upstream)
    if "--ask" in arguments and not made.settings.local_model:
        from emulator.upstream.reachability import asked

        for line in asked(made.settings):
            print(line)
    return 0 if made.upstream_is_configured else NOT_CONFIGURED


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
    settings = _configuration(rest, listens=False).settings

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


def _chat(arguments: Sequence[str]) -> int:
    try:
        from emulator.terminal.command import main as chat
    except ImportError as error:
        _refuse(f"chat needs more: pip install 'tool-use-api-emulator[chat]' ({error.name})")
    return chat(_program(), arguments)


def _keys(arguments: Sequence[str]) -> int:
    """Print a new client key on standard error, once, and what to append to the file on standard output."""
    if len(arguments) != 2 or arguments[0] != "new":
        _refuse(f"usage: {_program()} keys new NAME >> keys.toml")
    from emulator.client_keys import ClientKeysUnusable, entry, new_key

    key = new_key()
    try:
        written = entry(arguments[1], key)
    except ClientKeysUnusable as error:
        _refuse(str(error))
    _say(f"The key of {arguments[1]}, which is shown only now: {key}")
    print(written, flush=True)
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "serve": _serve,
    "doctor": _doctor,
    "upstream": _upstream,
    "explain": _explain,
    "chat": _chat,
    "keys": _keys,
}


def _configuration(arguments: Sequence[str], *, listens: bool = True) -> Configuration:
    """The settings and where they come from; exits with what is wrong with them."""
    from emulator import logs
    from emulator.configuration import ConfigurationError, read

    try:
        made = read(arguments, listens=listens)
    except ConfigurationError as error:
        _refuse(str(error))
    logs.configure(made.settings.log_level)
    return made


def _refuse(lines: str, code: int = 2) -> NoReturn:
    """End with these words; 2 is the exit code of a command line that makes no sense."""
    _say(lines)
    sys.exit(code)


def _say(*lines: str) -> None:
    """To people: what programs read is printed on standard output."""
    for line in filter(None, lines):
        print(line, file=sys.stderr, flush=True)


def _program() -> str:
    name = Path(sys.argv[0]).name
    return f"python {name}" if name.endswith(".py") else name


def _read(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
