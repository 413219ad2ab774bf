"""Our OpenAPI document tells of every route; what schemathesis makes from it is never answered with a 500.

`make test` sends a few requests of each operation, `make fuzz` many (FUZZ_EXAMPLES of each).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode

from app import create_app
from emulator.settings.settings import Settings
from emulator.web.routes.openapi import BODIES, QUERIES, document
from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "1"))
SETTINGS: dict[str, Any] = {"interpreter": "off", "max_body_bytes": 2**20}


@pytest.fixture
def app() -> Flask:
    app = create_app(Settings(database=":memory:"))
    app.extensions["emulator"].close()
    return app


def test_the_document_describes_every_route(app: Flask) -> None:
    told = {
        (method.upper(), path.replace("{", "<").replace("}", ">"), operation["operationId"])
        for path, operations in document(app)["paths"].items()
        for method, operation in operations.items()
    }
    served = {
        (method, rule.rule.replace("<path:", "<"), rule.endpoint.removeprefix("v1."))
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if not rule.endpoint.startswith("inspector.")  # pages are no API
        and not rule.websocket
        and not rule.endpoint.endswith(".pass_on")
    }
    assert told == served
    posted = {name for method, _, name in served if method == "POST"}
    assert set(BODIES) == posted
    assert set(QUERIES) <= {name for _, _, name in served}


def test_every_reference_in_the_document_resolves(app: Flask) -> None:
    made = document(app)
    names = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(made)))
    assert names <= set(made["components"]["schemas"])
    assert {"ChatCompletionRequest", "ResponseRequest", "MessagesRequest", "Error"} <= names


def test_the_document_is_served_without_a_key(start_proxy: StartProxy) -> None:
    status, _, made = send(f"{start_proxy(client_keys='one')}/openapi.json")
    assert (status, made["openapi"]) == (200, "3.1.0")


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_no_request_that_schemathesis_makes_from_the_document_fails_the_proxy(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.default = "Hello there."
    url = start_proxy(**SETTINGS)
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    statuses: Counter[int] = Counter()
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(
                max_examples=EXAMPLES,
                derandomize="FUZZ_EXAMPLES" not in os.environ,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Case) -> None:
                answer = case.call(base_url=url, timeout=60)
                statuses[answer.status_code] += 1
                assert answer.status_code != 500, case.as_curl_command()
                assert b"The proxy failed" not in answer.content

            with suppress(Unsatisfiable):  # nothing can be wrong where nothing is asked for
                ask()
    sys.stderr.write(f"{sum(statuses.values())} requests, by status: {dict(statuses)}\n")
    assert statuses[200] and statuses[400] and statuses[404]
