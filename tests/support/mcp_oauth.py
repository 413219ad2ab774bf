"""An authorization server (the SDK's own) and an MCP server that wants its tokens, as one process with two
ports, and with faults: ``POST /faults`` takes them as JSON, in which ``{issuer}`` and ``{resource}`` are the
addresses.

* ``resource``, ``metadata``, ``redirect``: other values (null: none) in the documents and in the redirect;
* ``answers``: path -> ``{"status": 307, "location": "..."}``, or ``{"body": "..."}``;
* ``challenge``: the address of the document in the MCP server's 401;
* ``expires_in``: of new tokens; ``revoke``: all access tokens (1), or all tokens (2) are invalid now.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette

from tests.support.mcp_http import shop
from tests.support.processes import ROOT, wait_until

Json = dict[str, Any]


class Accounts:
    """The provider of the SDK's authorization server, in memory, of one user who always agrees."""

    def __init__(self, faults: Json, issuer: str) -> None:
        self.faults, self.issuer = faults, issuer
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = AuthorizationCode(
            code=secrets.token_urlsafe(),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
        )
        self.codes[code.code] = code
        values = {"code": code.code, "state": params.state, "iss": self.issuer}
        values |= self.faults.get("redirect", {})
        present = {name: value for name, value in values.items() if value is not None}
        return f"{params.redirect_uri}?{urlencode(present)}"

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(client, authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        """A refresh token works once, and ends the access tokens before."""
        del self.refresh[refresh_token.token]
        self.access.clear()
        return self._tokens(client, refresh_token.resource)

    def _tokens(self, client: OAuthClientInformationFull, resource: str | None) -> OAuthToken:
        access, refresh = (f"{kind}-{secrets.token_urlsafe()}" for kind in ("access", "refresh"))
        who: Json = {"client_id": client.client_id, "scopes": [], "resource": resource}
        self.access[access] = AccessToken(token=access, **who)
        self.refresh[refresh] = RefreshToken(token=refresh, **who)
        expires_in = self.faults.get("expires_in", 3600)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=expires_in)

    def revoke(self, what: int) -> None:
        self.access.clear()
        if what == 2:
            self.refresh.clear()


def serve(port_file: Path, log: Path) -> None:
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    issuer, server = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in listening)
    resource = f"{server}/mcp"
    faults: Json = {}
    accounts = Accounts(faults, issuer)
    options = ClientRegistrationOptions(enabled=True)
    routes = create_auth_routes(
        accounts,  # type: ignore[arg-type]
        AnyHttpUrl(issuer),
        client_registration_options=options,
    )
    apps = (Starlette(routes=routes), shop().streamable_http_app())
    documents: dict[str, tuple[str, Json]] = {
        "/.well-known/oauth-protected-resource/mcp": (
            "resource",
            {"resource": resource, "authorization_servers": [issuer]},
        ),
        "/.well-known/oauth-authorization-server": (
            "metadata",
            {
                "issuer": issuer,
                "authorization_endpoint": f"{issuer}/authorize",
                "token_endpoint": f"{issuer}/token",
                "registration_endpoint": f"{issuer}/register",
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            },
        ),
    }

    def faulty(app: Any, is_resource: bool) -> Any:
        async def run(scope: Json, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return

            async def answer(status: int, body: bytes, **headers: str) -> None:
                raw = [(n.replace("_", "-").encode(), v.encode()) for n, v in headers.items()]
                await send({"type": "http.response.start", "status": status, "headers": raw})
                await send({"type": "http.response.body", "body": body})

            path, headers = scope["path"], dict(scope["headers"])
            token = headers.get(b"authorization", b"").decode()
            with log.open("a") as written:
                written.write(f"{scope['method']} {path} {token}\n")
            if path == "/faults":
                body = (await receive()).get("body", b"").decode()
                named = body.replace("{issuer}", issuer).replace("{resource}", resource)
                faults.clear()
                faults.update(json.loads(named))
                accounts.revoke(faults.get("revoke", 0))
                await answer(200, b"")
            elif fault := faults.get("answers", {}).get(path):
                extra = {n: v for n, v in fault.items() if n not in ("status", "body")}
                await answer(fault.get("status", 200), fault.get("body", "").encode(), **extra)
            elif path in documents:
                name, document = documents[path]
                document = document | faults.get(name, {})
                present = {n: value for n, value in document.items() if value is not None}
                await answer(200, json.dumps(present).encode(), content_type="application/json")
            elif is_resource:
                held = accounts.access.get(token.removeprefix("Bearer "))
                if held is not None and held.resource == resource:
                    await app(scope, receive, send)
                    return
                place = f"{server}/.well-known/oauth-protected-resource/mcp"
                place = faults.get("challenge", place)
                await answer(401, b"", www_authenticate=f'Bearer resource_metadata="{place}"')
            else:
                await app(scope, receive, send)

        return run

    async def run() -> None:
        servers = [
            uvicorn.Server(uvicorn.Config(faulty(app, is_resource), log_level="error"))
            for app, is_resource in zip(apps, (False, True), strict=True)
        ]
        await asyncio.gather(
            *(one.serve([its]) for one, its in zip(servers, listening, strict=True))
        )

    port_file.write_text(f"{issuer} {resource}")  # the sockets listen
    asyncio.run(run())


@dataclass
class LoginServer:
    issuer: str
    url: str
    """Of the MCP server."""
    log: Path

    @property
    def requests(self) -> list[str]:
        return self.log.read_text().splitlines()

    def set_faults(self, **faults: Any) -> None:
        """Set the faults, and forget the requests."""
        body = json.dumps(faults).encode()
        urllib.request.urlopen(f"{self.issuer}/faults", data=body, timeout=10).close()
        self.log.write_text("")


@contextmanager
def login_server(folder: Path) -> Iterator[LoginServer]:
    port_file, log = folder / "port", folder / "log"
    command = [sys.executable, __file__, str(port_file), str(log)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT)
    try:
        wait_until(lambda: port_file.exists() and port_file.read_text(), "the server did not start")
        yield LoginServer(*port_file.read_text().split(), log)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
