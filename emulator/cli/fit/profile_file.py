"""Write the recommended way as a row of ``[[profiles]]`` into emulator.toml; it replaces an earlier one."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class CannotWrite(Exception):
    """The row cannot be added; the message says why."""


def as_toml(row: Mapping[str, Any], remark: str) -> str:
    """The row between two comments, by which `write` finds it again."""
    values = "".join(f"{name} = {_value(value)}\n" for name, value in row.items())
    return f"# {remark}\n[[profiles]]\n{values}# end of {row['name']}\n"


def write(path: Path, row: Mapping[str, Any], remark: str) -> None:
    """Add ``row`` to the file at ``path``, which may be missing. Raises `CannotWrite`."""
    if not all(str(value).isprintable() for value in (*row.values(), remark)):
        raise CannotWrite(f"the model's name is not printable: {row['name']!r}")
    try:
        text = path.read_bytes().decode() if path.exists() else ""
        end = re.escape(f"# end of {row['name']}\n")
        earlier = re.compile(rf"^#[^\n]*\n\[\[profiles\]\]\n(?:(?!#)[^\n]*\n)*{end}", re.MULTILINE)
        others = earlier.sub("", text).rstrip("\n")
        added = f"{others}\n\n{as_toml(row, remark)}".lstrip("\n")
        tomllib.loads(added)
        path.touch()
        with path.open("r+b") as file:  # bytes: the lines' ends stay as they are
            content = added.encode()
            os.posix_fallocate(
                file.fileno(), 0, len(content)
            )  # if the disk is full, nothing is lost
            file.write(content)
            file.truncate()
    except tomllib.TOMLDecodeError as error:
        raise CannotWrite(f"{path}: a row cannot be added: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise CannotWrite(f"{path}: {error}") from error


def _value(value: Any) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's, except DEL, which is not printable."""
    if isinstance(value, Mapping):
        inside = ", ".join(f"{json.dumps(k)} = {_value(v)}" for k, v in value.items())
        return f"{{{inside}}}"
    return json.dumps(value, ensure_ascii=False)
