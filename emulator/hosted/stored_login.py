"""A login at an MCP server: a file that only its owner can read, and requests with its token.

The token is sent to the URL that the login was made for, and refreshed at the token endpoint that was found
then: both are in the file. Each request reads the file, so logging in or out needs no restart. All processes
of this machine share it: who refreshes locks the folder and reads again, as a refresh token may work once.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl, BaseModel, SecretStr, ValidationError

from emulator.hosted.address import ServerFailed
from emulator.hosted.guarded_http import GuardedTransport, Reach, guarded_client
from emulator.settings.redaction import redactor
from emulator.settings.sources import state_folder

CLIENT_NAME = "Tool Use API Emulator"
_LEEWAY_SECONDS = 10
_LOCK_SECONDS = 60


class Credentials:
    """The storage of the SDK's provider, in memory: `StoredLogin` is written when a step has succeeded."""

    def __init__(
        self,
        client: OAuthClientInformationFull | None = None,
        tokens: OAuthToken | None = None,
    ) -> None:
        self.client, self.tokens = client, tokens

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class StoredLogin(BaseModel):
    """The content of the file."""

    url: str
    """Of the MCP server."""
    reach: Reach
    """Of the most public server that the login has used (`GuardedTransport`)."""
    expires_at: float | None = None
    tokens: OAuthToken
    client: OAuthClientInformationFull
    authorization_server: OAuthMetadata
    resource: ProtectedResourceMetadata | None = None

    @classmethod
    def made(cls, provider: OAuthClientProvider, reach: Reach) -> StoredLogin:
        """What a provider has after a login or a refresh."""
        context = provider.context
        assert context.current_tokens is not None
        assert context.client_info is not None
        assert context.oauth_metadata is not None
        return cls(
            url=context.server_url,
            reach=reach,
            expires_at=context.token_expiry_time,
            tokens=context.current_tokens,
            client=context.client_info,
            authorization_server=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )

    def is_usable(self, refused: str) -> bool:
        """Return True if the token is valid and not the one that the server has ``refused``."""
        is_valid = self.expires_at is None or time.time() < self.expires_at - _LEEWAY_SECONDS
        return is_valid and self.tokens.access_token != refused

    async def refreshed(self) -> StoredLogin | None:
        """The login with a new token; None if it is refused. Raises what a request raises."""
        redirect = self.client.redirect_uris or [AnyUrl("http://127.0.0.1/")]
        provider = OAuthClientProvider(
            self.url,
            OAuthClientMetadata(redirect_uris=redirect),
            Credentials(self.client, self.tokens),
        )
        provider.context.oauth_metadata = self.authorization_server
        provider.context.protected_resource_metadata = self.resource
        provider.context.token_expiry_time = 1  # the provider refreshes what has expired
        transport = GuardedTransport(self.reach)
        request = first_request(self.url)
        flow = provider.async_auth_flow(request)
        try:
            async with guarded_client(transport) as http:
                refresh = await anext(flow)
                if refresh is not request:
                    await flow.asend(await http.send(refresh))
        finally:
            await flow.aclose()
        if provider.context.current_tokens is None or refresh is request:
            return None
        return self.made(provider, transport.reach)


def first_request(url: str) -> httpx2.Request:
    """The request for which the SDK's provider gets a token. Because of its header each request of the
    provider names the resource."""
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": LATEST_PROTOCOL_VERSION,
    }
    return httpx2.Request("POST", url, headers=headers, json={})


def login_file(label: str) -> Path:
    """Raises RuntimeError if the user has no home."""
    return state_folder().expanduser() / "mcp" / f"{label}.json"


def read_login(file: Path) -> StoredLogin | None:
    """Return None without a file; one that cannot be read is none."""
    try:
        return StoredLogin.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def write_login(file: Path, login: StoredLogin) -> None:
    """The folder is locked (`locked`)."""
    new = file.with_suffix(f".{token_hex(8)}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:  # noqa: PTH123
            opened.write(login.model_dump_json(exclude_none=True))
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


@asynccontextmanager
async def locked(file: Path) -> AsyncIterator[None]:
    """Only one task of all processes is between reading and writing a login. Raises `ServerFailed`."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.parent.chmod(0o700)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ServerFailed("another process does not finish to refresh it") from None
                await anyio.sleep(0.05)
        yield
    finally:
        os.close(folder)


class LoginAuth(httpx2.Auth):
    """Sends the token of the login at the server ``label``, if there is one for ``url``."""

    def __init__(self, label: str, url: str) -> None:
        self._label, self._url = label, url
        self._secrets: tuple[SecretStr, ...] = ()
        self.sent = ""
        """What the last request was sent with."""

    def without_secrets(self, text: str) -> str:
        return redactor(*self._secrets)(text)

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        token = await self._token()
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401 and token and (new := await self._token(refused=token)):
            request.headers["Authorization"] = f"Bearer {new}"
            yield request

    async def _token(self, refused: str = "") -> str:
        """A valid token, or ""; `sent` says why."""
        try:
            file = login_file(self._label)
            login = self._read(file)
            if login is not None and not login.is_usable(refused):
                async with locked(file):
                    login = self._read(file)
                    if login is not None and not login.is_usable(refused):
                        login = await self._refresh(login, file)
        except Exception as error:  # noqa: BLE001 - a server may answer in any way
            text = self.without_secrets(str(error) or type(error).__name__)
            self.sent = f"a request without its login, which cannot be refreshed ({text})"
            return ""
        if login is None:
            return ""
        self.sent = "the login"
        return login.tokens.access_token

    def _read(self, file: Path) -> StoredLogin | None:
        login = read_login(file)
        if login is None:
            self.sent = "a request without credentials"
            return None
        self._secrets = secrets_of(login)
        if login.url != self._url:
            self.sent = "a request without its login, which was made for another url"
            return None
        return login

    async def _refresh(self, login: StoredLogin, file: Path) -> StoredLogin | None:
        # A refresh token may work once: when the client disconnects, the new one is stored first.
        with anyio.CancelScope(shield=True):
            new = await login.refreshed()
            if new is not None:
                write_login(file, new)
        if new is None:
            self.sent = "a request without its login, which has expired"
            return None
        self._secrets = secrets_of(login) + secrets_of(new)
        return new


def secrets_of(login: StoredLogin) -> tuple[SecretStr, ...]:
    tokens = (login.tokens.access_token, login.tokens.refresh_token, login.client.client_secret)
    return tuple(SecretStr(one) for one in tokens if one)
