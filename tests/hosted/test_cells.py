"""Hosted calls of code interpreter cells, in chat completions."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from sandbox.fences import probes
from tests.support.agents import converse
from tests.support.chat import BOTH
from tests.support.hosted import SERVER, HostedFunctions
from tests.support.programs import INTERPRETER, LOCAL, TOOLS
from tests.support.scripted import ScriptedUpstream

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")

SEARCH, BOOK, CHECK = TOOLS
CELL = """import math
print(math.floor(1.5))
hits = search('Oslo')
cheap = min(hits, key=lambda f: f['price'])
print(book(cheap['id'])['booked'], check(cheap['id']))"""


@BOTH
def test_a_cell_with_hosted_calls_is_shown_once_and_runs_once(
    start_proxy: Any, upstream: ScriptedUpstream, ask: Any
) -> None:
    server = HostedFunctions(LOCAL, [SEARCH, CHECK])
    client = openai.OpenAI(base_url=start_proxy(hosted=server), api_key="k", max_retries=0)
    upstream.reply(f"```python\n{CELL}\n```", "Booked.")
    tools = [INTERPRETER, BOOK, SERVER]
    messages = converse(client, ["Go."], tools=tools, local=LOCAL, ask=ask)
    assert messages[-1]["content"] == "Booked."
    assert server.made == ["search(to='Oslo')", "check(id='a2')"]
    assert len(upstream.requests) == 2
    assert "1\na2 on time" in upstream.requests[1]["messages"][-1]["content"]
    first, second = (m["reasoning_content"] for m in messages if m.get("reasoning_content"))
    assert first.count("import math") == second.count("import math") == 1
    assert '```python\nshop.search(to="Oslo")\n```' in first
    assert "```text\non time\n```" in second
