"""The model's shell wherever kernels run and models call: each place runs its commands in one container."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import gateways
from tests.support.places import CONFIG, IN_DOCKER, problem
from tests.support.responses_client import ask
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.several_workers import two_workers

Start = Callable[..., tuple[str, Any]]
Json = dict[str, Any]
COMMANDS = ["echo 'a b' > f.txt", "awk '{print $2}' f.txt; exit 3"]
IN_PYTHON = Reply(f"```tool_code\nshell(commands={COMMANDS})\n```")
NATIVE = Reply(tool_calls=[{"name": "shell", "arguments": {"commands": COMMANDS}}])


@contextmanager
def bubblewrap(start: Start, upstream: ScriptedUpstream, folder: Path) -> Iterator[str]:
    yield start()[0]


@contextmanager
def native(start: Start, upstream: ScriptedUpstream, folder: Path) -> Iterator[str]:
    yield start(tools="native")[0]


@contextmanager
def workers(start: Start, upstream: ScriptedUpstream, folder: Path) -> Iterator[str]:
    with two_workers(upstream, folder) as started:
        yield started.url


@contextmanager
def gateway(start: Start, upstream: ScriptedUpstream, folder: Path) -> Iterator[str]:
    if not gateways.COMMAND:
        pytest.skip("no gateway to test against: `make test-gateway`")
    token = secrets.token_hex(16)
    with gateways.running(folder, token) as url:
        yield start(sandbox="gateway", gateway_url=url, gateway_token=token)[0]


@contextmanager
def docker(start: Start, upstream: ScriptedUpstream, folder: Path) -> Iterator[str]:
    if not IN_DOCKER:
        pytest.skip("no Docker engine to test against: `make test-docker`")
    yield start(sandbox="docker", docker_image=CONFIG["image"])[0]


PLACES: dict[str, tuple[Any, Reply]] = {
    "bubblewrap": (bubblewrap, IN_PYTHON),
    "a model that calls tools itself": (native, NATIVE),
    "two workers": (workers, IN_PYTHON),
    "a Jupyter gateway": (gateway, IN_PYTHON),
    "Docker": (docker, IN_PYTHON),
}


@pytest.mark.parametrize(("place", "reply"), PLACES.values(), ids=PLACES)
def test_commands_run_in_one_container_that_the_next_request_uses_again(
    start_app: Start, upstream: ScriptedUpstream, tmp_path: Path, place: Any, reply: Reply
) -> None:
    if place not in (gateway, docker) and (IN_DOCKER or problem()):
        pytest.skip(f"no kernels in bubblewrap here: {problem()}")
    shell = {"type": "shell", "environment": {"type": "container_auto"}}
    request: Json = {"model": "qwq", "input": "?", "tools": [shell]}
    upstream.reply(reply, "Done.", reply, "Done again.")
    with place(start_app, upstream, tmp_path) as url:
        first = ask(url, request)
        second = ask(url, {**request, "previous_response_id": first["id"]})
    ran = [
        item for one in (first, second) for item in one["output"] if item["type"] == "shell_call"
    ]
    outputs = [i for i in second["output"] if i["type"] == "shell_call_output"]
    exits = [{"type": "exit", "exit_code": code} for code in (0, 3)]
    assert [one["outcome"] for one in outputs[0]["output"]] == exits
    assert [one["stdout"] for one in outputs[0]["output"]] == ["", "b\n"]
    assert len({one["environment"]["container_id"] for one in ran}) == 1
    assert '\\"exit_code\\":3' in json.dumps(upstream.requests[1]["messages"][-1]["content"])
