"""deploy/compose.yaml, started as docs/deploy.md says: a model's server, and the proxy before it.

The model is the embedded one's file. Where no image registry can be reached, images made of Debian's and
PyPI's packages replace llama.cpp's (`tests/image/images`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest
import yaml

from emulator.upstream.local_model import MODEL_NAME, REQUIREMENTS, LocalModelMissing, weights
from tests.image.docker_command import (
    ROOT,
    docker,
    index_argument,
    pulled_or_built,
    without_digest,
)
from tests.support.processes import free_port
from tests.support.tools import GET_WEATHER

if "COMPOSE" not in os.environ:
    pytest.skip("make test-image starts an engine for these", allow_module_level=True)

pytestmark = pytest.mark.timeout(1800)

FILE = ROOT / "deploy" / "compose.yaml"
STAND_INS = Path(__file__).parent / "images"
KEY = "a-key-of-the-clients"

Compose = Callable[..., str]


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def compose(port: int, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """`docker compose -f deploy/compose.yaml ...`, which is up."""
    try:
        model = weights()
    except LocalModelMissing as error:
        pytest.skip(str(error))
    services = yaml.safe_load(FILE.read_text())["services"]
    [package] = [name for name in REQUIREMENTS if name.startswith("xllamacpp")]
    server = ("--build-arg", f"XLLAMACPP={package}")
    llama = pulled_or_built(services["model"]["image"], STAND_INS / "llama", *server)
    # The build asks this machine's package index, as in the tests of the image.
    name, _, value = index_argument().partition("=")
    dockerfile = without_digest((ROOT / "Dockerfile").read_text())
    build = {"network": "host", "args": {name: value}, "dockerfile_inline": dockerfile}
    ours = tmp_path_factory.mktemp("compose") / "build.yaml"
    built = {"proxy": {"build": build}, "model": {"image": llama}}
    ours.write_text(yaml.safe_dump({"services": built}))
    env = {
        "CLIENT_KEYS": KEY, "LISTEN": f"127.0.0.1:{port}", "MODELS": str(model.parent), "MODEL": model.name,
    }  # fmt: skip

    def run(*arguments: str) -> str:
        return docker("compose", "-f", str(FILE), "-f", str(ours), *arguments, env=env)

    try:
        run("up", "--build", "--wait")
        yield run
    finally:
        run("down", "--volumes")


@pytest.fixture
def client(port: int) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=5
    ) as client:
        yield client


@pytest.mark.usefixtures("compose")
def test_a_real_models_tool_call_passes_through_every_service(client: openai.OpenAI) -> None:
    message = client.chat.completions.create(
        model=MODEL_NAME,
        tools=[GET_WEATHER],
        tool_choice="required",
        messages=[{"role": "user", "content": "What is the weather in London?"}],
    )
    [call] = message.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_weather", {"location": "London"},
    )  # fmt: skip


def test_the_volume_keeps_a_response_while_the_proxy_is_down(
    compose: Compose, client: openai.OpenAI
) -> None:
    made = client.responses.create(model=MODEL_NAME, input="Say hello.", max_output_tokens=16)
    compose("rm", "--stop", "--force", "proxy")
    compose("up", "--wait")
    assert client.responses.retrieve(made.id).output_text == made.output_text


def test_kernels_run_in_the_proxys_container(compose: Compose) -> None:
    said = compose("exec", "-T", "proxy", "tool-emulator", "doctor")
    assert "kernel (bubblewrap)  works" in said


def test_only_the_proxy_can_be_reached_from_outside_and_only_with_a_key(
    compose: Compose, port: int
) -> None:
    published = [
        line.split()[0]
        for line in compose("ps", "--format", "{{.Service}} {{.Ports}}").splitlines()
        if "->" in line
    ]
    assert published == ["proxy"]
    with (
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="another") as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()
