"""What the examples share: where the proxy is, lines typed at a prompt, paths that a model may name.

`make run` serves the proxy here; PROXY_URL names another, MODEL a model, PROXY_KEY one of its --client-keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import openai

URL = os.environ.get("PROXY_URL", "http://127.0.0.1:8001/v1")
MODEL = os.environ.get("MODEL", "any")
KEY = os.environ.get("PROXY_KEY", "any")


def connect() -> openai.OpenAI:
    """The official client, pointed at the proxy."""
    return openai.OpenAI(base_url=URL, api_key=KEY)


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
