"""Mutated requests of real clients over all routes: whatever comes, the answer is never a 500.

`make test` sends a few, `make fuzz` thousands (FUZZ_REQUESTS, FUZZ_SEED). What fails is made as small as it
can be and written into tests/data/fuzz: it is sent again with each run from then on.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from app import create_app
from emulator.settings import Settings
from tests.conftest import StartProxy
from tests.support.mutations import Request, minimal, requests
from tests.support.scripted import ScriptedUpstream

DATA = Path(__file__).parents[2] / "data"
KEPT = DATA / "fuzz"
COUNT = int(os.environ.get("FUZZ_REQUESTS", "250"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
SETTINGS: dict[str, Any] = {"engines": ("monty",), "repair_attempts": 1, "max_body_bytes": 2**20}


def rules() -> list[tuple[str, str]]:
    app = create_app(Settings(store=":memory:", files_dir=":temporary:"), engines=())
    app.extensions["emulator"].close()
    return sorted(
        (method, rule.rule)
        for rule in app.url_map.iter_rules()
        if rule.endpoint != "static" and rule.rule.startswith(("/v1", "/healthz"))
        for method in (rule.methods or set()) - {"HEAD"}
    )


def bodies() -> list[tuple[str, Any]]:
    """Those in tests/data that need no kernel: kernels are slow, and not what is tried here."""
    lines = map(json.loads, (DATA / "client_requests.jsonl").read_text().splitlines())
    known = {rule for _, rule in rules()}
    found = [
        (line["path"], line["body"])
        for line in lines
        if line.get("body") and "code_interpreter" not in json.dumps(line["body"])
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
    """A model that calls the first tool it is told of with nothing in particular, or talks."""
    told = json.dumps(body)
    names = re.findall(r"def (\w+)\(", told)
    return f"```python\n{names[0]}(1)\n```" if names else "Hello there."


def ask(proxy: str, request: Request) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(proxy.removeprefix("http://"), timeout=120)
    headers = {"content-type": "application/json"} if request.body is not None else {}
    try:
        connection.request(request.method, request.path, request.body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def failed(status: int, answer: bytes) -> bool:
    return status == 500 or b"The proxy failed" in answer


def keep(proxy: str, request: Request) -> str:
    """Write a request that fails, as small as it can be; returns where."""

    def fails(body: Any) -> bool:
        sent = Request(request.method, request.path, json.dumps(body).encode())
        return failed(*ask(proxy, sent))

    body = (request.body or b"").decode("utf-8", "backslashreplace")
    try:
        value = json.loads(request.body or b"null")
        body = json.dumps(minimal(value, fails) if fails(value) else value)
    except ValueError:
        pass
    row = {"method": request.method, "path": request.path, "body": body}
    name = hashlib.sha256(json.dumps(row).encode()).hexdigest()[:12]
    (KEPT / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")
    return f"{KEPT / name}.json: {row}"[:1000]


def test_no_request_makes_the_proxy_fail(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.default = reply
    proxy = start_proxy(**SETTINGS)
    statuses: Counter[int] = Counter()
    failures = []
    for request in islice(requests(rules(), bodies(), SEED), COUNT):
        status, answer = ask(proxy, request)
        statuses[status] += 1
        if failed(status, answer):
            failures.append(keep(proxy, request))
    sys.stderr.write(f"{sum(statuses.values())} requests, by status: {dict(statuses)}\n")
    assert failures == []
    assert statuses[200] and statuses[400] and statuses[404]


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_what_has_failed_once_fails_no_more(
    start_proxy: StartProxy, upstream: ScriptedUpstream, path: Path
) -> None:
    upstream.default = reply
    row = json.loads(path.read_text())
    body = row["body"].encode() if row["body"] != "null" else None
    status, answer = ask(start_proxy(**SETTINGS), Request(row["method"], row["path"], body))
    assert not failed(status, answer), answer
