"""Read the settings from all sources, and report each problem in one line that names its place.

The precedence is that of `Settings`: command line > ``EMULATOR_*`` > file > providers' variables > default.
A problem is reported under the name that the user wrote: the flag, the variable, or the line of the file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from emulator.core import addresses
from emulator.core.cached_property import cached_property
from emulator.settings import command_line, removed_settings
from emulator.settings import sources as settings_sources
from emulator.settings.command_line import BadFlag, nearest
from emulator.settings.mcp_settings import ApprovalFilter, MCPServerRow, ToolFilter
from emulator.settings.redaction import holds_secret, shown_text
from emulator.settings.serve_settings import (
    FileSearchRow,
    ImageRow,
    ServeTables,
    WebFetchRow,
    WebSearchRow,
)
from emulator.settings.settings import Settings
from emulator.settings.sources import CONFIG_VARIABLE, DEFAULT_FILE, ENCODING, SERVICE_LINK_ADDRESS
from emulator.settings.upstream_settings import ProfileRow, UpstreamRow
from emulator.settings.web_search_settings import WebSearchTable

PREFIX = "EMULATOR_"
ROWS: Mapping[str, tuple[type[BaseModel], ...]] = {
    "upstreams": (UpstreamRow,),
    "profiles": (ProfileRow,),
    "mcp": (MCPServerRow, ToolFilter, ApprovalFilter),
    "web_search": (WebSearchTable,),
    "serve": (ServeTables, WebSearchRow, WebFetchRow, FileSearchRow, ImageRow),
}
"""The tables of the file, with those inside them."""
_MODELS: tuple[type[BaseModel], ...] = (Settings, *(row for rows in ROWS.values() for row in rows))
_SECRETS = frozenset(
    name
    for model in _MODELS
    for name, field in model.model_fields.items()
    if holds_secret(field.annotation)
)
"""The settings, and the keys in their tables, whose values are not shown."""
_SERVICE_LINK = re.compile(r"\w+_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
"""Kubernetes sets these variables in every container for each service; a service may be named emulator."""


class ConfigurationError(Exception):
    """The problems that prevent a start, one line each. Without passwords: the logs of a start are shared."""

    def __init__(self, problems: str) -> None:
        super().__init__(shown_text(problems))


@dataclass(frozen=True)
class Configuration:
    """The settings and their sources."""

    settings: Settings
    flags: Mapping[str, Any]
    file: _File

    def place(self, name: str) -> str:
        """The source of the setting ``name``: a flag, a variable or a line of the file; "" for a default."""
        if name in self.flags:
            return command_line.flag(name)
        return _variable(name) or self.file.place(name)

    @property
    def upstream_is_configured(self) -> bool:
        """Return True if any setting or variable names an upstream."""
        settings = ("base_url", "api_key", "upstreams", "local_model")
        return any(map(self.place, settings)) or bool(self._provider_defaults.url_from)

    @property
    def upstream_rule(self) -> str:
        """The reason why this upstream is used."""
        if place := self.place("base_url"):
            return place
        variable = self._provider_defaults.url_from
        if variable and variable != settings_sources.BASE_URL_VARIABLE:
            return f"{variable} is set, and no base URL is"
        return variable or "the default; name your model's server with --base-url URL"

    @property
    def upstream(self) -> str:
        """The upstream or upstreams, and the reason."""
        settings = self.settings
        if settings.local_model:
            return f"the embedded model ({self.place('local_model')})"
        if not settings.upstreams:
            return shown_text(f"{settings.base_url} ({self.upstream_rule})")
        each = ", ".join(f"{row.base_url} for {' '.join(row.models)}" for row in settings.upstreams)
        return shown_text(f"{each} ({self.place('upstreams')})")

    @property
    def notes(self) -> list[str]:
        """Notes on consequences that the operator may not expect."""
        notes = [] if self.settings.local_model or self.settings.upstreams else self._base_url_notes
        ignored = filter(removed_settings.is_ignored, removed_settings.REMOVED)
        notes += [f"{place}: has no effect any more" for place in map(self.place, ignored) if place]
        return [*map(shown_text, notes)]

    @property
    def _base_url_notes(self) -> list[str]:
        """Notes on a base URL that was changed, and on keys that are not sent to it."""
        notes = []
        original = self._original_base_url
        if original and original.rstrip("/") != self.settings.base_url:
            notes.append(
                f"{self.upstream_rule}: {original} is the address of an endpoint; "
                f"the base URL is {self.settings.base_url}"
            )
        notes += [
            f"{variable} is not sent to {self.settings.base_url}, which belongs to another provider; "
            f"set the key for it with --api-key or {PREFIX}API_KEY"
            for variable in self._provider_defaults.unsent
        ]
        return notes

    @property
    def _original_base_url(self) -> str:
        """The base URL as the user wrote it, before `addresses.base_url` normalized it."""
        name = "base_url"
        url = self.flags.get(name) or os.environ.get(_variable(name)) or self.file.values.get(name)
        return str(url or self._provider_defaults.base_url or "").strip()

    @cached_property
    def _provider_defaults(self) -> settings_sources.ProviderDefaults:
        explicit = self.settings.base_url if self.place("base_url") else None
        return settings_sources.provider_defaults(
            os.environ, base_url=explicit, has_key=bool(self.place("api_key"))
        )


@dataclass(frozen=True)
class _File:
    """The settings file; ``path`` is None if there is none."""

    path: Path | None = None
    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def place(self, name: str, *inside: str) -> str:
        """The place of the key ``name``, or of a key ``inside`` its tables; "" if absent."""
        if self.path is None or name not in self.values:
            return ""
        line = 0
        for key in (name, *inside):
            line = self._line(key, line) or line
        return self.at(line, ".".join((name, *inside)))

    def at(self, line: int, key: str = "") -> str:
        where = f"{self.path}, line {line}" if line else str(self.path)
        return f"{where}: {key}" if key else where

    def _line(self, key: str, first: int = 0) -> int:
        """The number of the line, ``first`` or later, that starts with ``key``, also as the last part of a
        table's name; 0 if none does."""
        name = rf"[\"']?{re.escape(key)}[\"']?"
        pattern = re.compile(rf"\s*(?:{name}\s*[=.]|\[+\s*(?:[^\]]+\.)?{name}\s*[.\]])")
        lines = enumerate(self.text.splitlines(), 1)
        return next((n for n, line in lines if n >= first and pattern.match(line)), 0)


