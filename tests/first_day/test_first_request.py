"""The first request after the start has nothing to wait for that the second has not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.command_line import ROOT, SECONDS, environment

# In a process of its own: what this one has imported already is none of the proxy's.
ASK = """
import json, sys, urllib.request
from app import create_app
from emulator.settings import Settings
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serve

city = {"type": "object", "properties": {"city": {"type": "string"}}}
schema = {"type": "object", "properties": {"to": city}}
tool = {"type": "function", "function": {"name": "go", "parameters": schema}}
body = {"model": "m", "messages": [{"role": "user", "content": "Go"}], "tools": [tool]}
reply = '```python\\ngo(to={"city": "Oslo"})\\n```'
with ScriptedUpstream(default=reply) as upstream:
    settings = Settings(
        base_url=upstream.base_url, store=":memory:", files_dir=":temporary:", engines=("monty",)
    )
    app = create_app(settings)
    app.extensions["emulator.reachability"].begin()
    app.extensions["emulator.reachability"].model(60)
    app.extensions["emulator.warm_up"]()
    asked = len(upstream.requests)
    with serve(app) as url:
        urllib.request.urlopen(f"{url}/healthz").read()
        before = set(sys.modules)
        kind = {"content-type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), kind)
        answer = json.load(urllib.request.urlopen(request))
        after = set(sys.modules)
    app.extensions["emulator"].close()
[call] = answer["choices"][0]["message"]["tool_calls"]
print(json.dumps([asked, call["function"]["arguments"], sorted(after - before)]))
"""


def test_a_request_after_warming_up_imports_nothing(tmp_path: Path) -> None:
    """Making models of nested schemas began with an import of two seconds, while the client waited."""
    run = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=ROOT,
        env=environment(tmp_path, {"EMULATOR_CONFIG": "/dev/null", "PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    asked, arguments, imported = json.loads(run.stdout.splitlines()[-1])
    assert (asked, arguments) == (0, '{"to":{"city":"Oslo"}}')
    assert imported == []
