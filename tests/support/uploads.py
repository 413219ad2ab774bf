"""What the tests of files and of containers share: forms, a clock, a look at the disk."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
from urllib3.filepost import encode_multipart_formdata

CSV = b"city,high\nOslo,-2\n"


class Clock:
    """Time that goes by only when a test says so."""

    def __init__(self, now: float = 2e9) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def sdk(proxy: str, key: str = "k") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{proxy}/v1", api_key=key, max_retries=0)


def form(
    parts: dict[str, str], file: tuple[str, bytes] | None = None
) -> tuple[bytes, dict[str, str]]:
    """A multipart body and its header, with ``file`` as (value of ``filename=``, content)."""
    fields: dict[str, Any] = {**parts, **({"file": file} if file else {})}
    body, kind = encode_multipart_formdata(fields, boundary="B")
    return body, {"content-type": kind}


def kept(tmp_path: Path) -> list[int]:
    """The sizes of all contents that the proxy's folder holds."""
    sizes = []
    for place in (tmp_path / "files").glob("contents-*/*"):
        with suppress(FileNotFoundError):  # swept just now
            sizes.append(place.stat().st_size)
    return sorted(sizes)


def error_of(failure: openai.APIStatusError) -> tuple[int, str | None, str | None]:
    return failure.status_code, failure.param, failure.code
