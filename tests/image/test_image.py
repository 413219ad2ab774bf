"""The images as the Dockerfiles make them: built, run and asked; `make test-image` starts an engine for it.

What runs is what the headers of these files and docs/deploy.md show; only the network is the machine's, so
that a container meets the tests' model.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest

from emulator import __version__
from sandbox.engine import Finished, Limits
from sandbox.kernel.engine import KernelEngine
from tests.image.docker_command import ROOT, docker
from tests.support.processes import free_port
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

if "BUILD_INDEX_URL" not in os.environ:
    pytest.skip("make test-image starts an engine for these", allow_module_level=True)

pytestmark = pytest.mark.timeout(1800)  # the first of these builds

FOR_KERNELS = [
    f"--security-opt={name}=unconfined" for name in ("seccomp", "apparmor", "systempaths")
]
"""What the Dockerfile says that Python kernels inside the container take."""
AS_IN_COMPOSE = [
    "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges",
    "--volume=/state",
]  # fmt: skip
"""What deploy/compose.yaml takes from it."""
OF_THE_BASE = {"pip", "setuptools", "wheel"}


@contextmanager
def running(image: str, upstream: ScriptedUpstream, volume: str) -> Iterator[openai.OpenAI]:
    """A client of a container that has become healthy, by the image's own check."""
    port, key = free_port(), "a-key-of-the-clients"
    variables = {
        "EMULATOR_PORT": str(port), "EMULATOR_CLIENT_KEYS": key, "EMULATOR_BASE_URL": upstream.base_url,
    }  # fmt: skip
    given = [part for name, value in variables.items() for part in ("--env", f"{name}={value}")]
    # The check is the image's, only its next time comes sooner.
    container = docker(
        "run", "--detach", "--network=host", "--health-interval=1s", "--volume", f"{volume}:/state",
        *given, image,
    ).strip()  # fmt: skip
    try:
        _wait_until_healthy(container)
        with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key) as client:
            yield client
        docker("stop", container)
    finally:
        docker("rm", "--force", container)


def _wait_until_healthy(container: str) -> None:
    until = time.monotonic() + 120
    while (health := docker("inspect", "--format={{.State.Health.Status}}", container).strip()) != (
        "healthy"
    ):
        assert health == "starting", docker("logs", container)
        assert time.monotonic() < until, docker("logs", container)
        time.sleep(0.2)


@pytest.fixture
def volume() -> Iterator[str]:
    name = f"state-{secrets.token_hex(4)}"
    docker("volume", "create", name)
    yield name
    docker("volume", "rm", name)


def test_the_image_runs_as_a_user_who_cannot_change_its_code(image: str) -> None:
    shell = ("run", "--rm", "--network=none", "--entrypoint=sh", image, "-c")
    assert docker(*shell, "id -u").strip() == "10001"
    code = '"$(python -c "import emulator; print(emulator.__path__[0])")"'
    assert "Permission denied" in docker(*shell, f"touch {code}/settings.py", code=1)
    assert docker(*shell, "touch /state/anything").strip() == ""


def test_no_build_file_or_variable_stays_in_the_images(image: str, kernel_image: str) -> None:
    for name in (image, kernel_image):
        config = json.loads(docker("inspect", name))[0]["Config"]
        assert [line for line in config["Env"] if line.startswith(("PIP_", "HTTP"))] == []
        left = "ls -A /tmp /root /src 2>/dev/null | grep -E 'requirements|pip|\\.whl' || true"
        found = docker("run", "--rm", "--network=none", "--entrypoint=sh", name, "-c", left)
        assert found.replace("requirements.lock", "").strip() == ""


def test_the_image_has_the_version_of_this_checkout(image: str) -> None:
    said = docker("run", "--rm", "--network=none", image, "--version")
    assert said.strip() == f"tool-emulator {__version__}"


def test_the_image_contains_the_packages_that_replicas_need(image: str) -> None:
    """docs/scaling.md: a gateway's websockets, PostgreSQL, S3 through fsspec."""
    opened = "import websockets, s3fs, psycopg; print(psycopg.__name__)"
    said = docker("run", "--rm", "--network=none", "--entrypoint=python", image, "-c", opened)
    assert said.strip() == "psycopg"


def test_the_doctor_reports_that_programs_work_and_kernels_need_options(image: str) -> None:
    said = docker("run", "--rm", "--network=none", image, "doctor", code=1)
    assert re.search(r"^programs\s+works", said, re.MULTILINE), said


@pytest.mark.parametrize("confined", [[], AS_IN_COMPOSE], ids=["alone", "as in Compose"])
def test_with_the_options_of_its_header_kernels_run_in_the_image(
    image: str, confined: list[str]
) -> None:
    header = (ROOT / "Dockerfile").read_text()
    assert [option for option in FOR_KERNELS if option.replace("=", " ", 1) not in header] == []
    said = docker("run", "--rm", "--network=none", *FOR_KERNELS, *confined, image, "doctor")
    assert re.search(r"^kernel.*\s+works", said, re.MULTILINE), said


def test_the_image_does_not_start_without_client_keys(image: str) -> None:
    said = docker("run", "--rm", "--network=none", image, code=2)
    assert "EMULATOR_CLIENT_KEYS" in said


def test_the_image_answers_a_tool_call(image: str, volume: str, upstream: ScriptedUpstream) -> None:
    upstream.reply("```tool_code\nget_weather(location='London')\n```")
    with running(image, upstream, volume) as client:
        message = client.chat.completions.create(
            model="scripted", tools=[GET_WEATHER], messages=[{"role": "user", "content": "London?"}]
        )
    [call] = message.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_weather", {"location": "London"},
    )  # fmt: skip


def test_responses_and_files_survive_the_container(
    image: str, volume: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("It rains.")
    with running(image, upstream, volume) as client:
        made = client.responses.create(model="scripted", input="London?")
        file = client.files.create(file=("a.txt", b"up"), purpose="user_data")
    with running(image, upstream, volume) as client:
        assert client.responses.retrieve(made.id).output_text == "It rains."
        assert client.files.content(file.id).read() == b"up"


def test_a_cell_with_numpy_runs_in_the_kernels_image(kernel_image: str) -> None:
    roomy = Limits(seconds=60.0, memory=2**30)
    with (
        KernelEngine(roomy, place="docker", image=kernel_image, warm=0) as engine,
        engine.session(frozenset()) as session,
    ):
        ended = session.start("import numpy\nint((numpy.arange(10) ** 2).sum())")
    assert ended == Finished("", 285, "285")


def test_the_bill_of_materials_names_what_is_in_the_image(image: str) -> None:
    """`make sbom` has written it, and checked it against CycloneDX's schema."""
    bill = json.loads((ROOT / "build" / "sbom.cdx.json").read_text())
    listed = {(each["name"], each["version"]) for each in bill["components"]}
    freeze = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"
    said = docker("run", "--rm", "--network=none", "--entrypoint=python", image, "-c", freeze)
    installed = {tuple(line.split()) for line in said.strip().splitlines()}
    own = ("tool-use-api-emulator", __version__)
    assert own in installed
    assert bill["metadata"]["component"]["name"] == own[0]
    named = {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in installed - {own}}
    assert {pair for pair in named if pair[0] not in OF_THE_BASE} - listed == set()
    assert len(named & listed) > 50
