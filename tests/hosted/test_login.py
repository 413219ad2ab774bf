"""`tool-emulator mcp login`, as people use it, at a real authorization server: in order, and hostile."""

from __future__ import annotations

import json
import re
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from emulator.hosted.address import ServerFailed
from emulator.hosted.guarded_http import GuardedTransport, Reach, guarded_client, reach
from tests.conftest import StartProxy
from tests.support.command_line import command_line, served
from tests.support.mcp_oauth import LoginServer, login_server
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream

FILE = ".local/state/tool-use-api-emulator/mcp/shop.json"
CALL = '```tool_code\nprint(price(article="tea")["price"])\n```'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginServer]:
    with login_server(tmp_path_factory.mktemp("login")) as server:
        yield server


@pytest.fixture
def server(running: LoginServer) -> LoginServer:
    running.set_faults()
    return running


@pytest.fixture
def home(tmp_path: Path, server: LoginServer) -> Path:
    """The folder of a user whose settings name the server."""
    configure(tmp_path, server.url)
    return tmp_path


def configure(home: Path, url: str, more: str = "") -> None:
    (home / "emulator.toml").write_text(f'{more}[mcp.shop]\nurl = "{url}"\n')


def browse(page: str) -> str:
    with urllib.request.urlopen(page, timeout=10) as answer:
        return str(answer.read().decode())


def log_in(home: Path) -> tuple[int, str]:
    """The exit code, and what was printed; a browser opens the address that is printed."""
    with served("mcp", "login", "shop", "--no-browser", home=home) as command:
        command.wait_until(lambda: "\n\nhttp" in command.output or command.has_ended)
        if page := re.search(r"^http\S+$", command.output, re.MULTILINE):
            browse(page[0])
        return command.exit_code(), command.output


def stored(home: Path) -> dict[str, Any]:
    return dict(json.loads((home / FILE).read_text()))


def asked(start_proxy: StartProxy, server: LoginServer, **settings: Any) -> tuple[int, Any]:
    proxy = start_proxy(mcp={"shop": {"url": server.url}}, **settings)
    tools = [{"type": "mcp", "server_label": "shop"}]
    message = {"role": "user", "content": "What does tea cost?"}
    body = {"model": "m", "messages": [message], "tools": tools}
    status, _, answer = send(f"{proxy}/v1/chat/completions", body)
    return status, answer


@pytest.fixture
def state(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The proxy in this process has the state of that user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ".local/state"))
    return home


def test_a_login_lists_the_tools_and_its_token_calls_them(
    state: Path, server: LoginServer, start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    status, refused = asked(start_proxy, server)
    assert status == 424
    expected = (
        "Error retrieving tool list from MCP server 'shop': it refused a request without credentials "
        "(HTTP 401); run tool-emulator mcp login shop, or set token in [mcp.shop]."
    )
    assert refused["error"]["message"] == expected

    code, printed = log_in(state)
    assert (code, "def price(" in printed) == (0, True), printed
    file = state / FILE
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)]
    assert modes == [0o600, 0o700]
    assert [one.name for one in file.parent.iterdir()] == [file.name]
    tokens = stored(state)["tokens"]
    assert not any(token in printed for token in (tokens["access_token"], tokens["refresh_token"]))

    assert "def price(" in command_line("mcp", home=state).out
    upstream.reply(CALL, "It costs 3.")
    status, answer = asked(start_proxy, server)
    assert answer["choices"][0]["message"]["content"] == "It costs 3."
    assert "3" in str(upstream.requests[1]["messages"][-1])

    assert command_line("mcp", "logout", "shop", home=state).out == "The login is deleted.\n"
    assert not file.exists()
    assert "run tool-emulator mcp login shop" in command_line("mcp", home=state).out


def test_only_the_answer_to_this_login_is_taken(home: Path, server: LoginServer) -> None:
    """Any page can send a browser to the address that the login listens at."""
    with served("mcp", "login", "shop", "--no-browser", home=home) as command:
        page = re.search(r"^http\S+$", command.wait_for("\n\nhttp"), re.MULTILINE)
        assert page
        port = re.search(r"127\.0\.0\.1%3A(\d+)%2Fcallback", page[0])
        assert port
        for path in ("callback?code=forged&state=forged", "callback?code=forged", "other"):
            with pytest.raises(urllib.error.HTTPError):
                browse(f"http://127.0.0.1:{port[1]}/{path}")
        assert "close this page" in browse(page[0])
        assert command.exit_code() == 0


