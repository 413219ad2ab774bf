"""Where the examples find the proxy: `make run` serves it here; PROXY_URL and MODEL name others."""

from __future__ import annotations

import os
from pathlib import Path

import openai

URL = os.environ.get("PROXY_URL", "http://127.0.0.1:8001/v1")
MODEL = os.environ.get("MODEL", "any")


def connect() -> openai.OpenAI:
    """The official client, pointed at the proxy. PROXY_KEY is one of its --client-keys, if it has any."""
    return openai.OpenAI(base_url=URL, api_key=os.environ.get("PROXY_KEY", "any"))


def inside(folder: Path, name: str) -> Path:
    """The path of ``name`` in ``folder``, for a name that a model chose.

    Raises ValueError for one that leads out of it, also by a link.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} is outside of the folder that is shared")
    return path
