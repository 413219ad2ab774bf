"""A web page in the browser next door: what it may ask of a proxy on this machine, by name and by origin.

The pages' requests are written as browsers write them (Fetch standard, "CORS protocol"; Fetch Metadata
Request Headers), against a proxy without keys on loopback, as `make run` starts it.
"""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
JSON = {"content-type": "application/json"}
ANY_GET = [
    "/v1/files",
    "/v1/containers",
    "/v1/models",
    "/files",
    "/healthz",
    "/metrics",
    "/nothing",
]

FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:8001",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evillocalhost",
    "192.0.2.1:8001",
    "[2001:db8::1]",
    "0.0.0.0",
    "2130706433",
    "evil.example@127.0.0.1",
    "127.0.0.1, evil.example",
    "[::1",
    "127.0.0.1:port",
    "a b",
]
OWN_HOSTS = [
    "127.0.0.1",
    "127.0.0.1:9000",
    "127.8.8.8",
    "[::1]:8001",
    "localhost",
    "LocalHost:8001",
    "localhost.",
    "app.localhost:3000",
]


def raw(proxy: str, head: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
    """Send exactly these bytes; the status and the JSON of the answer."""
    at = urlsplit(proxy)
    with socket.create_connection((at.hostname, at.port), timeout=30) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
        answer = b""
        while data := connection.recv(65536):
            answer += data
    lead, _, content = answer.partition(b"\r\n\r\n")
    return int(lead.split()[1]), json.loads(content)


def asked(upstream: ScriptedUpstream) -> int:
    return len(upstream.exchanges)


@pytest.mark.parametrize("path", ANY_GET)
def test_a_page_whose_name_was_rebound_to_this_machine_reads_nothing(
    proxy: str, upstream: ScriptedUpstream, path: str
) -> None:
    status, _, body = send(f"{proxy}{path}", headers={"host": "evil.example:8001"})
    assert (status, body["error"]["code"]) == (403, "host_not_allowed")
    assert "allowed_hosts" in body["error"]["message"]
    assert asked(upstream) == 0


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_host_that_is_not_this_machine_is_refused(
    proxy: str, upstream: ScriptedUpstream, host: str
) -> None:
    for method in ("POST", "OPTIONS"):
        status, _, body = send(f"{proxy}/v1/chat/completions", CHAT, {"host": host}, method)
        assert (status, body["error"]["code"]) == (403, "host_not_allowed")
    assert asked(upstream) == 0


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_every_name_of_this_machine_is_accepted(proxy: str, host: str) -> None:
    assert send(f"{proxy}/v1/files", headers={"host": host})[0] == 200


def test_a_request_of_http_1_0_needs_no_host(proxy: str) -> None:
    assert raw(proxy, "GET /v1/files HTTP/1.0\n")[0] == 200


HOSTS: list[tuple[dict[str, Any], str, int]] = [
    ({"allowed_hosts": ("models.example",)}, "models.example", 200),
    ({"allowed_hosts": ("models.example",)}, "models.example:443", 200),
    ({"allowed_hosts": ("models.example",)}, "127.0.0.1", 200),
    ({"allowed_hosts": ("models.example",)}, "a.models.example", 403),
    ({"allowed_hosts": ("*.models.example",)}, "a.models.example", 200),
    ({"allowed_hosts": ("*.models.example",)}, "amodels.example", 403),
    ({"allowed_hosts": ("*.models.example",)}, "models.example", 403),
    ({"allowed_hosts": ("*",)}, "evil.example", 200),
    # An address is no name that somebody could bind anew, and all addresses are bound here.
    ({"host": "0.0.0.0", "open": True}, "192.0.2.1:8001", 200),
    ({"host": "::", "open": True}, "[2001:db8::1]:8001", 200),
    ({"host": "0.0.0.0", "open": True}, "evil.example", 403),
    ({"host": "192.0.2.1", "open": True}, "192.0.2.1:8001", 200),
    ({"host": "192.0.2.1", "open": True}, "192.0.2.2:8001", 403),
    ({"host": "box.lan", "open": True}, "BOX.lan:8001", 200),
    # A page does not have the key, whatever name it comes by.
    ({"client_keys": ("k",)}, "models.example", 200),
]


@pytest.mark.parametrize(("settings", "host", "status"), HOSTS)
def test_the_setting_allowed_hosts_adds_names(
    start_proxy: StartProxy, settings: dict[str, Any], host: str, status: int
) -> None:
    proxy = start_proxy(**settings)
    headers = {"host": host, "authorization": "Bearer k"}
    assert send(f"{proxy}/v1/files", headers=headers)[0] == status


FOREIGN_PAGES: list[dict[str, str]] = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:3000"},
    {"origin": "http://127.0.0.1"},
    {"origin": "http://127.0.0.1.evil.example"},
    {"origin": "http://["},
    {"origin": "chrome-extension://abcdef"},
    {"origin": "file://"},
    {"origin": ""},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
    {"sec-fetch-site": "cross-site", "referer": "https://evil.example/page"},
    {"sec-fetch-site": "made-up"},
]


