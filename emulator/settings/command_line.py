"""The settings as command line flags, and their help. Knows nothing of other sources of settings.

The setting ``base_url`` is the flag ``--base-url``; the switch ``open`` is ``--open`` and ``--no-open``.
Lists of tables can only be written in the file. Values stay strings; `Settings` parses them.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Literal, NoReturn, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from emulator.settings import removed_settings
from emulator.settings.settings import Settings

GROUPS = {
    "base_url": "Upstream",
    "port": "Clients",
    "programs": "Tool programs and sandboxes",
    "interpreter": "Code interpreter",
    "database": "Storage",
    "inspector": "Inspector",
    "log_level": "Log",
}
"""The first setting of each group, in the order of `Settings` -> the group's title."""
_REPEATED = "mcp"
"""The table that also has a flag, for one row each time."""
_COLUMN = 36
"""The column in which a flag's description starts."""

COMMON = frozenset(
    "base_url api_key local_model profile port host client_keys open sandbox interpreter database "
    "files_dir inspector log_level".split()
)
"""The settings that `--help` lists; `--help-all` lists all."""


class BadFlag(Exception):
    """One line that names the flag, the problem and the accepted values."""


class OptionParser(argparse.ArgumentParser):
    """For the options of a command: a mistake is one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message.removeprefix('argument ')}; see {self.prog} --help\n")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        name, _, problem = message.partition(": ")
        field = flag_settings().get(name.removeprefix("--").replace("-", "_"))
        if problem == "expected one argument" and field is not None:
            words = ", ".join(choices(field))
            message = f"{name}: write {'one of ' + words if words else _placeholder(name, field)} after it"
        raise BadFlag(message.replace("ignored explicit argument", "a switch has no value, but"))


def parse(arguments: Sequence[str], options: Iterable[str] = ()) -> dict[str, Any]:
    """The settings that ``arguments`` name. Raises `BadFlag`; for a misspelt flag it suggests one of the
    settings or of the command's ``options``."""
    parser = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for name, field in flag_settings().items():
        if field.annotation is bool:
            parser.add_argument(flag(name), action=argparse.BooleanOptionalAction)
        elif _is_list(field) or name == _REPEATED:
            parser.add_argument(flag(name), action="append")
        else:
            parser.add_argument(flag(name))
    flags, rest = parser.parse_known_args(list(arguments))
    if rest:
        raise BadFlag(unknown(rest[0], [*flag_settings(), *options]))
    return {
        name: ("\n" if name == _REPEATED else ",").join(value) if isinstance(value, list) else value
        for name, value in vars(flags).items()
    }


def flag(name: str) -> str:
    """The flag of a setting."""
    return f"--{name.replace('_', '-')}"


def flag_settings() -> dict[str, FieldInfo]:
    """The settings that have a flag."""
    fields = Settings.model_fields.items()
    return {n: field for n, field in fields if n == _REPEATED or _is_plain(field.annotation)}


def settings_help(*, everything: bool) -> str:
    """The flags by group, one line each."""
    lines: list[str] = []
    for name, field in flag_settings().items():
        if name in GROUPS:
            lines += ["", f"{GROUPS[name]}:"]
        if everything or name in COMMON:
            lines.append(_line(name, field))
    return "\n".join(lines[1:])


def _line(name: str, field: FieldInfo) -> str:
    usage = f"{flag(name)} {_placeholder(name, field)}".rstrip()
    default = field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if _is_list(field):
        default = ",".join(map(str, default))
    if isinstance(default, bool):
        default = "on; --no-" + flag(name)[2:] if default else ""
    words = choices(field)
    text = field.description or ""
    text += f"; one of {', '.join(words)}" if words else ""
    text += f" ({default})" if default not in ("", {}) else ""
    indent = f"  {usage} ".ljust(_COLUMN)
    return textwrap.fill(
        text, 100, initial_indent=indent, subsequent_indent=" " * _COLUMN, break_on_hyphens=False
    )


def _placeholder(name: str, field: FieldInfo) -> str:
    kind = field.annotation
    if kind is bool:
        return ""
    if kind is float:
        return "SECONDS"
    if kind is int:
        return "N"
    word = "SERVER" if name == _REPEATED else name.rpartition("_")[2].upper()
    return f"{word},..." if _is_list(field) else word


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The words that a setting accepts; none if it accepts others."""
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def _is_plain(kind: Any) -> bool:
    """Return True if one word can express a value of this type: not a table, nor a list of tables."""
    if get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return False
    return all(_is_plain(part) for part in get_args(kind) if isinstance(part, type))


def unknown(word: str, names: Iterable[str]) -> str:
    """The line about a ``word`` that is none of the flags ``names``."""
    if not word.startswith("-"):
        is_url = word.startswith(("http://", "https://"))
        return f"{word}: {f'write --base-url {word}' if is_url else 'unexpected argument'}"
    name = word.partition("=")[0]
    known = [f for n in names for f in (flag(n), f"--no-{flag(n)[2:]}")]
    known += ["--help", "--help-all", "--version"]
    if text := removed_settings.advice(name.strip("-").replace("-", "_")):
        return f"{name}: {text}"
    return f"{name}: there is no such flag{nearest(name, known)}"


def nearest(word: str, known: Sequence[str]) -> str:
    """Return a hint that names the ``known`` word most similar to ``word``, or "" if none is similar."""
    matches = get_close_matches(word, known, 1) or get_close_matches(word.lower(), known, 1)
    return f"; did you mean {matches[0]}?" if matches else ""
