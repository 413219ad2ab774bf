"""What the examples share: where the proxy is, lines typed at a prompt, paths that a model may name.

`make run` serves the proxy here; PROXY_URL names another, MODEL a model, PROXY_KEY one of its --client-keys.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import openai

URL = os.environ.get("PROXY_URL", "http://127.0.0.1:8001/v1")
MODEL = os.environ.get("MODEL", "any")
KEY = os.environ.get("PROXY_KEY", "any")


def connect() -> openai.OpenAI:
    """The official client, pointed at the proxy."""
    import openai

    return openai.OpenAI(base_url=URL, api_key=KEY)


def in_one_line(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """One line for what is wrong around an example: a missing package or file, no proxy, its refusal."""
    cause: BaseException | None = error
    while cause is not None:
        match type(cause).__name__:
            case "ModuleNotFoundError":
                sys.exit(
                    f"{cause}: install what {sys.argv[0]} begins with, or `pip install --group examples`"
                )
            case "APIConnectionError":
                sys.exit(f"{URL} does not answer: start the proxy (make run), or set PROXY_URL")
            case "AuthenticationError":
                sys.exit(f"PROXY_KEY: {cause}")
            case "BadRequestError" | "NotFoundError" | "FileNotFoundError":
                sys.exit(str(cause))
            case "KeyboardInterrupt" | "EOFError":
                sys.exit(130)
        cause = cause.__cause__ or cause.__context__
    sys.__excepthook__(kind, error, trace)


sys.excepthook = in_one_line


def lines(prompt: str) -> Iterator[str]:
    """What is typed, line by line, until it is ``exit``, Ctrl-D or Ctrl-C."""
    with suppress(EOFError, KeyboardInterrupt):
        while (line := input(prompt).strip()) != "exit":
            yield line


def inside(folder: Path, name: str) -> Path:
    """The path of ``name`` in ``folder``, for a name that a model chose.

    Raises ValueError for one that leads out of it, also by a link.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} is outside of the folder that is shared")
    return path