def read(
    arguments: Sequence[str] = (), *, listens: bool = True, options: Iterable[str] = ()
) -> Configuration:
    """Read the settings from the command line and all other sources. Raises `ConfigurationError`.

    With ``listens=False`` (commands that only inspect), an open proxy without client keys is not an error.
    ``options``: the command's own, which are suggested for a misspelt flag.
    """
    try:
        flags = command_line.parse(arguments, options)
    except BadFlag as error:
        raise ConfigurationError(str(error)) from error
    _check_variables()
    file = _read_file()
    problems = _unknown_keys(file)
    values = flags if listens else {"open": True, **flags}
    if "base_url" in flags:  # the command line takes precedence over the file
        values = {"upstreams": (), **values}
    try:
        configuration = Configuration(Settings(**values), flags, file)
    except ValidationError as error:
        lines: dict[tuple[str | int, ...], str] = {}  # the members of a union are one problem
        for problem in error.errors():
            if problem["type"] != "extra_forbidden" or problem["loc"][1:]:  # see _unknown_keys
                lines.setdefault(_place_of(file, problem), _problem_line(flags, file, problem))
        # A problem inside of a value replaces the problem of the whole value, of another union member.
        problems += [
            line
            for place, line in lines.items()
            if not any(place == inner[: len(place)] for inner in lines if inner != place)
        ]
        raise ConfigurationError("\n".join(dict.fromkeys(problems))) from error
    if problems:
        raise ConfigurationError("\n".join(problems))
    if listens and not configuration.settings.local_model:
        _reject_own_address(configuration)
    return configuration


def _reject_own_address(configuration: Configuration) -> None:
    settings = configuration.settings
    for row in settings.upstreams:
        if addresses.is_own(row.base_url, settings.host, settings.port):
            raise ConfigurationError(
                f"{configuration.place('upstreams')}: {row.base_url} is this proxy's own address, so it "
                "would call itself forever: name the model's server, or another --port"
            )
    if not settings.upstreams and addresses.is_own(settings.base_url, settings.host, settings.port):
        fix = "name the model's server, or another --port"
        if configuration.upstream_rule == settings_sources.BASE_URL_VARIABLE:
            fix = (
                f"this variable is for clients of the proxy; name the model's server with --base-url "
                f"or {PREFIX}BASE_URL"
            )
        raise ConfigurationError(
            f"{configuration.upstream_rule}: {settings.base_url} is this proxy's own address, so it "
            f"would call itself forever: {fix}"
        )


def _check_variables() -> None:
    known = [CONFIG_VARIABLE, *(PREFIX + name.upper() for name in Settings.model_fields)]
    unknown = [
        f"{name}: {_unknown(name, name.upper().replace('-', '_'), known)}"
        for name in sorted(os.environ)
        if name.upper().startswith(PREFIX)
        and name.upper() not in known
        and not _SERVICE_LINK.fullmatch(name)
        and not removed_settings.is_ignored(_as_key(name))
    ]
    if unknown:
        raise ConfigurationError("\n".join(unknown))


