"""What a first request after the start waits for, and what is only begun when there is use for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import own_process

# In a process of its own: what this one has imported already is none of the proxy's.
ASK = """
import json, sys, urllib.request
from pathlib import Path
from app import create_app
from emulator.settings.settings import Settings
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serve

asked = json.loads(sys.argv[1])
tool = {"type": "function", "function": {"name": "go", "parameters": asked["parameters"]}}
body = {"model": "m", "messages": [{"role": "user", "content": "Go"}], "tools": [tool]}

def processes():
    tasks = Path("/proc/self/task").glob("*/children")
    return " ".join(task.read_text() for task in tasks).split()

with ScriptedUpstream(default=f"```tool_code\\n{asked['call']}\\n```") as upstream:
    settings = Settings(
        base_url=upstream.base_url, database=":memory:", sandbox="none",
    )
    app = create_app(settings)
    app.extensions["emulator"].reachability.start_check()
    app.extensions["emulator"].reachability.model(60)
    said = len(upstream.requests)
    with serve(app) as url:
        before = set(sys.modules)
        begun = processes()
        kind = {"content-type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), kind)
        answer = json.load(urllib.request.urlopen(request))
        after, later = set(sys.modules), processes()
    app.extensions["emulator"].close()
[call] = answer["choices"][0]["message"]["tool_calls"]
packages = {name: sorted({each.partition(".")[0] for each in found} - sys.stdlib_module_names)
            for name, found in (("before", before), ("with it", after - before))}
print(json.dumps([said, call["function"]["arguments"], packages, begun, later]))
"""

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
NESTED = {"type": "object", "properties": {"to": CITY}}


def ask(folder: Path, parameters: Any, call: str) -> Any:
    """Requests of the start, the call's arguments, packages that were there before the first request and
    that came with it, and the processes that the proxy had started before it and after it."""
    asked = json.dumps({"parameters": parameters, "call": call})
    ended = own_process(ASK, asked, home=folder)
    assert ended.code == 0, ended.err
    return json.loads(ended.out.splitlines()[-1])


@pytest.mark.parametrize(
    ("parameters", "call", "arguments", "imported"),
    [
        (CITY, 'go(city="Oslo")', '{"city":"Oslo"}', []),
        (
            NESTED,
            'go(to={"city": "Oslo"})',
            '{"to":{"city":"Oslo"}}',
            ["datamodel_code_generator"],
        ),
    ],
    ids=["plain tools", "nested schemas"],
)
def test_a_first_request_imports_nothing_but_the_generator_of_models(
    tmp_path: Path, parameters: Any, call: str, arguments: str, imported: list[str]
) -> None:
    """All that any request needs is there before it; what only nested schemas need (16 MiB) is not."""
    said, given, packages, *_ = ask(tmp_path, parameters, call)
    assert (said, given) == (0, arguments)
    assert packages["with it"] == imported
    assert "datamodel_code_generator" not in packages["before"]
    assert {"jupyter_client", "zmq"}.isdisjoint(packages["before"])


def test_a_proxy_starts_no_process_before_the_first_request_with_tools(tmp_path: Path) -> None:
    *_, before, after = ask(tmp_path, CITY, "go(city=str(40 + 2))")
    assert before == []
    assert len(after) == 1  # the program server
