"""The command line of `tool-emulator chat`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import openai

from emulator.terminal.conversation import Conversation
from emulator.terminal.screen import Screen
from emulator.terminal.toolboxes import PythonFile, Toolbox, ToolboxError, mcp_server

URL = "http://127.0.0.1:8001/v1"


def main(program: str, arguments: Sequence[str]) -> int:
    """Talk with a model. Returns 0, 1 after a failure of the proxy, 2 for options that make no sense."""
    options = _parser(program).parse_args(arguments)
    screen = Screen()
    with ExitStack() as opened:
        client = opened.enter_context(
            openai.OpenAI(base_url=options.url, api_key=options.key, max_retries=0)
        )
        try:
            toolboxes: list[Toolbox] = [PythonFile(path) for path in options.tools]
            toolboxes += [opened.enter_context(mcp_server(each)) for each in options.mcp]
            model = options.model or _first_model(client)
            approved = None if options.yes else set[str]()
            conversation = Conversation(client, model, toolboxes, screen, approved)
        except ToolboxError as error:
            screen.warn(str(error))
            return 2
        except openai.APIError as error:
            screen.warn(f"{options.url}: {error.message}")
            return 1
        if options.words:
            return 0 if _say(conversation, " ".join(options.words)) else 1
        _talk(conversation, options.url)
    return 0


def _talk(conversation: Conversation, url: str) -> None:
    screen = conversation.screen
    names = [tool["function"]["name"] for tool in conversation.tools]
    screen.greet(url, conversation.model, names)
    while True:
        try:
            words = screen.ask("> ", remember=True).strip()
        except KeyboardInterrupt:  # what was typed is dropped, as in a shell
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
                    described = tool["function"].get("description", "").partition("\n")[0]
                    screen.note(f"{tool['function']['name']}: {described}")
            case _ if words.startswith("/"):
                screen.warn(f"{words}: there are /tools, /reset and /quit")
            case _:
                _say(conversation, words)


def _say(conversation: Conversation, words: str) -> bool:
    """Whether an answer came. Ctrl-C ends an answer, not the conversation."""
    try:
        conversation.say(words)
    except openai.APIError as error:
        conversation.screen.warn(error.message)
        return False
    except (KeyboardInterrupt, EOFError):
        conversation.screen.warn("interrupted")
        return False
    return True


def _first_model(client: openai.OpenAI) -> str:
    with suppress(StopIteration):
        return next(iter(client.models.list())).id
    return "any"


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{program} chat",
        description="Talk with a model behind the proxy, which can call tools that run here.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("words", nargs="*", help="a question; without one, a conversation")
    add("--tools", metavar="FILE", type=Path, action="append", default=[], help="its functions")
    add(
        "--mcp", metavar="SERVER", action="append", default=[], help="a command in quotes, or a URL"
    )
    add("--model", help="a model of the upstream (the first that it lists)")
    add("--url", default=URL, help=f"the proxy ({URL})")
    add("--key", default="any", help="a client key of the proxy")
    add("--yes", action="store_true", help="run each call without a question")
    return parser
