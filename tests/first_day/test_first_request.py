"""What a first request after the start waits for, and what is only begun when there is use for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import own_process

# In a process of its own: what this one has imported already is none of the proxy's.
ASK = """
import json, sys, threading, time, urllib.request
from app import create_app
from emulator.settings import Settings
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serve

asked = json.loads(sys.argv[1])
tool = {"type": "function", "function": {"name": "go", "parameters": asked["parameters"]}}
body = {"model": "m", "messages": [{"role": "user", "content": "Go"}], "tools": [tool]}

def waiting():
    told = urllib.request.urlopen(f"{url}/metrics").read().decode().splitlines()
    return [float(row.split()[1]) for row in told if 'pool="programs",state="waiting"' in row]

with ScriptedUpstream(default=f"```python\\n{asked['call']}\\n```") as upstream:
    settings = Settings(
        base_url=upstream.base_url, store=":memory:", files_dir=":temporary:", sandbox="none",
        engines=asked["engines"],
    )
    app = create_app(settings)
    app.extensions["emulator"].reachability.start_check()
    app.extensions["emulator"].reachability.model(60)
    app.extensions["emulator"].warm_up()
    said = len(upstream.requests)
    with serve(app) as url:
        before = set(sys.modules)
        begun = [thread.name for thread in threading.enumerate() if thread.name.startswith("kernel-")]
        kind = {"content-type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), kind)
        answer = json.load(urllib.request.urlopen(request))
        after = set(sys.modules)
        until = time.monotonic() + 60
        while "kernel" in asked["engines"] and waiting() == [0.0] and time.monotonic() < until:
            time.sleep(0.05)
        later = waiting()
    app.extensions["emulator"].close()
[call] = answer["choices"][0]["message"]["tool_calls"]
packages = {name: sorted({each.partition(".")[0] for each in found} - sys.stdlib_module_names)
            for name, found in (("before", before), ("with it", after - before))}
print(json.dumps([said, call["function"]["arguments"], packages, begun, later]))
"""

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
NESTED = {"type": "object", "properties": {"to": CITY}}


def ask(folder: Path, engines: list[str], parameters: Any, call: str) -> Any:
    """Requests of the start, the call's arguments, packages that were there before the first request and
    that came with it, threads for kernels before it, and how many programs' kernels waited after it."""
    asked = json.dumps({"engines": engines, "parameters": parameters, "call": call})
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
    said, given, packages, *_ = ask(tmp_path, ["monty"], parameters, call)
    assert (said, given) == (0, arguments)
    assert packages["with it"] == imported
    assert "datamodel_code_generator" not in packages["before"]


def test_kernels_that_wait_begin_with_the_first_request_that_has_tools(tmp_path: Path) -> None:
    """A proxy that nobody asks to call tools has none, and not the library that speaks to them."""
    said, _, packages, begun, later = ask(tmp_path, ["monty", "kernel"], CITY, 'go(city="Oslo")')
    assert (said, begun, later) == (0, [], [1.0])
    assert {"jupyter_client", "zmq"}.isdisjoint(packages["before"])


def test_where_programs_run_in_kernels_first_they_begin_with_the_start(tmp_path: Path) -> None:
    said, _, packages, *_, later = ask(tmp_path, ["kernel"], CITY, 'go(city="Oslo")')
    assert (said, later) == (0, [1.0])
    assert "jupyter_client" in packages["before"]
