"""`tool-emulator mcp login NAME`: a person logs in at an operator's server, in a browser on this machine.

The SDK's `OAuthClientProvider` discovers the authorization server, registers a client, and checks issuer,
resource, state and `iss`. Here are the page that the browser comes back to, what the provider does not check
(a server without PKCE, an authorization page that is no https), and `guarded_http` for its requests.
"""

from __future__ import annotations

import asyncio
import os
import webbrowser
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from pydantic import AnyUrl

from emulator.core.controls import printable
from emulator.hosted.address import ServerFailed, is_for_one_user
from emulator.hosted.guarded_http import GuardedTransport, Reach, guarded_client
from emulator.hosted.sessions import Sessions
from emulator.hosted.stored_login import (
    CLIENT_NAME,
    Credentials,
    StoredLogin,
    first_request,
    locked,
    login_file,
    write_login,
)
from emulator.settings.settings import Settings

WAIT_SECONDS = 300
"""How long a person may take."""
_MAX_DETAIL = 500


def log_in(settings: Settings, label: str, show: Callable[[str], None]) -> None:
    """Log in at the server ``label``; ``show`` shows the address to open. Raises `ServerFailed`."""
    row = settings.mcp.get(label)
    if row is None or not row.url:
        raise ServerFailed(f"there is no url in [mcp.{label}]")
    if row.has_credentials:
        raise ServerFailed(f"[mcp.{label}] has credentials, which are sent instead of a login")
    if not is_for_one_user(settings):
        raise ServerFailed(
            "a login is for one user on one machine: not with client keys, nor for other machines"
        )
    try:
        with closing(Sessions()) as sessions:
            sessions.start(_log_in, row.url.get_secret_value(), label, show).result()
    except OSError as error:
        raise ServerFailed(f"{error.filename}: {error.strerror}") from error


def log_out(label: str) -> bool:
    """Delete the login. Returns False if there is none."""
    file = login_file(label)
    is_stored = file.exists()
    file.unlink(missing_ok=True)
    return is_stored


async def _log_in(url: str, label: str, show: Callable[[str], None]) -> None:
    transport = GuardedTransport(Reach.MACHINE)
    with _listening() as listener:

        async def redirect(page: str) -> None:
            metadata = provider.context.oauth_metadata
            if metadata is None:
                raise ServerFailed("its authorization server publishes no metadata")
            if "S256" not in (metadata.code_challenge_methods_supported or ()):
                raise ServerFailed("its authorization server does not support PKCE with S256")
            await transport.addresses(httpx2.URL(page))
            listener.state = parse_qs(urlsplit(page).query)["state"][0]
            show(page)

        async def answer() -> AuthorizationCodeResult:
            with anyio.move_on_after(WAIT_SECONDS):
                return await asyncio.wrap_future(listener.answer)
            raise ServerFailed(f"nobody has logged in within {WAIT_SECONDS} s")

        callback = AnyUrl(f"http://127.0.0.1:{listener.server_port}/callback")
        metadata = OAuthClientMetadata(redirect_uris=[callback], client_name=CLIENT_NAME)
        provider = OAuthClientProvider(url, metadata, Credentials(), redirect, answer)
        await _authorize(provider, transport)
    file = login_file(label)
    async with locked(file):
        write_login(file, StoredLogin.made(provider, transport.reach))


async def _authorize(provider: OAuthClientProvider, transport: GuardedTransport) -> None:
    """Run the provider's flow until it has a token. Raises `ServerFailed`."""
    request = first_request(provider.context.server_url)
    flow = provider.async_auth_flow(request)
    try:
        async with guarded_client(transport) as http:
            response = await http.send(await anext(flow))
            if response.status_code != 401:
                raise ServerFailed(f"it wants no login (HTTP {response.status_code})")
            while (step := await flow.asend(response)) is not request:
                response = await http.send(step)
    except ServerFailed:
        raise
    except Exception as error:  # a server may answer in any way
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        line = printable(str(cause).strip().partition("\n")[0])[:_MAX_DETAIL]
        raise ServerFailed(line or type(cause).__name__) from error
    finally:
        await flow.aclose()


def open_browser(page: str) -> None:
    """Open the user's browser, if there is a display: others would run in this terminal."""
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(page)


class _Listener(ThreadingHTTPServer):
    """The address of this machine that the browser comes back to."""

    daemon_threads = True
    state = ""
    """Only a request with it is the answer: any page can send a browser here."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Callback)
        self.answer: Future[AuthorizationCodeResult] = Future()

    def accept(self, query: dict[str, list[str]]) -> str:
        """Take the parameters of the redirect; return what the page says."""
        values = {name: one[0] for name, one in query.items()}
        if not self.state or values.get("state") != self.state or self.answer.done():
            return ""
        if code := values.get("code"):
            result = AuthorizationCodeResult(code=code, state=self.state, iss=values.get("iss"))
            self.answer.set_result(result)
            return "You can close this page; the terminal shows whether you are logged in.\n"
        reason = printable(values.get("error_description") or values.get("error") or "no code")
        self.answer.set_exception(ServerFailed(f"no access was granted: {reason[:_MAX_DETAIL]}"))
        return "No access was granted. You can close this page.\n"


class _Callback(BaseHTTPRequestHandler):
    timeout = 10
    server: _Listener

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        text = self.server.accept(parse_qs(parts.query)) if parts.path == "/callback" else ""
        self.send_response(200 if text else 404)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_message: object) -> None:
        """The request contains the code."""


@contextmanager
def _listening() -> Iterator[_Listener]:
    with _Listener() as listener:
        thread = Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield listener
        finally:
            listener.shutdown()
            thread.join()
