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
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from app import create_app
from emulator.settings import Settings
from tests.conftest import StartProxy
from tests.support.mutations import Request, mutated_request
from tests.support.scripted import ScriptedUpstream

DATA = Path(__file__).parents[2] / "data"
COUNT = int(os.environ.get("FUZZ_REQUESTS", "250"))
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


def test_no_request_makes_the_proxy_fail(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.default = reply
    proxy = start_proxy(**SETTINGS)
    known_rules, known_bodies = rules(), bodies()
    statuses: Counter[int] = Counter()

    @settings(max_examples=COUNT, deadline=None, suppress_health_check=[*HealthCheck])
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
