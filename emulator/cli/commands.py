"""The command line: read the settings and run the named command.

tool-emulator [serve] [--api-key KEY] [--base-url URL] [--port 8001]
tool-emulator doctor
tool-emulator mcp
tool-emulator upstream [--ask]
tool-emulator explain TOOLS.json [--reply FILE]
tool-emulator fit [--model MODEL] [--minutes N] [--write]
tool-emulator run AGENT [-- ARGS]
tool-emulator keys new NAME
tool-emulator --version

In a checkout, `python app.py` takes the same arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import emulator
from emulator.cli.interrupts import INTERRUPTED, raise_on_signals

if TYPE_CHECKING:
    from emulator.settings.configuration import Configuration

USAGE = """\
{program} [serve] [settings]          serve the proxy
{program} doctor [settings]           show which engines, fences and MCP servers work
{program} mcp [settings]              show the tools of the MCP servers, and what is wrong with them
{program} upstream [--ask] [settings] show the upstream and what chose it; --ask: which server answers
{program} explain TOOLS.json          show what a model sees, and how a reply is read; see explain --help
{program} fit [settings]              measure which way of calling tools suits a model; see fit --help
{program} run AGENT [-- ARGS]         start codex, claude, copilot or another; see run --help
{program} keys new NAME               make a client key and its table for client_keys_file
{program} --version, --help, --help-all

{settings}

Each flag is also a variable (--base-url: EMULATOR_BASE_URL) and a key of emulator.toml (base_url).
Precedence: command line > EMULATOR_* > emulator.toml > DEEPSEEK_API_KEY, OPENAI_* > default.{more}
"""

NOT_CONFIGURED = 3
"""The exit code of ``upstream`` if no setting and no variable names one."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command in ``arguments`` (default: ``sys.argv``); without a command, ``serve``."""
    try:
        sys.exit(_run_command(list(sys.argv[1:] if arguments is None else arguments)))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package in ("emulator", "sandbox"):
            raise
        _exit_with(
            f"{sys.executable} lacks the package {package}: start it by `make run`, or install "
            "requirements.txt with Python 3.11 or newer",
            code=1,
        )


def _run_command(argv: list[str]) -> int:
    end = argv.index("--") if "--" in argv else len(argv)
    argv, foreign = argv[:end], argv[end:]  # what follows -- is the agent's of `run`
    if "--version" in argv:
        print(f"tool-emulator {emulator.__version__}")
        return 0
    for flag in ("--help-all", "--help", "-h"):
        if flag in argv and argv[0] not in ("explain", "fit", "chat", "run"):
            _help(everything=flag == "--help-all")
            return 0
    # Settings may precede the command: --base-url URL upstream. The value of a flag may be a command's name.
    for place, word in enumerate(argv):
        if word in COMMANDS and (place == 0 or _are_settings(argv[:place])):
            argv = [word, *argv[:place], *argv[place + 1 :]]
            break
    command = COMMANDS.get(argv[0]) if argv else None
    if argv and not command and not argv[0].startswith("-"):
        from emulator.settings.command_line import nearest

        if argv[0].startswith(("http://", "https://")):
            _exit_with(f"{argv[0]}: write --base-url {argv[0]}")
        hint = nearest(argv[0], list(COMMANDS)) or f"; there are {', '.join(COMMANDS)}"
        _exit_with(f"{argv[0]}: there is no such command{hint}")
    return command([*argv[1:], *foreign]) if command else _serve([*argv, *foreign])


def _are_settings(arguments: Sequence[str]) -> bool:
    """Return True if ``arguments`` are flags with their values."""
    from emulator.settings.command_line import BadFlag, parse

    try:
        return arguments[0].startswith("-") and parse(arguments) is not None
    except BadFlag:
        return False


def _help(*, everything: bool) -> None:
    from emulator.settings.command_line import settings_help

    more = "" if everything else " All settings: --help-all"
    settings = settings_help(everything=everything)
    print(USAGE.format(program=_program(), settings=settings, more=more), end="")


def _serve(arguments: Sequence[str]) -> int:
    """Serve until a signal arrives."""
    configuration = _configuration(arguments)
    from emulator.cli.serve import CannotServe, serve

    try:
        serve(configuration)
    except CannotServe as error:
        _exit_with(str(error), code=error.code)
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    settings = _configuration(arguments, listens=False).settings
    from emulator.hosted.report import examine
    from emulator.interpreter import doctor

    raise_on_signals()
    return doctor.main(settings, [report.check() for report in examine(settings)])


