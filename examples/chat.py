"""A conversation at the terminal with a model that may call the functions of a Python file.

make run                                     # in another terminal: the proxy, in front of your model
python examples/chat.py [YOURS]              # a Python file whose functions take strings; default: a clock

Each call is shown, and runs if you agree: Enter alone means no. Ctrl-D ends the conversation.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import runpy
import sys
import zoneinfo
from collections.abc import Callable
from typing import Any

import openai
from proxy import connect, lines
from tools import talk


def clock(zone: str) -> str:
    """The time in a zone, like Europe/London."""
    return dt.datetime.now(zoneinfo.ZoneInfo(zone)).isoformat(timespec="minutes")


def functions_of(file: str) -> list[Callable[..., Any]]:
    """The public functions that ``file`` defines. It is your code, and runs here."""
    return [
        value
        for name, value in runpy.run_path(file).items()
        if inspect.isfunction(value) and value.__module__ == "<run_path>" and name[0] != "_"
    ]


def asked_about(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which runs if the user agrees."""

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        # repr shows control characters as escapes: a model wrote the arguments.
        if input(f"{function.__name__}({arguments!r})  Run it? [y/N] ").lower()[:1] != "y":
            return "error: the user declined this call"
        result = function(**arguments)
        print(f"  -> {result!r}")
        return result

    return call


def main(file: str | None) -> None:
    client = connect()
    functions = [asked_about(each) for each in (functions_of(file) if file else [clock])]
    print(f"Functions: {', '.join(each.__name__ for each in functions)}")
    history: list[Any] = []
    for line in lines("> "):
        history.append({"role": "user", "content": line})
        try:
            answer = talk(client, history, functions)
        except openai.APIStatusError as error:
            answer = f"error: {error.message}"
            history.pop()
        print("".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in answer))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
