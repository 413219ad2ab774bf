"""Random cells over HTTP, in real kernels, with CPython and the same tools as the reference.

Whichever calls leave together, a client is sent the calls that Python makes, what acts in Python's order and
what reads between the same two, and the model gets what Python prints.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import httpx2
import pytest

from sandbox.fences import probes
from tests.support.random_cells import NAMES, random_cells, reference, result, stretches
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")

TOOLS = [function(name, strings("about")) for name in NAMES]
MOST_CALLS = 60


def played(http: httpx2.Client, container: str) -> list[tuple[str, str]]:
    """The calls that a client was sent, to the end of the conversation."""
    tools = [{"type": "code_interpreter", "container": container}, *TOOLS]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    calls: list[tuple[str, str]] = []
    for _ in range(MOST_CALLS):
        body = {"model": "m", "messages": messages, "tools": tools}
        answer = http.post("/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        message = answer.json()["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return calls
        for call in message["tool_calls"]:
            about = json.loads(call["function"]["arguments"])["about"]
            calls.append((call["function"]["name"], about))
            content = json.dumps(result(about))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    raise AssertionError("the conversation does not come to an end")


def held_the_law(url: str, upstream: ScriptedUpstream, seeds: Iterable[int]) -> int:
    """How many conversations of cells were played, each with Python's calls and what Python prints."""
    tried = 0
    with httpx2.Client(base_url=f"{url}/v1", timeout=120) as http:
        container = http.post("/containers", json={"name": "random"}).json()["id"]
        for seed in seeds:
            cells = random_cells(random.Random(seed))
            try:
                expected, printed = reference(cells)
            except (NameError, TypeError, ValueError, IndexError):
                continue  # `test_cell_calls` tests the calls of cells that fail
            if len(expected) > MOST_CALLS:
                continue
            upstream.reply(*(f"```python\n{cell}\n```" for cell in cells), "Done.")
            calls = played(http, container)
            source = "\n# ---\n".join(cells)
            assert [*stretches(calls)] == [*stretches(expected)], f"{seed}\n{source}"
            told = "\n".join(str(r["messages"][-1]["content"]) for r in upstream.requests)
            for line in printed.splitlines():
                assert line in told, f"{seed}\n{source}"
            upstream.exchanges.clear()
            tried += 1
    return tried


@pytest.mark.parametrize("part", range(3))
def test_random_cells_make_pythons_calls(proxy: str, upstream: ScriptedUpstream, part: int) -> None:
    assert held_the_law(proxy, upstream, range(25)[part::3]) > 4


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fifty", range(10))
def test_many_random_cells_make_pythons_calls(
    proxy: str, upstream: ScriptedUpstream, fifty: int
) -> None:
    assert held_the_law(proxy, upstream, range(1000 + 50 * fifty, 1050 + 50 * fifty)) > 25