@pytest.mark.parametrize("how", ["expired", "revoked"])
def test_a_token_is_refreshed_and_stored(
    state: Path,
    server: LoginServer,
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    how: str,
) -> None:
    """Before a request if it has expired, after a refusal otherwise."""
    server.set_faults(expires_in=5 if how == "expired" else None)
    code, printed = log_in(state)
    assert code == 0, printed
    first = stored(state)["tokens"]
    server.set_faults(expires_in=3600, revoke=1 if how == "revoked" else 0)
    upstream.reply(CALL, "It costs 3.")
    _, answer = asked(start_proxy, server)
    assert answer["choices"][0]["message"]["content"] == "It costs 3."
    second = stored(state)["tokens"]
    assert not set(first.values()) & {second["access_token"], second["refresh_token"]}
    assert sum("/token" in line for line in server.requests) == 1
    assert all("/.well-known" not in line for line in server.requests)


def test_processes_refresh_a_login_once(home: Path, server: LoginServer) -> None:
    """A refresh token works once, and its use ends the access tokens before."""
    server.set_faults(expires_in=5)
    assert log_in(home)[0] == 0
    server.set_faults()
    with ExitStack() as stack:
        folders = [home / name for name in "abc"]
        for folder in folders:
            folder.mkdir()
            configure(folder, server.url)
        variables = {"XDG_STATE_HOME": str(home / ".local/state")}
        commands = [
            stack.enter_context(served("mcp", home=folder, variables=variables))
            for folder in folders
        ]
        assert [command.exit_code() for command in commands] == [0, 0, 0]
    assert sum("/token" in line for line in server.requests) == 1


def test_an_expired_login_is_an_error_that_says_so(
    state: Path, server: LoginServer, start_proxy: StartProxy
) -> None:
    server.set_faults(expires_in=5)
    code, printed = log_in(state)
    assert code == 0, printed
    server.set_faults(revoke=2)
    _, answer = asked(start_proxy, server)
    assert "which has expired (HTTP 401); run tool-emulator mcp login shop" in str(answer)
    server.set_faults(answers={"/token": {"body": "x" * 70_000}})
    _, answer = asked(start_proxy, server)
    assert "cannot be refreshed (the answer of 127.0.0.1 is larger than 65536 bytes)" in str(answer)


def test_a_token_is_sent_only_to_the_url_of_its_login(home: Path, server: LoginServer) -> None:
    assert log_in(home)[0] == 0
    configure(home, f"{server.url}/")
    server.set_faults()
    ended = command_line("mcp", home=home)
    assert "its login, which was made for another url (HTTP 401); run tool-" in ended.out
    assert not any("Bearer" in line for line in server.requests)


def test_a_redirect_to_another_host_does_not_get_the_token(home: Path, server: LoginServer) -> None:
    assert log_in(home)[0] == 0
    elsewhere = {"status": 307, "location": "{issuer}/elsewhere"}
    server.set_faults(answers={"/mcp": elsewhere})
    assert command_line("mcp", home=home).code == 1
    assert not any("elsewhere" in line for line in server.requests)


@pytest.mark.parametrize(
    "settings", ['client_keys = ["a-clients-key"]\n', 'host = "0.0.0.0"\nopen = true\n']
)
def test_a_login_is_for_one_user_on_one_machine(
    home: Path, server: LoginServer, settings: str
) -> None:
    assert log_in(home)[0] == 0
    configure(home, server.url, settings)
    server.set_faults()
    refused = command_line("mcp", "login", "shop", "--no-browser", home=home)
    assert (refused.code, refused.err.startswith("shop: a login is for one user")) == (1, True)
    assert "logins are for one user" in command_line("doctor", home=home).out
    assert not any("Bearer" in line for line in server.requests)


