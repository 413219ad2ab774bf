"""What another process has stored goes on: of this version, and of an earlier one with the same tables.

`tests/data/stored_state.tar.gz` was recorded at commit 4387cf3e, whose hosted calls had no journal. If this
fails since a table or a row has changed, the version of the tables must change (`database.opening`).
"""

from __future__ import annotations

import json
import os
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import mcp_faults
from tests.support.raw_http import fetch
from tests.support.scripted import ScriptedUpstream
from tests.support.stored_state import ARCHIVE, DATABASE, begin, model
from tests.support.uploads import CSV

NEXT_CALL, PAID, DONE = rb"{\"x\":\"7\"}", rb"{\"x\":\"done\"}", b"Done."
EXPECTED = {
    "open program": (NEXT_CALL, 0, 0),
    "open program with an act": (PAID, 1, 0),
    "repeated act": (PAID, 0, 0),
    "pending approval": (DONE, 1, 1),
    "repeated approval": (DONE, 0, 1),
    "response": (DONE, 0, 1),
    "conversation": (DONE, 0, 1),
    "file": (CSV, 0, 0),
    "file of a container": (CSV, 0, 0),
}
"""Name -> what the answer contains, how often the bank is asked to pay, how often the model is asked."""


@pytest.fixture(params=["this version", "an earlier version"])
def requests(
    request: pytest.FixtureRequest, start_app: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> dict[str, list[Any]]:
    """What the clients of an ended proxy send next."""
    upstream.default = model
    if request.param == "this version":
        url, services = start_app(database=str(tmp_path / DATABASE), mcp=bank(tmp_path / "before"))
        begun = begin(url)
        services.close()
        return begun
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return dict(json.loads((tmp_path / "requests.json").read_text()))


def bank(log: Path) -> dict[str, Any]:
    return {"bank": {**mcp_faults.stdio(log), "always": True}}


def recorded_at(database: Path) -> float:
    with closing(sqlite3.connect(database)) as kept:
        return float(kept.execute("SELECT max(stored) FROM documents").fetchone()[0])


@pytest.mark.skipif(os.environ.get("DATABASE") == "postgresql", reason="its own database")
def test_what_a_proxy_stored_continues_at_the_next_one(
    requests: dict[str, list[Any]],
    start_app: Callable[..., tuple[str, Any]],
    upstream: ScriptedUpstream,
    tmp_path: Path,
) -> None:
    """A repeated request of the version before made its act a second time."""
    database, log = tmp_path / DATABASE, tmp_path / "log"
    now = recorded_at(database)
    url, _ = start_app(database=str(database), mcp=bank(log), now=lambda: now)
    assert requests.keys() == EXPECTED.keys()
    for name, (path, body) in requests.items():
        log.write_text("")
        before = len(upstream.requests)
        status, _, answer = fetch(url + path, body)
        contained, *counts = EXPECTED[name]
        assert status == 200 and contained in answer, (name, answer)
        asked = len(upstream.requests) - before
        assert [log.read_text().count("pay {"), asked] == counts, name
        if name in ("response", "conversation"):
            assert "Good day." in str(upstream.requests[-1]["messages"])
