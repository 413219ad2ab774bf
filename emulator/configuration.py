"""Read all settings from everywhere, and tell what is wrong with them: a line each, with its place.

The precedence is that of `Settings`: command line > ``EMULATOR_*`` > file > providers' variables > default.
What `Settings` finds wrong is told here by the name under which it was said: the flag, the variable, or the
file with its line.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from emulator import addresses, command_line, providers
from emulator.command_line import BadFlag, nearest
from emulator.settings import Settings
from emulator.settings_sources import CONFIG_VARIABLE, DEFAULT_FILE, SERVICE_LINK_ADDRESS

PREFIX = "EMULATOR_"
_SERVICE_LINK = re.compile(r"\w+_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
"""Kubernetes sets these in every container for a service, which may be called emulator."""


class ConfigurationError(Exception):
    """What keeps the proxy from starting, each problem a line."""


@dataclass(frozen=True)
class Configuration:
    """The settings, and who said what."""

    settings: Settings
    flags: Mapping[str, Any]
    file: _File

    def place(self, name: str) -> str:
        """Where the setting ``name`` was said: a flag, a variable or a line of the file; "" if nowhere."""
        if name in self.flags:
            return command_line.flag(name)
        return _variable(name) or self.file.place(name)

    @property
    def upstream_is_configured(self) -> bool:
        """Whether anything at all names an upstream."""
        named = ("base_url", "api_key", "upstreams", "local_model")
        return any(self.place(name) for name in named) or bool(self._provider_defaults.url_from)

    @property
    def upstream_rule(self) -> str:
        """Why it is this upstream."""
        if place := self.place("base_url"):
            return place
        variable = self._provider_defaults.url_from
        if variable and variable != providers.BASE_URL_VARIABLE:
            return f"{variable} is set, and no base URL"
        return variable or "the default: no setting and no variable names another"

    @property
    def upstream(self) -> str:
        """Which upstream it is, or which they are, and why."""
        settings = self.settings
        if settings.local_model:
            return f"the embedded model ({self.place('local_model')})"
        if not settings.upstreams:
            return f"{settings.base_url} ({self.upstream_rule})"
        each = ", ".join(f"{row.base_url} for {' '.join(row.models)}" for row in settings.upstreams)
        return f"{each} ({self.place('upstreams')})"

    @property
    def notes(self) -> list[str]:
        """What the operator may not expect."""
        said = []
        given = self._given_base_url
        if given and given.rstrip("/") != self.settings.base_url:
            said.append(
                f"{self.upstream_rule}: {given} is the address of an endpoint; "
                f"the base URL is {self.settings.base_url}"
            )
        said += [
            f"{variable} is not sent to {self.settings.base_url}, which is not its provider's; "
            f"the key for that is said by --api-key or {PREFIX}API_KEY"
            for variable in self._provider_defaults.unsent
        ]
        return [] if self.settings.local_model or self.settings.upstreams else said

    @property
    def _given_base_url(self) -> str:
        name = "base_url"
        said = self.flags.get(name) or os.environ.get(_variable(name)) or self.file.values.get(name)
        return str(said or self._provider_defaults.base_url or "").strip()

    @cached_property
    def _provider_defaults(self) -> providers.ProviderDefaults:
        explicit = self.settings.base_url if self.place("base_url") else None
        return providers.provider_defaults(
            os.environ, base_url=explicit, has_key=bool(self.place("api_key"))
        )


@dataclass(frozen=True)
class _File:
    """The settings' file; ``path`` is None where there is none."""

    path: Path | None = None
    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def place(self, name: str, inside: str = "") -> str:
        """The line that says ``name``, or ``inside`` of it where that is a table."""
        if self.path is None or name not in self.values:
            return ""
        return self.at(
            self._line(inside) or self._line(name), ".".join(filter(None, [name, inside]))
        )

    def at(self, line: int, key: str = "") -> str:
        where = f"{self.path}, line {line}" if line else str(self.path)
        return f"{where}: {key}" if key else where

    def _line(self, key: str) -> int:
        """The number of the first line that begins with ``key``; 0 if none does."""
        if not key:
            return 0
        pattern = re.compile(rf"\s*(?:\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
        lines = enumerate(self.text.splitlines(), 1)
        return next((number for number, line in lines if pattern.match(line)), 0)


def read(arguments: Sequence[str] = (), *, listens: bool = True) -> Configuration:
    """The settings of a command line and of all around it. Raises `ConfigurationError`.

    Who only looks (``listens=False``) is not asked for whom the proxy will serve.
    """
    try:
        flags = command_line.parse(arguments)
    except BadFlag as error:
        raise ConfigurationError(str(error)) from error
    _check_variables()
    file = _read_file()
    problems = _unknown_keys(file)
    given = flags if listens else {"open": True, **flags}
    try:
        made = Configuration(Settings(**given), flags, file)
    except ValidationError as error:
        known = [
            one for one in error.errors() if one["type"] != "extra_forbidden" or one["loc"][1:]
        ]
        problems += [_complaint(flags, file, one) for one in known]
        raise ConfigurationError("\n".join(problems)) from error
    if problems:
        raise ConfigurationError("\n".join(problems))
    if listens and not made.settings.local_model:
        _refuse_itself(made)
    return made


def from_command_line(arguments: Sequence[str]) -> Settings:
    """The settings alone. Raises `ConfigurationError`."""
    return read(arguments).settings


def _refuse_itself(made: Configuration) -> None:
    settings = made.settings
    for row in settings.upstreams:
        if addresses.is_own(row.base_url, settings.host, settings.port):
            raise ConfigurationError(
                f"{made.place('upstreams')}: {row.base_url} is this proxy's own address, which would ask "
                "itself for ever: name the model's server, or another --port"
            )
    if not settings.upstreams and addresses.is_own(settings.base_url, settings.host, settings.port):
        fix = "name the model's server, or another --port"
        if made.upstream_rule == providers.BASE_URL_VARIABLE:
            fix = (
                f"that variable is for clients here; name the model's server by --base-url or "
                f"{PREFIX}BASE_URL"
            )
        raise ConfigurationError(
            f"{made.upstream_rule}: {settings.base_url} is this proxy's own address, which would ask "
            f"itself for ever: {fix}"
        )


def _check_variables() -> None:
    known = [CONFIG_VARIABLE, *(PREFIX + name.upper() for name in Settings.model_fields)]
    unknown = [
        f"{name}: there is no such setting{nearest(name.upper().replace('-', '_'), known)}"
        for name in sorted(os.environ)
        if name.upper().startswith(PREFIX)
        and name.upper() not in known
        and not _SERVICE_LINK.fullmatch(name)
    ]
    if unknown:
        raise ConfigurationError("\n".join(unknown))


def _read_file() -> _File:
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named or DEFAULT_FILE)
    if not named and not path.exists():
        return _File()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        said_by = f"{CONFIG_VARIABLE}: " if named else ""
        raise ConfigurationError(f"{said_by}{path} cannot be read: {reason}") from error
    try:
        return _File(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(_broken(path, text, error)) from error


def _broken(path: Path, text: str, error: tomllib.TOMLDecodeError) -> str:
    """The file, the line, the key in it, and what `tomllib` says of it."""
    reason = re.sub(r" \(at (?:line.*|end of document)\)$", "", str(error))
    found = re.search(r"\(at line (\d+)", str(error))
    lines = text.splitlines()
    number = int(found[1]) if found else len(lines)
    key = re.match(r"\s*([\w.\"'-]+)\s*=", lines[number - 1]) if 0 < number <= len(lines) else None
    return f"{_File(path).at(number, key[1] if key else '')}: {reason[:1].lower()}{reason[1:]}"


def _unknown_keys(file: _File) -> list[str]:
    known = list(Settings.model_fields)
    return [
        f"{file.place(key)}: there is no such setting{nearest(key.replace('-', '_'), known)}"
        for key in file.values
        if key not in known
    ]


def _complaint(flags: Mapping[str, Any], file: _File, problem: Any) -> str:
    name, *inside = [str(part) for part in problem["loc"]] or [""]
    place = ""
    if name:
        inner = next((part for part in reversed(inside) if not part.isdecimal()), "")
        place = command_line.flag(name) if name in flags else ""
        place = place or _variable(name) or file.place(name, inner)
        place = place or _default_place(name)
    message = problem["msg"].removeprefix("Value error, ")
    secret = "key" in name or "token" in name
    given = problem["input"]
    shown = f" {given}" if isinstance(given, str | int | float) and place and not secret else ""
    shown = "" if message.startswith(repr(given)) else shown
    return f"{place}{shown}: {message[:1].lower()}{message[1:]}" if place else message


def _default_place(name: str) -> str:
    """Which of the providers' variables said it, or the flag that would."""
    if name == "base_url" and os.environ.get(providers.BASE_URL_VARIABLE):
        return providers.BASE_URL_VARIABLE
    return command_line.flag(name)


def _variable(name: str) -> str:
    """The environment's variable of a setting as it is written there; "" if it is not set."""
    wanted = PREFIX + name.upper()
    return next((each for each in os.environ if each.upper() == wanted and _says(each)), "")


def _says(variable: str) -> bool:
    value = os.environ[variable]
    return bool(value) and not SERVICE_LINK_ADDRESS.fullmatch(value)