def _read_file() -> _File:
    custom_path = os.environ.get(CONFIG_VARIABLE)
    path = Path(custom_path or DEFAULT_FILE)
    if not custom_path and not path.exists():
        return _File()
    try:
        text = path.read_text(encoding=ENCODING)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        place = f"{CONFIG_VARIABLE}: " if custom_path else ""
        raise ConfigurationError(f"{place}{path} cannot be read: {reason}") from error
    try:
        return _File(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(_syntax_error_line(path, text, error)) from error


def _syntax_error_line(path: Path, text: str, error: tomllib.TOMLDecodeError) -> str:
    """The file, the line, the key in that line, and the reason that `tomllib` gives."""
    reason = re.sub(r" \(at (?:line.*|end of document)\)$", "", str(error))
    position = re.search(r"\(at line (\d+)", str(error))
    lines = text.splitlines()
    number = int(position[1]) if position else len(lines)
    key = re.match(r"\s*([\w.\"'-]+)\s*=", lines[number - 1]) if 0 < number <= len(lines) else None
    if text.lstrip().startswith("{"):
        reason = 'the file is TOML, not JSON: write base_url = "http://..."'
    elif reason == "Invalid value" and key and not re.search(r"=\s*[\"'\[{]", lines[number - 1]):
        reason = "invalid value; a text needs quotes"
    return f"{_File(path).at(number, key[1] if key else '')}: {reason[:1].lower()}{reason[1:]}"


def _unknown_keys(file: _File) -> list[str]:
    known = list(Settings.model_fields)
    return [
        f"{file.place(key)}: {_unknown(key, _as_key(key), known)}"
        for key in file.values
        if key not in known and not removed_settings.is_ignored(key)
    ]


def _unknown(name: str, word: str, known: Sequence[str]) -> str:
    """Why the setting ``name`` is refused."""
    return (
        removed_settings.advice(_as_key(name)) or f"there is no such setting{nearest(word, known)}"
    )


def _as_key(word: str) -> str:
    """The key that ``word``, a flag or a variable, has in the file."""
    return word.strip("-").replace("-", "_").lower().removeprefix(PREFIX.lower())


def _problem_line(flags: Mapping[str, Any], file: _File, problem: Any) -> str:
    """One of pydantic's errors as a line: the place, the value unless it is secret, and the message."""
    name, *inside = [str(part) for part in problem["loc"]] or [""]
    place = ""
    if name:
        keys = [part for part in _place_of(file, problem)[1:] if isinstance(part, str)]
        place = command_line.flag(name) if name in flags else ""
        place = place or _variable(name) or file.place(name, *keys)
        place = place or _default_place(name)
    message = _message(name, inside, problem)
    value = problem["input"]
    # An unknown name may be a misspelt secret's, and the text of a whole table may contain one.
    places = inside if name in ROWS and inside else [name, *inside]
    if problem["type"] in ("model_type", "dict_type"):
        places = [name]
    hidden = problem["type"] == "extra_forbidden" or not _SECRETS.isdisjoint(places)
    shown = ""
    if isinstance(value, str | int | float) and place and not hidden:
        text = addresses.shown_url(str(value))
        if not message.startswith(repr(text)):
            shown = f" {text if text.isprintable() else ascii(text)}"
    return f"{place}{shown}: {message[:1].lower()}{message[1:]}" if place else message


def _message(name: str, inside: Sequence[str], problem: Any) -> str:
    """pydantic's message in the words of the file, with the name that is missing or was meant."""
    if problem["type"] == "missing":
        return f"{inside[-1]} is missing"
    if problem["type"] == "extra_forbidden":
        if inside[-1] in Settings.model_fields:
            return (
                f"move {inside[-1]} above the first [table]: a line belongs to the table before it"
            )
        known = [key for row in ROWS.get(name, ()) for key in row.model_fields]
        return _unknown(inside[-1], inside[-1], known)
    message = str(problem["msg"]).removeprefix("Value error, ")
    message = re.sub(r"valid tuple|^Tuple(?= should)", "list", message)
    return re.sub(r"valid dictionary( or instance of \w+)?", "table", message)


def _place_of(file: _File, problem: Any) -> tuple[str | int, ...]:
    """The problem's location, without the members of unions that pydantic names in it."""
    name, *inside = problem["loc"] or ("",)
    written = _written_keys(file.values.get(name))
    return (name, *(part for part in inside if isinstance(part, int) or part in written))


def _written_keys(value: Any) -> set[str]:
    """All keys in a value of the file."""
    if isinstance(value, dict):
        return {*value, *(key for one in value.values() for key in _written_keys(one))}
    if isinstance(value, list):
        return {key for one in value for key in _written_keys(one)}
    return set()


def _default_place(name: str) -> str:
    """The provider's variable that set ``name``, or else the flag that would set it."""
    if name == "base_url" and os.environ.get(settings_sources.BASE_URL_VARIABLE):
        return settings_sources.BASE_URL_VARIABLE
    return command_line.flag(name)


def _variable(name: str) -> str:
    """The environment variable of a setting, in the case in which it is written; "" if it is not set."""
    wanted = PREFIX + name.upper()
    return next((each for each in os.environ if each.upper() == wanted and _has_value(each)), "")


def _has_value(variable: str) -> bool:
    value = os.environ[variable]
    return bool(value) and not SERVICE_LINK_ADDRESS.fullmatch(value)