@pytest.mark.parametrize("page", FOREIGN_PAGES)
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_a_foreign_page_reaches_neither_the_upstream_nor_a_container(
    proxy: str, upstream: ScriptedUpstream, page: dict[str, str], kind: str
) -> None:
    headers = {**page, "content-type": kind}
    for path, body in (
        ("/v1/chat/completions", CHAT),
        ("/v1/responses", {"model": "m", "input": "Hello"}),
        ("/v1/containers", {"name": "c"}),
        ("/v1/containers/cntr_0/execute", {"code": "1"}),
    ):
        status, _, answer = send(f"{proxy}{path}", body, headers)
        assert (status, answer["error"]["code"]) == (403, "origin_not_allowed")
        assert "cors_origins" in answer["error"]["message"]
    for path, method in (("/v1/files", "GET"), ("/v1/files/file-0", "DELETE")):
        assert send(f"{proxy}{path}", headers=page, method=method)[0] == 403
    assert asked(upstream) == 0
    assert send(f"{proxy}/v1/containers")[2]["data"] == []


OWN_PAGES: list[dict[str, str]] = [
    {},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "same-origin", "origin": "https://behind-a-tls-proxy.example"},
    {"origin": "http://127.0.0.1:8001", "host": "127.0.0.1:8001"},
    {"origin": "https://localhost", "host": "localhost"},
    # A link that somebody follows: the page that has it cannot read where it leads.
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
]


@pytest.mark.parametrize("page", OWN_PAGES)
def test_requests_of_programs_and_of_the_proxys_own_pages_are_accepted(
    proxy: str, page: dict[str, str]
) -> None:
    assert send(f"{proxy}/v1/files", headers=page)[0] == 200


@pytest.mark.parametrize(
    "page",
    [
        {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "document"},
        {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    ],
)
def test_a_foreign_page_frames_and_loads_nothing(proxy: str, page: dict[str, str]) -> None:
    headers = {"sec-fetch-site": "cross-site", **page}
    assert send(f"{proxy}/v1/files", headers=headers)[0] == 403


def test_a_form_that_is_sent_by_a_foreign_page_is_no_link(proxy: str) -> None:
    headers = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    assert send(f"{proxy}/v1/containers", {"name": "c"}, headers)[0] == 403


APP = "https://app.example"


@pytest.mark.parametrize(
    ("page", "status"),
    [
        ({"origin": APP, "sec-fetch-site": "cross-site"}, 200),
        ({"origin": APP}, 200),
        ({"referer": f"{APP}/chat", "sec-fetch-site": "cross-site"}, 200),
        ({"origin": f"{APP}.evil.example"}, 403),
        ({"origin": "http://app.example"}, 403),
        ({"origin": f"{APP}, https://evil.example"}, 403),
        ({"referer": f"{APP}.evil.example/", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "https://evil.example", "referer": f"{APP}/"}, 403),
    ],
)
def test_origins_of_the_setting_cors_origins_are_accepted(
    start_proxy: StartProxy, page: dict[str, str], status: int
) -> None:
    named, every = start_proxy(cors_origins=(APP,)), start_proxy(cors_origins=("*",))
    assert send(f"{named}/v1/files", headers=page)[0] == status
    assert send(f"{every}/v1/files", headers=page)[0] == 200


KINDS: list[tuple[str, int]] = [
    ("application/json", 200),
    ("Application/JSON; charset=utf-8", 200),
    ("text/plain", 415),
    ("text/plain; application/json", 415),
    ("text/plain, application/json", 415),
    ("application/x-www-form-urlencoded", 415),  # what curl says unless told otherwise
    ("multipart/form-data; boundary=B", 415),
    ("text/json", 415),
    ("", 415),
]


@pytest.mark.parametrize(("kind", "status"), KINDS)
def test_a_body_is_json_and_says_so(
    proxy: str, upstream: ScriptedUpstream, kind: str, status: int
) -> None:
    if status == 200:
        upstream.reply("Hello!")
    answered, _, body = send(f"{proxy}/v1/chat/completions", CHAT, {"content-type": kind})
    assert answered == status
    if status == 415:
        error = body["error"]
        assert (error["code"], error["type"]) == ("unsupported_media_type", "invalid_request_error")
        assert "content-type: application/json" in error["message"]
        assert asked(upstream) == 0


@pytest.mark.parametrize("size", ["content-length: 2\n", "transfer-encoding: chunked\n"])
def test_a_body_without_a_content_type_is_refused(proxy: str, size: str) -> None:
    """A page can send one: ``fetch(url, {method: "POST", body: new Blob([json])})``."""
    head = f"POST /v1/containers HTTP/1.1\nhost: localhost\nconnection: close\n{size}"
    body = b"{}" if "length" in size else b"2\r\n{}\r\n0\r\n\r\n"
    assert raw(proxy, head, body)[0] == 415


def test_only_uploads_are_forms(proxy: str) -> None:
    form = b'--B\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n--B--\r\n'
    headers = {"content-type": "multipart/form-data; boundary=B"}
    for path, status in (
        ("/v1/files", 400),
        ("/v1/containers/cntr_0/files", 404),
        ("/v1/containers", 415),
        ("/v1/containers/cntr_0/execute", 415),
        ("/v1/responses", 415),
    ):
        assert send(f"{proxy}{path}", form, headers)[0] == status, path


def test_a_malformed_referer_names_no_page(start_proxy: StartProxy) -> None:
    proxy = start_proxy(cors_origins=("https://app.example",))
    headers = {"referer": "http://["}
    assert send(f"{proxy}/v1/files", headers=headers)[0] == 200
