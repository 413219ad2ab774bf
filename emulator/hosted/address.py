"""The address of one MCP server, with everything that a session depends on, and why a server fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import urlsplit

from pydantic import SecretStr

from emulator.core.addresses import is_loopback, origin
from emulator.settings.redaction import redactor
from emulator.settings.settings import Settings

Pairs = tuple[tuple[str, str], ...]


class ServerFailed(Exception):
    """The server cannot be used; the message is a clause that says why, without credentials."""


class ServerRefused(ServerFailed):
    """The server refused the credentials, or wants some."""


class RateLimited(ServerFailed):
    """The server refused the request, because there are too many of them."""


class NeverSent(ServerFailed):
    """The server could not be connected, so it has not seen the call."""


class ResultLost(ServerFailed):
    """The call was sent; nobody knows whether the server has made it."""


class TaskCancelled(ServerFailed):
    """The server has cancelled the call's task, as it was asked to, before it had ended."""


class SessionUnknown(NeverSent):
    """The server rejected a call, which did not run, because it does not know the session any longer."""


@dataclass(frozen=True)
class ServerAddress:
    """Equal addresses have equal credentials, so they may share a connection of one client."""

    url: str = field(default="", repr=False)
    command: str = ""
    args: tuple[str | SecretStr, ...] = field(default=(), repr=False)
    env: Pairs = field(default=(), repr=False)
    headers: Pairs = field(default=(), repr=False)
    timeout: float = 60
    """The deadline of one call, in seconds."""
    label: str = field(default="", compare=False)
    """The operator's name of the server."""
    login: str = ""
    """The operator's name of a server at which the user may have logged in (`tool-emulator mcp login`)."""

    def __str__(self) -> str:
        """The host or the command: what errors and logs may show."""
        return urlsplit(self.url).netloc.rpartition("@")[2] or self.command

    @property
    def digest(self) -> str:
        """Of the server, whatever the credentials."""
        return sha256(repr([self.url, self.command, *map(str, self.args)]).encode()).hexdigest()[
            :16
        ]

    def without_secrets(self, text: str) -> str:
        """``text`` without the values of headers and variables, and of the URL only its host."""
        values = (self.url, *(value for _, value in (*self.headers, *self.env)))
        return redactor(self.args, *map(SecretStr, values))(text)


def is_for_one_user(settings: Settings) -> bool:
    """Return True if all requests are those of the user who may have logged in."""
    return not settings.wants_keys and is_loopback(settings.host)


def address_of(settings: Settings, label: str) -> ServerAddress:
    """Return the address of the operator's server."""
    row = settings.mcp[label]
    env, headers = revealed(row.env), with_token(row.headers, row.token)
    url = row.url.get_secret_value()
    login = label if url and not row.has_credentials and is_for_one_user(settings) else ""
    return ServerAddress(url, row.command, row.args, env, headers, row.timeout, label, login)


def revealed(values: Mapping[str, SecretStr]) -> Pairs:
    return tuple((name, value.get_secret_value()) for name, value in sorted(values.items()))


def with_token(headers: Mapping[str, SecretStr], token: SecretStr | None) -> Pairs:
    """The headers of requests to a server."""
    if token is None:
        return revealed(headers)
    return (*revealed(headers), ("Authorization", f"Bearer {token.get_secret_value()}"))


def is_allowed_host(url: str, hosts: Sequence[str]) -> bool:
    """Return True if ``hosts`` (``HOST`` for its default port, or ``HOST:PORT``) name the host of ``url``."""
    return any(origin(url) == origin(f"{urlsplit(url).scheme}://{host}") for host in hosts)
