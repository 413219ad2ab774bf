"""The command line: read the settings and run the named command.

tool-emulator [serve] [--api-key KEY] [--base-url URL] [--port 8001]
tool-emulator check [URL] [--model MODEL]
tool-emulator doctor
tool-emulator mcp [login NAME | logout NAME]
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
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import emulator
from emulator.cli.interrupts import INTERRUPTED, raise_on_signals

if TYPE_CHECKING:
    from emulator.settings.configuration import Configuration
    from emulator.settings.settings import Settings

USAGE = """\
{program} [serve] [settings]          serve the proxy
{program} check [URL] [settings]      try the model server with a call; without URL, find one
{program} doctor [settings]           show which engines, fences and MCP servers work
{program} mcp [settings]              show the tools of the MCP servers, and what is wrong with them
{program} mcp login NAME              log in at one in a browser (or --no-browser); mcp logout NAME
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
"""The exit code of ``check`` if no setting and no variable names an upstream."""


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
    from emulator.hosted.report import examine, served_checks
    from emulator.interpreter import doctor

    raise_on_signals()
    reports = examine(settings)
    checks = [report.check() for report in reports]
    return doctor.main(settings, checks + served_checks(settings, reports))


def _mcp(arguments: Sequence[str]) -> int:
    """Show the tools of the operator's MCP servers, or of the one at which the user logs in. Returns 1 if
    anything is wrong with one."""
    action, server = "", ""
    if arguments and arguments[0] in ("login", "logout"):
        action, server, *arguments = (*arguments, "") if len(arguments) == 1 else arguments
        if not server or server.startswith("-"):
            _exit_with(f"usage: {_program()} mcp {action} NAME")
    rest = [one for one in arguments if (action, one) != ("login", "--no-browser")]
    settings = _configuration(rest, listens=False, options=["no-browser"]).settings
    from emulator.hosted.report import examine
    from emulator.settings.redaction import redactor

    raise_on_signals()
    if action == "logout":
        from emulator.hosted.login import log_out

        print("The login is deleted." if log_out(server) else "There is no login.")
        return 0
    if action == "login":
        _log_in(settings, server, in_browser="--no-browser" not in arguments)
    reports = examine(settings, [server] if server else None)
    print(
        redactor(settings)("\n".join(map(str, reports)))
        or "No MCP server is configured: see docs/mcp.md."
    )
    return 0 if all(report.is_sound for report in reports) else 1


def _log_in(settings: Settings, server: str, *, in_browser: bool) -> None:
    from emulator.hosted.address import ServerFailed
    from emulator.hosted.login import log_in, open_browser
    from emulator.settings.redaction import redactor

    def show(page: str) -> None:
        print(f"Log in at {server}, within five minutes:\n\n{page}\n", flush=True)
        if in_browser:
            open_browser(page)

    try:
        log_in(settings, server, show)
    except ServerFailed as error:
        _exit_with(redactor(settings)(f"{server}: {error}"), code=1)


def _check(arguments: Sequence[str]) -> int:
    """Report what the upstreams are and can do. Returns 0, 1 if one is not usable, or `NOT_CONFIGURED`."""
    from emulator.settings.command_line import OptionParser

    if arguments and not arguments[0].startswith("-"):
        arguments = ["--base-url", *arguments]
    parser = OptionParser(prog=f"{_program()} check", add_help=False, allow_abbrev=False)
    parser.add_argument("--model", default="")
    options, rest = parser.parse_known_args(arguments)
    configuration = _configuration(rest, options=["model"])
    settings = configuration.settings
    from emulator.cli import check
    from emulator.cli.serve import CannotServe, with_local_model
    from emulator.core import logs
    from emulator.core.errors import EmulatorError
    from emulator.settings.redaction import redactor

    hide = redactor(settings)
    logs.configure("error", hide=hide)  # the report says what would be logged
    raise_on_signals()
    if not configuration.upstream_is_configured:
        _check_usual_places(settings)
        return NOT_CONFIGURED
    print(configuration.upstream, flush=True)
    is_usable = True
    with ExitStack() as cleanup:
        try:
            if settings.local_model:
                settings = with_local_model(settings, cleanup)
            for report in check.examine(settings, options.model):
                title = f"\n{report.name}\n" if settings.upstreams else ""
                print(f"{title}{hide(str(report))}", flush=True)
                is_usable &= report.is_usable
        except CannotServe as error:
            _exit_with(str(error), code=error.code)
        except EmulatorError as error:
            _exit_with(error.message)
    return 0 if is_usable else 1


def _check_usual_places(settings: Settings) -> None:
    """Look for a model server on this machine, and report what was found."""
    from emulator.cli import check

    places = check.usual_places(settings)
    found = False
    for url in check.find_servers(settings, places):
        found = True
        [report] = check.examine(settings.model_copy(update={"base_url": url}))
        print(f"{report}\nTo use it: --base-url {url}\n", flush=True)
    if not found:
        tried = "\n".join(f"  {url} ({name})" for url, name in places.items())
        print(
            f"No upstream is configured, and no model server answers at\n{tried}\n"
            "Start one, or name yours, check http://HOST:PORT/v1. --local-model needs none."
        )


def _upstream(arguments: Sequence[str]) -> int:
    """The earlier name of ``check``. Without ``--ask`` it asks nothing and only shows what is configured."""
    if "--ask" in arguments:
        return _check([argument for argument in arguments if argument != "--ask"])
    configuration = _configuration(arguments, options=["ask"])
    print(configuration.upstream)
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
    "check": _check,
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