# 169.254.0.1 is never assigned (RFC 3927): without the rule, nobody would be asked.
RESERVED = "is a private or reserved address"
METADATA = "/.well-known/oauth-authorization-server"
HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    (
        "the document of another resource",
        {"resource": {"resource": "https://elsewhere.example/mcp"}},
        "does not match",
    ),
    (
        "the document is at a link-local address",
        {"challenge": "https://169.254.0.1/latest"},
        RESERVED,
    ),
    ("the document is nowhere", {"challenge": "https://127.0.0.1:99999"}, "port must be 0-65535"),
    (
        "an authorization server without TLS",
        {"resource": {"authorization_servers": ["http://192.0.2.1"]}},
        "http://192.0.2.1 is no https",
    ),
    (
        "an authorization server at a link-local address",
        {"resource": {"authorization_servers": ["https://[fe80::1]"]}},
        RESERVED,
    ),
    (
        "another issuer",
        {"metadata": {"issuer": "https://elsewhere.example"}},
        "issuer mismatch",
    ),
    ("no PKCE", {"metadata": {"code_challenge_methods_supported": None}}, "PKCE"),
    ("weak PKCE", {"metadata": {"code_challenge_methods_supported": ["plain"]}}, "PKCE"),
    (
        "an endpoint of registration at a link-local address",
        {"metadata": {"registration_endpoint": "https://169.254.0.1/register"}},
        RESERVED,
    ),
    (
        "an authorization page without TLS",
        {"metadata": {"authorization_endpoint": "http://192.0.2.1/authorize"}},
        "http://192.0.2.1 is no https",
    ),
    (
        "a token endpoint at a link-local address",
        {"metadata": {"token_endpoint": "https://169.254.0.1/token"}},
        RESERVED,
    ),
    (
        "metadata that redirect",
        {"answers": {METADATA: {"status": 307, "location": "{issuer}/elsewhere"}}},
        "Registration failed",
    ),
    (
        "a token endpoint that redirects",
        {"answers": {"/token": {"status": 307, "location": "{issuer}/elsewhere"}}},
        "Token exchange failed (307)",
    ),
    ("large metadata", {"answers": {METADATA: {"body": "x" * 65_537}}}, "larger than 65536 bytes"),
    (
        "compressed metadata",
        {"answers": {METADATA: {"body": "x", "content_encoding": "gzip"}}},
        "is compressed",
    ),
    ("the answer of another issuer", {"redirect": {"iss": "https://elsewhere.example"}}, "iss mis"),
    ("an answer without its issuer", {"redirect": {"iss": None}}, "missing iss"),
    ("no access", {"redirect": {"code": None, "error": "access_denied"}}, "access_denied"),
]


@pytest.mark.parametrize(
    ("faults", "problem"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE]
)
def test_a_hostile_server_gets_no_login(
    home: Path, server: LoginServer, faults: dict[str, Any], problem: str
) -> None:
    server.set_faults(**faults)
    code, printed = log_in(home)
    assert (code, problem in printed) == (1, True), printed
    assert "Traceback" not in printed
    assert not (home / FILE).exists()
    assert not any("elsewhere" in line for line in server.requests)


def test_a_server_without_tls_on_another_machine_gets_no_login(home: Path) -> None:
    configure(home, "http://192.0.2.1/mcp")
    assert log_in(home) == (1, "shop: http://192.0.2.1 is no https\n")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", Reach.MACHINE),
        ("::1", Reach.MACHINE),
        ("::ffff:127.0.0.1", Reach.MACHINE),
        ("10.0.0.1", Reach.NETWORK),
        ("192.168.1.1", Reach.NETWORK),
        ("100.64.0.1", Reach.NETWORK),
        ("fd00::1", Reach.NETWORK),
        ("8.8.8.8", Reach.EVERYONE),
        ("2606:4700::1111", Reach.EVERYONE),
        ("169.254.169.254", None),
        ("::ffff:169.254.169.254", None),
        ("fe80::1", None),
        ("0.0.0.0", None),
        ("::", None),
        ("224.0.0.1", None),
        ("255.255.255.255", None),
    ],
)
def test_who_reaches_an_address(address: str, expected: Reach | None) -> None:
    assert reach(address) == expected


@pytest.mark.parametrize("before", [Reach.EVERYONE, Reach.NETWORK])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_after_a_public_address_none_of_this_machine_is_requested(
    server: LoginServer, before: Reach, host: str
) -> None:
    async def get() -> None:
        async with guarded_client(GuardedTransport(before)) as client:
            await client.get(server.issuer.replace("127.0.0.1", host))

    with pytest.raises(ServerFailed, match=RESERVED):
        anyio.run(get)
    assert server.requests == []
