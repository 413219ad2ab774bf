"""The file of client keys and what each key permits: models, budgets, expiry. Knows nothing of HTTP.

The file is TOML, with one table for each key, named after its owner:

    ["alice@example.org"]
    sha256 = "9f86d081..."            # of the key, in hexadecimal; `tool-emulator keys new` makes both
    models = ["gpt-*", "qwen3"]       # patterns of model names in requests; default: all models
    tokens_per_day = 1_000_000        # prompts and replies, all turns of the model
    tokens_per_minute = 50_000
    requests_per_minute = 60
    expires = 2027-01-01              # a date or a time; a time without a zone is UTC
    enabled = false

A key is 256 random bits, so a plain SHA-256 hash protects it: salts and slow hashes defend against guessing,
and a random key of this size cannot be guessed (OWASP, "Password Storage"; GitHub stores its tokens in the
same way). A leaked file therefore reveals no key. Keys are looked up by their hash, so the time of a lookup
can reveal only something about hashes, and an attacker cannot choose a hash without knowing its key.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Self

import structlog
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

log = structlog.get_logger()

PREFIX = "te-"
"""The prefix of keys made here, by which people and secret scanners recognize them."""
_NAME = re.compile(r"[A-Za-z0-9][\w.@-]{0,63}", re.ASCII)
_MOST_BYTES = 4 * 2**20


class InvalidClientKeys(ValueError):
    """The message names the file, the key's table and the problem. It never contains a value."""


class Grant(BaseModel):
    """What one key permits. 0 means no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", to_lower=True)]
    models: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ("*",)
    tokens_per_day: int = Field(0, ge=0)
    tokens_per_minute: int = Field(0, ge=0)
    requests_per_minute: int = Field(0, ge=0)
    expires: datetime | date | None = None
    enabled: bool = True

    def may_use(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models)

    @property
    def any_model(self) -> bool:
        return "*" in self.models

    @property
    def has_budget(self) -> bool:
        return bool(self.tokens_per_day or self.tokens_per_minute)

    def valid(self, now: float) -> bool:
        """Return True if the key is enabled and not expired at the Unix time ``now``."""
        if self.expires is None or not self.enabled:
            return self.enabled
        until = self.expires
        if not isinstance(until, datetime):
            until = datetime.combine(until, time(), UTC)
        return now < until.replace(tzinfo=until.tzinfo or UTC).timestamp()


UNLIMITED = Grant.model_validate({"name": "", "sha256": "0" * 64})
"""The grant of a key in the setting ``client_keys``, and of clients that need no key."""


class KeyedClient(str):
    """A client's name that also carries the grant of its key."""

    key: str
    """The key itself if it is passed on to an upstream, else ""."""
    grant: Grant

    def __new__(cls, name: str, key: str = "", grant: Grant = UNLIMITED) -> Self:
        client = super().__new__(cls, name)
        client.key, client.grant = key, grant
        return client


def grant_of(client: str) -> Grant:
    """Return what ``client`` may do. Raises `TypeError` for a name that has lost its grant."""
    if isinstance(client, KeyedClient):
        return client.grant
    if client:  # without keys all clients are one, without a name
        raise TypeError("a client's name without what the client may do")
    return UNLIMITED


class ClientKeys:
    """The keys of one file, as last read. Safe to share between threads."""

    def __init__(self, path: str) -> None:
        """Raises `InvalidClientKeys`."""
        self._path = path
        self._reading = threading.Lock()
        self._grants = read(path)

    def find(self, key: bytes) -> Grant | None:
        """Return the grant of ``key``, or None if the key is unknown."""
        return self._grants.get(hashed(key))

    @property
    def count(self) -> int:
        return len(self._grants)

    def reload(self) -> None:
        """Read the file again. An invalid file changes nothing and is logged."""
        with self._reading:
            try:
                self._grants = read(self._path)
            except InvalidClientKeys as error:
                log.error("client keys unchanged: their file is invalid", reason=str(error))
            else:
                log.info("client keys reloaded", file=self._path, keys=len(self._grants))


def hashed(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def entry(name: str, key: str) -> str:
    """Return the table to append to the file for ``key``. Raises `InvalidClientKeys` for an invalid name."""
    if not _NAME.fullmatch(name):
        raise InvalidClientKeys(
            f"{name[:80]!r} cannot name a key: use at most 64 letters, digits and _ . @ -"
        )
    return f'["{name}"]\nsha256 = "{hashed(key.encode())}"\n'


def read(path: str) -> Mapping[str, Grant]:
    """Read the file. Returns the grants by hash. Raises `InvalidClientKeys`."""
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InvalidClientKeys(f"{path} is larger than {_MOST_BYTES} bytes")
        tables = tomllib.loads(text := data.decode("utf-8-sig"))
    except OSError as error:
        raise InvalidClientKeys(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # The parser's message may quote the file, so only its line number is shown.
        line = re.search(r"line \d+", str(error))
        place = f", {line[0]}" if line else ""
        twice = "twice" in str(error) or "overwrite" in str(error)
        problem = "this name is there twice" if twice else "this is not TOML"
        raise InvalidClientKeys(f"{path}{place}: {problem}") from None
    grants: dict[str, Grant] = {}
    for name, table in tables.items():
        grant = _grant(path, text, name, table)
        if other := grants.get(grant.sha256):
            raise InvalidClientKeys(f"{path}: {other.name!r} and {name!r} have the same key")
        grants[grant.sha256] = grant
    return grants


def _line(text: str, name: str, key: str = "") -> str:
    """Return ", line 3" for the header of the table ``name``, or for ``key`` in it; "" if not found."""
    found = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*[\"']?([^\"'\]]+?)[\"']?\s*\]", line):
            if found:
                break
            found = f", line {number}" if header[1] == name else ""
        elif found and key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return f", line {number}"
    return found


def _grant(path: str, text: str, name: str, table: object) -> Grant:
    if not _NAME.fullmatch(name) or not isinstance(table, dict):
        raise InvalidClientKeys(
            f"{path}{_line(text, name)}: {name[:80]!r} is not a key: write a table [NAME] with its sha256"
        )
    try:
        return Grant.model_validate({**table, "name": name})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = str(first["loc"][0])
        message = first["msg"].lower()
        if first["type"] == "extra_forbidden":
            near = get_close_matches(key, Grant.model_fields, 1)
            message = "there is no such key" + "".join(f"; did you mean {word}?" for word in near)
        if key == "sha256":
            message = "64 hexadecimal digits are expected; `tool-emulator keys new NAME` makes them"
        raise InvalidClientKeys(
            f"{path}{_line(text, name, key)}: {name}.{key}: {message}"
        ) from None
