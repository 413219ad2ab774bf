"""Mutated requests of real clients over all routes: the answer is never a 500.

`make test` sends a few, `make fuzz` thousands (FUZZ_REQUESTS). Hypothesis minimizes a request that fails and
sends it again with the next run.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from app import create_app
from emulator.settings.settings import Settings
from tests.conftest import StartProxy
from tests.support.mutations import mutated, request_bodies
from tests.support.scripted import ScriptedUpstream

COUNT = int(os.environ.get("FUZZ_REQUESTS", "250"))
SETTINGS: dict[str, Any] = {"repair_attempts": 1, "max_body_bytes": 2**20}


# fmt: off
PARAMETERS = ("after", "limit", "order", "purpose", "include", "include[]", "stream", "starting_after")
VALUES = ("", "1", "-1", "0", "asc", "²", "1e5", "9" * 400, "\x00", "\ud800", "true", "a" * 3000)
IDS = (
    "0" * 32, "", "%00", "\x00", "..", "%2e%2e%2f", "\ud800", "'; DROP TABLE files;--", "é" * 50, "a" * 2000,
)
# fmt: on


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: bytes | None = None


def mutated_request(
    dice: random.Random, rules: list[tuple[str, str]], bodies: list[tuple[str, Any]]
) -> Request:
    """``rules`` are (method, rule) of an application, ``bodies`` (path, JSON) of its clients."""
    path, body = dice.choice(bodies)
    method = "POST"
    if dice.random() < 0.25:
        method, rule = dice.choice(rules)
        path = _path(dice, rule)
    changed = mutated(dice, body)
    return Request(method, path, _written(dice, changed) if method == "POST" else None)


def _written(dice: random.Random, body: Any) -> bytes:
    try:
        raw = bytearray(
            json.dumps(body, ensure_ascii=dice.random() < 0.5).encode("utf-8", "replace")
        )
    except RecursionError:
        return b"[" * 100_000
    if raw and dice.random() < 0.1:
        match dice.randrange(4):
            case 0:
                del raw[dice.randrange(len(raw)) :]
            case 1:
                raw[dice.randrange(len(raw))] = dice.randrange(256)
            case 2:
                raw += b"}"
            case _:
                raw = bytearray(b"\xef\xbb\xbf") + raw
    return bytes(raw)


def _path(dice: random.Random, rule: str) -> str:
    path = ""
    for piece in rule.split("/")[1:]:
        path += "/" + (_id(dice, piece) if piece.startswith("<") else piece)
    if dice.random() < 0.5:
        pairs = [(dice.choice(PARAMETERS), dice.choice(VALUES)) for _ in range(dice.choice((1, 2)))]
        path += "?" + "&".join(f"{name}={_quoted(value)}" for name, value in pairs)
    return path


def _id(dice: random.Random, piece: str) -> str:
    prefixes = {"<file_id>": "file-", "<container_id>": "cntr_", "<response_id>": "resp_"}
    return _quoted(prefixes.get(piece, "exec_") + dice.choice(IDS))


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "replace"), safe="")


def rules() -> list[tuple[str, str]]:
    app = create_app(Settings(database=":memory:"))
    app.extensions["emulator"].close()
    return sorted(
        (method, rule.rule)
        for rule in app.url_map.iter_rules()
        if rule.endpoint != "static" and rule.rule.startswith(("/v1", "/healthz"))
        for method in (rule.methods or set()) - {"HEAD"}
    )


def bodies() -> list[tuple[str, Any]]:
    """Those in tests/data that need no kernel: kernels are slow, and not what is tried here."""
    known = {rule for _, rule in rules()}
    found = [
        (path, body)
        for path, body in request_bodies()
        if not re.search("code_(?:interpreter|execution)|container_auto", json.dumps(body))
    ]
    own: list[tuple[str, Any]] = [
        (
            "/v1/containers",
            {"name": "c", "expires_after": {"anchor": "last_active_at", "minutes": 5}},
        ),
        ("/v1/containers/cntr_0/execute", {"code": "1", "stream": True}),
    ]
    return [(path, body) for path, body in found if path in known] + own


def reply(body: Any) -> str:
    """A model that calls the first tool of its prompt with arbitrary arguments, or talks."""
    told = json.dumps(body)
    names = re.findall(r"def (\w+)\(", told)
    return f"```tool_code\n{names[0]}(1)\n```" if names else "Hello there."


def ask(proxy: str, request: Request) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(proxy.removeprefix("http://"), timeout=120)
    headers = {"content-type": "application/json"} if request.body is not None else {}
    try:
        connection.request(request.method, request.path, request.body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


DEEP: Any = reduce(lambda inside, _: {"a": inside}, range(300), None)
SERVER = {"type": "mcp", "server_label": "l", "headers": {"a": "b"}}
FOUND = [
    ("/v1/responses", {"tools": [{**SERVER, "": {"a": "b"}}]}),
    ("/v1/responses", {"tools": [{**SERVER, "allowed_tools": [DEEP]}]}),
    ("/v1/responses", {"tools": [{**SERVER, "type": {"x": 1}}]}),
    ("/v1/messages", {"max_tokens": 9, "tools": [{"name": {"x": 1}, "input_schema": {}}]}),
]
"""What the test below, or its kin, once found."""


@pytest.mark.parametrize(("path", "fields"), FOUND)
def test_a_request_that_once_made_the_proxy_fail_is_refused(
    start_proxy: StartProxy, path: str, fields: dict[str, Any]
) -> None:
    message = {"role": "user", "content": "Hi"}
    question: dict[str, Any] = {"input": "Hi"} if "responses" in path else {"messages": [message]}
    body = json.dumps({"model": "m", **question, **fields}).encode()
    status, answer = ask(start_proxy(), Request("POST", path, body))
    assert status == 400, answer


def test_no_request_makes_the_proxy_fail(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.default = reply
    proxy = start_proxy(**SETTINGS)
    known_rules, known_bodies = rules(), bodies()
    statuses: Counter[int] = Counter()

    @settings(max_examples=COUNT, suppress_health_check=[*HealthCheck])
    @given(st.randoms(use_true_random=False))
    def send(dice: random.Random) -> None:
        request = mutated_request(dice, known_rules, known_bodies)
        note(str(request)[:2000])
        status, answer = ask(proxy, request)
        statuses[status] += 1
        assert status != 500 and b"The proxy failed" not in answer

    send()
    sys.stderr.write(f"{sum(statuses.values())} requests, by status: {dict(statuses)}\n")
    assert statuses[200] and statuses[400] and statuses[404]
