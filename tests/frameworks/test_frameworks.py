"""Each framework asks two questions of one conversation, with tools, and one for a structured answer.

Its program (programs/) runs in its own environment; the model is scripted and reads what it needs in the
prompt. The first question is answered call by call, the second with one program, where the framework keeps
the conversation.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.agents.obedient import Disobedient, block, read_stubs, text_of
from tests.conftest import StartProxy
from tests.frameworks.frameworks import FRAMEWORKS, Framework
from tests.support.metrics import count_requests
from tests.support.scripted import ScriptedUpstream

PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 140


def common(name: str) -> Any:
    """A constant of programs/common.py, which only imports in an environment of a framework."""
    for node in ast.parse((PROGRAMS / "common.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise KeyError(name)


CITIES = {common("FIRST"): "London", common("SECOND"): "Paris"}
FORECAST = common("FORECAST")
VALUES = {"city": "London", "days": [{"high": 12.0, "low": 3.5}]}
JSON_IN_PROSE = f"Here you are:\n\n```json\n{json.dumps(VALUES)}\n```"
# DSPy puts all outputs of a signature into one object.
WRAPPED = f"```json\n{json.dumps({'forecast': VALUES})}\n```"
WEATHER = {city: f"{len(city)} degrees in {city}" for city in CITIES.values()}
CALLS = [
    call
    for city, weather in WEATHER.items()
    for call in (
        ["get_weather", {"location": city}],
        ["send_mail", {"to": "ada@example.org", "body": weather}],
    )
]


def obedient(request: Mapping[str, Any]) -> str:
    messages = [
        (message["role"], text_of(message.get("content"))) for message in request["messages"]
    ]
    prompt = "\n\n".join(text for _, text in messages)
    stubs = read_stubs(prompt)
    asked = max(
        (number, text.rfind(question), question)
        for number, (_, text) in enumerate(messages)
        for question in (*CITIES, FORECAST)
        if question in text
    )
    number, _, question = asked
    since = messages[number + 1 :]
    if question == FORECAST:
        return forecast(stubs, prompt, any(role == "assistant" for role, _ in since))
    shown = "\n\n".join(text for role, text in since if role != "assistant")
    city = CITIES[question]
    get_weather, send_mail = offered("get_weather", stubs), offered("send_mail", stubs)
    weather = re.search(rf"[0-9]+ degrees in {city}", shown)
    if re.search(r"\bsent\b", shown):
        answer = f"I sent it: {WEATHER[city]}."
        return block(f"submit(answer={answer!r})") if "submit" in stubs else answer
    if weather is not None:
        return block(f"{send_mail}(to='ada@example.org', body={weather[0]!r})")
    if city == "London":
        return block(f"{get_weather}(location={city!r})")
    # Google ADK wraps what a function returns; the model has seen it when it asked about London.
    wrapped = re.search(rf"""["']result["']: *["']{WEATHER["London"]}""", prompt)
    found = "found['result']" if wrapped else "found"
    return block(
        f"found = {get_weather}(location={city!r})\n"
        f"print({send_mail}(to='ada@example.org', body={found}))"
    )


def offered(name: str, stubs: Mapping[str, Any]) -> str:
    """The tool as it is called here: Semantic Kernel puts the name of its plugin before it."""
    found = next((stub for stub in stubs if stub.endswith(name)), None)
    if found is None:
        raise Disobedient(f"only {sorted(stubs)} can be called")
    return found


def forecast(stubs: Mapping[str, Any], prompt: str, called: bool) -> str:
    """A call where the framework wants the answer as a call, else JSON."""
    name = next((name for name, stub in stubs.items() if "city" in stub.parameters), None)
    if name is None:
        return WRAPPED if '"forecast"' in prompt else JSON_IN_PROSE
    if called:
        return "Done."
    return block(f"{name}(city={VALUES['city']!r}, days={VALUES['days']!r})")


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.environment.name)
def test_a_framework_goes_through_several_turns_and_a_structured_answer(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    framework: Framework,
) -> None:
    environment = framework.environment
    if not environment.installed:
        pytest.skip(f"{framework.title} is not installed")
    upstream.default = obedient
    url = start_proxy()
    requests = count_requests(url)
    run = subprocess.run(
        [environment.programs / "python", PROGRAMS / f"{framework.program}.py"],
        cwd=tmp_path,
        env={
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
            "PROXY_URL": url,
            "OPENAI_API_KEY": "another key",
        }
        | framework.variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    told = f"{run.stdout[-6000:]}\n{run.stderr[-6000:]}"
    assert upstream.failures == [], told
    assert run.returncode == 0, told
    reports = re.findall(r"^REPORT (.*)$", run.stdout, re.MULTILINE)
    assert len(reports) == 1, told
    found = json.loads(reports[0])
    assert found["calls"] == CALLS, told
    for answer, weather in zip(found["answers"], WEATHER.values(), strict=True):
        assert weather in answer
    assert found["forecast"] == VALUES
    record_property("environment", framework.environment.name)
    record_property("requests", requests())
    record_property("turns", len(upstream.requests))