def _mcp(arguments: Sequence[str]) -> int:
    """Show the tools of the operator's MCP servers. Returns 1 if anything is wrong with one."""
    settings = _configuration(arguments, listens=False).settings
    from emulator.hosted.report import examine
    from emulator.settings.redaction import redactor

    raise_on_signals()
    reports = examine(settings)
    print(
        redactor(settings)("\n".join(map(str, reports)))
        or "No MCP server is configured: see docs/mcp.md."
    )
    return 0 if all(report.is_sound for report in reports) else 1


def _upstream(arguments: Sequence[str]) -> int:
    """Show the configured upstream. Returns 0, 1 if it was asked and none answers, or `NOT_CONFIGURED`."""
    settings = [argument for argument in arguments if argument != "--ask"]
    configuration = _configuration(settings, options=["ask"])
    print(configuration.upstream)
    if "--ask" in arguments and not configuration.settings.local_model:
        from emulator.core import logs
        from emulator.settings.redaction import redactor
        from emulator.upstream.reachability import describe_upstreams

        hide = redactor(configuration.settings)
        logs.configure("error", hide=hide)  # the check's warnings say what is printed here
        described = [*describe_upstreams(configuration.settings)]
        print(hide("\n".join(line for line, _ in described)))
        if configuration.upstream_is_configured and not any(answers for _, answers in described):
            return 1
    return 0 if configuration.upstream_is_configured else NOT_CONFIGURED


def _explain(arguments: Sequence[str]) -> int:
    """Show how tools and a reply are read. Returns 0, or 1 if the reply is not usable."""
    from emulator.settings.command_line import OptionParser

    parser = OptionParser(
        prog=f"{_program()} explain",
        description="Show what a model sees of the tools, and how the proxy would read a reply.",
        epilog="Settings (--profile tiny, --order strict ...) may follow.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "file", metavar="tools", help="JSON file: a request, a tools array or one tool; -: stdin"
    )
    parser.add_argument("--reply", metavar="FILE", help="a model's reply; -: stdin")
    options, rest = parser.parse_known_args(arguments)
    settings = _configuration(rest, listens=False, options=["reply"]).settings

    from emulator.answering.explain import explain, read_tools
    from emulator.core.errors import EmulatorError

    try:
        request = read_tools(_read(options.file))
        reply = _read(options.reply).decode(errors="replace") if options.reply else None
        explanation = explain(settings, request, reply)
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    except EmulatorError as error:
        place = "" if error.message.startswith(error.param or "") else f"{error.param}: "
        sys.exit(f"{place}{error.message}")
    print(explanation)
    return 0 if explanation.usable else 1


def _fit(arguments: Sequence[str]) -> int:
    from emulator.cli.fit.command import main as fit

    return fit(_program(), arguments)


def _chat(_arguments: Sequence[str]) -> int:
    _exit_with("chat is an example now: python examples/chat.py, in a checkout of the project")


def _run(arguments: Sequence[str]) -> int:
    from emulator.cli.terminal.run import main as run

    return run(_program(), arguments)


def _keys(arguments: Sequence[str]) -> int:
    """Print a new client key on standard error, and its entry for the keys file on standard output."""
    if len(arguments) != 2 or arguments[0] != "new":
        _exit_with(f"usage: {_program()} keys new NAME >> keys.toml")
    from emulator.core.client_keys import InvalidClientKeys, entry, new_key

    key = new_key()
    try:
        table = entry(arguments[1], key)
    except InvalidClientKeys as error:
        _exit_with(str(error))
    print(f"The key of {arguments[1]}, which is not shown again: {key}", file=sys.stderr)
    print(table, flush=True)
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "serve": _serve,
    "doctor": _doctor,
    "mcp": _mcp,
    "upstream": _upstream,
    "explain": _explain,
    "fit": _fit,
    "chat": _chat,
    "run": _run,
    "keys": _keys,
}


def _configuration(
    arguments: Sequence[str], *, listens: bool = True, options: Sequence[str] = ()
) -> Configuration:
    """Read the settings and their sources. On an error, print it and exit."""
    from emulator.core import logs
    from emulator.settings.configuration import ConfigurationError, read
    from emulator.settings.redaction import redactor

    try:
        configuration = read(arguments, listens=listens, options=options)
    except ConfigurationError as error:
        _exit_with(str(error))
    logs.configure(configuration.settings.log_level, hide=redactor(configuration.settings))
    return configuration


def _exit_with(message: str, code: int = 2) -> NoReturn:
    """Print ``message`` and exit. 2 is the exit code for an invalid command line."""
    print(message, file=sys.stderr)
    sys.exit(code)


def _program() -> str:
    name = Path(sys.argv[0]).name
    return {"app.py": "python app.py", "__main__.py": "python -m emulator"}.get(name, name)


def _read(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
