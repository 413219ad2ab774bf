"""The command line of `tool-emulator chat`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import openai

from emulator.command_line import OptionParser, unknown
from emulator.interrupts import INTERRUPTED, raise_on_signals
from emulator.terminal.conversation import ChatSession
from emulator.terminal.screen import Screen
from emulator.terminal.toolboxes import PythonFile, Toolbox, ToolboxError, mcp_server

URL = "http://127.0.0.1:8001/v1"


def main(program: str, arguments: Sequence[str]) -> int:
    """Run the command. Returns 0, 1 after a failure of the proxy, 2 for invalid options, 130 after Ctrl-C."""
    options, rest = _parser(program).parse_known_args(arguments)
    screen = Screen()
    if rest:
        screen.warn(unknown(rest[0], vars(options)))
        return 2
    raise_on_signals()
    with ExitStack() as opened:
        client = opened.enter_context(
            openai.OpenAI(base_url=options.url, api_key=options.key, max_retries=0)
        )
        try:
            toolboxes: list[Toolbox] = [PythonFile(path) for path in options.tools]
            toolboxes += [opened.enter_context(mcp_server(each)) for each in options.mcp]
            model = options.model or _first_model(client)
            approved = None if options.yes else set[str]()
            conversation = ChatSession(client, model, toolboxes, screen, approved)
        except ToolboxError as error:
            screen.warn(str(error))
            return 2
        except openai.APIError as error:
            screen.warn(_reason(error))
            return 1
        if options.words:
            return _send(conversation, " ".join(options.words))
        _converse(conversation, options.url)
    return 0


def _converse(conversation: ChatSession, url: str) -> None:
    screen = conversation.screen
    names = [tool["function"]["name"] for tool in conversation.tools]
    screen.greet(url, conversation.model, names)
    while True:
        try:
            words = screen.ask("> ", remember=True).strip()
        except KeyboardInterrupt:  # discards the line, as in a shell
            continue
        except EOFError:
            return
        match words:
            case "":
                pass
            case "/quit":
                return
            case "/reset":
                conversation.messages.clear()
            case "/tools":
                for tool in conversation.tools:
                    summary = tool["function"].get("description", "").partition("\n")[0]
                    screen.note(f"{tool['function']['name']}: {summary}")
            case _ if words.startswith("/"):
                screen.warn(f"{words}: unknown command; use /tools, /reset or /quit")
            case _:
                _send(conversation, words)


def _send(conversation: ChatSession, words: str) -> int:
    """Send ``words``. Returns the exit code of a single question; a conversation continues."""
    try:
        return 0 if conversation.send(words) else 1
    except openai.APIError as error:
        conversation.screen.warn(_reason(error))
        return 1
    except EOFError:
        conversation.screen.warn("no answer, so nothing runs; --yes runs every call without asking")
        return 1
    except KeyboardInterrupt:
        conversation.screen.warn("interrupted")
        return INTERRUPTED


def _reason(error: openai.APIError) -> str:
    if isinstance(error, openai.APIConnectionError):
        return (
            f"{error.request.url} does not answer: start the proxy, or name its address with --url"
        )
    return error.message


def _first_model(client: openai.OpenAI) -> str:
    with suppress(StopIteration):
        return next(iter(client.models.list())).id
    return "any"


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"http://{url}"


def _parser(program: str) -> argparse.ArgumentParser:
    parser = OptionParser(
        prog=f"{program} chat",
        description="Talk to a model behind the proxy, which may call tools on this machine.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("words", nargs="*", help="a question; without one, a conversation starts")
    add(
        "--tools",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="a Python file whose functions are the tools",
    )
    add(
        "--mcp", metavar="SERVER", action="append", default=[], help="a command in quotes, or a URL"
    )
    add("--model", help="the model (default: the first that the upstream lists)")
    add("--url", default=URL, type=_with_scheme, help=f"the proxy's URL ({URL})")
    add("--key", default="any", help="a client key of the proxy")
    add("--yes", action="store_true", help="run every call without asking")
    return parser
