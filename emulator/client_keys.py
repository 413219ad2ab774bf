"""Client keys in a file, and what each may do: models, budgets, until when. Knows nothing of HTTP.

The file is TOML, a table a key, named for who has it:

    ["alice@example.org"]
    sha256 = "9f86d081..."            # of the key, in hexadecimal; `tool-emulator keys new` makes both
    models = ["gpt-*", "qwen3"]       # patterns of names as clients ask for them; all without this
    tokens_per_day = 1_000_000        # in and out, all turns of the model
    tokens_per_minute = 50_000
    requests_per_minute = 60
    expires = 2027-01-01              # or a time; a time without a zone is UTC
    enabled = false

A key is 256 random bits, so one plain SHA-256 is enough to keep it by: nobody finds such a key by trying,
which is what salts and slow hashes are for (OWASP, "Password Storage"; GitHub stores its tokens so). A file
that is read by others thus opens nothing. The key is looked up by its hash: how long that takes tells at most
something of hashes, of which nobody can choose one without knowing its key.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Self

import structlog
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

log = structlog.get_logger()

PREFIX = "te-"
"""Of the keys that are made here, so that scanners and people know one when they see it."""
_NAME = re.compile(r"[A-Za-z0-9][\w.@-]{0,63}", re.ASCII)
_MOST_BYTES = 4 * 2**20


class ClientKeysUnusable(ValueError):
    """The message says which file, which key in it, and what is wrong; it never holds a value."""


class Grant(BaseModel):
    """What one key may do. 0 is no limit."""

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
        """Whether the key opens anything at the Unix time ``now``."""
        if self.expires is None or not self.enabled:
            return self.enabled
        until = self.expires
        if not isinstance(until, datetime):
            until = datetime.combine(until, time(), UTC)
        return now < until.replace(tzinfo=until.tzinfo or UTC).timestamp()


UNLIMITED = Grant.model_validate({"name": "", "sha256": "0" * 64})
"""Of a client of the setting ``client_keys``, or of one that needs no key."""


class KeyedClient(str):
    """Whose request it is, as any client's name, with what its key is good for."""

    key: str
    """The key itself, where it is to be sent to an upstream; else ""."""
    grant: Grant

    def __new__(cls, name: str, key: str = "", grant: Grant = UNLIMITED) -> Self:
        client = super().__new__(cls, name)
        client.key, client.grant = key, grant
        return client


def grant_of(client: str) -> Grant:
    """What ``client`` may do."""
    return client.grant if isinstance(client, KeyedClient) else UNLIMITED


class ClientKeys:
    """The keys of one file, as it was when it was read last. Safe to share between threads."""

    def __init__(self, path: str) -> None:
        """Raises `ClientKeysUnusable`."""
        self._path = path
        self._reading = threading.Lock()
        self._grants = read(path)

    def find(self, key: bytes) -> Grant | None:
        """What the key may do, if it is one."""
        return self._grants.get(hashed(key))

    def reload(self) -> None:
        """Read the file anew; one that is broken changes nothing, and the log says what is wrong with it."""
        with self._reading:
            try:
                self._grants = read(self._path)
            except ClientKeysUnusable as error:
                log.error("client keys are as before: their file is broken", reason=str(error))
            else:
                log.info("client keys were read anew", file=self._path, keys=len(self._grants))


def hashed(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


def new_key() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def entry(name: str, key: str) -> str:
    """What to append to the file for ``key``. Raises `ClientKeysUnusable` for a name that makes no sense."""
    if not _NAME.fullmatch(name):
        raise ClientKeysUnusable(
            f"{name[:80]!r} cannot name a key: letters, digits and _ . @ - can, 64 of them at most"
        )
    return f'["{name}"]\nsha256 = "{hashed(key.encode())}"\n'


def read(path: str) -> Mapping[str, Grant]:
    """Hash -> what its key may do. Raises `ClientKeysUnusable`."""
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ClientKeysUnusable(f"{path} has more than {_MOST_BYTES} bytes")
        tables = tomllib.loads(data.decode())
    except OSError as error:
        raise ClientKeysUnusable(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # Its words may hold a piece of the file.
        where = re.search(r"line \d+", str(error))
        told = f" ({where[0]})" if where else ""
        raise ClientKeysUnusable(f"{path} is not TOML{told}") from None
    found: dict[str, Grant] = {}
    for name, table in tables.items():
        grant = _grant(path, name, table)
        if other := found.get(grant.sha256):
            raise ClientKeysUnusable(f"{path}: {other.name!r} and {name!r} are one key")
        found[grant.sha256] = grant
    return found


def _grant(path: str, name: str, table: object) -> Grant:
    if not _NAME.fullmatch(name) or not isinstance(table, dict):
        raise ClientKeysUnusable(
            f"{path}: {name[:80]!r} is no key: each is a table, [NAME], with its sha256"
        )
    try:
        return Grant.model_validate({**table, "name": name})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, (name, *first["loc"])))
        raise ClientKeysUnusable(f"{path}: {place}: {first['msg'].lower()}") from None
