"""The wheel, in an environment with what it requires: its commands, its page, its kernels."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import openai
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import emulator
from tests.support import processes
from tests.support.places import needs_bubblewrap
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

ROOT = Path(__file__).parents[2]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
NO_INDEX = ("failed to establish a new connection", "name resolution", "network is unreachable")
REPOSITORY = "https://git.example/owner/name"


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    environment = {**os.environ, "REPOSITORY_URL": REPOSITORY}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode and any(words in done.stderr.lower() for words in NO_INDEX):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), ".")
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and its kernels."""
    return install(wheel, tmp_path_factory.mktemp("installed"), "kernels")


@pytest.fixture(scope="module")
def without_kernels(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("without"))


def install(wheel: Path, folder: Path, *extras: str) -> Path:
    """Make an environment of the wheel, and of the packages of this one that it requires."""
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (packages,) = folder.glob("venv/lib/*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    for name in required(wheel, extras):
        for file in distribution(name).files or ():
            if ".." not in file.parts and (here / file).exists():
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                _link(here / file, packages / file)
    arguments = ("install", "--quiet", "--no-compile", "--no-deps", str(wheel))
    pip("--python", str(python), *arguments)
    return python.parent


def required(wheel: Path, extras: Sequence[str]) -> set[str]:
    """The names of all packages that the wheel requires, directly or not."""
    (metadata,) = (each for each in zipfile.Path(wheel).iterdir() if "dist-info" in each.name)
    found: set[tuple[str, str]] = set()
    waiting: list[tuple[Distribution, str]]
    waiting = [(PathDistribution(metadata), extra) for extra in ("", *extras)]
    while waiting:
        requiring, wanted = waiting.pop()
        for requirement in map(Requirement, requiring.requires or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": wanted}):
                continue
            for extra in ("", *requirement.extras):
                if (key := (canonicalize_name(requirement.name), extra)) not in found:
                    found.add(key)
                    waiting.append((distribution(requirement.name), extra))
    return {name for name, _ in found}


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def run(command: Path, *arguments: str, cwd: Path, code: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [command, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


@contextmanager
def serving(
    installed: Path, upstream: ScriptedUpstream, folder: Path, *options: str
) -> Iterator[tuple[processes.Process, openai.OpenAI]]:
    command = (str(installed / "tool-emulator"), "serve", "--database", ":memory:")
    with (
        processes.proxy(
            upstream.base_url, folder / "log", *options, command=command, cwd=folder
        ) as (proxy, url),
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
    ):
        yield proxy, client


def weather_call(client: openai.OpenAI) -> tuple[str, str]:
    completion = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Weather?"}], tools=[GET_WEATHER]
    )
    (call,) = completion.choices[0].message.tool_calls or ()
    return call.function.name, call.function.arguments


def test_only_the_extra_of_kernels_requires_jupyters_packages(wheel: Path) -> None:
    packages = {"ipykernel", "jupyter-client", "pyzmq"}
    assert packages.isdisjoint(required(wheel, []))
    assert packages <= required(wheel, ["kernels"])


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_installed_commands_print_their_version(
    installed: Path, tmp_path: Path, name: str
) -> None:
    assert run(installed / name, "--version", cwd=tmp_path) == (
        f"tool-emulator {emulator.__version__}\n"
    )


def test_the_page_of_the_package_links_to_the_repository_that_built_it(installed: Path) -> None:
    (metadata,) = installed.parent.glob("lib/*/site-packages/tool_use*/METADATA")
    text = metadata.read_text()
    links = re.findall(r"\]\(([^)#]+)", text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith("https://")] == []
    at = f"v{emulator.__version__}"
    assert f"]({REPOSITORY}/raw/{at}/docs/inspector-program.png)" in text
    assert f"]({REPOSITORY}/blob/{at}/docs/quickstart.md)" in text
    assert f"Project-URL: Homepage, {REPOSITORY}\n" in text


def test_the_installed_code_is_not_that_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    code = "import emulator, sandbox; print(emulator.__file__, sandbox.__file__)"
    for place in run(installed / "python", "-c", code, cwd=tmp_path).split():
        assert Path(place).is_relative_to(installed.parent)


def test_the_installed_proxy_makes_a_tool_call_in_any_folder(
    installed: Path, tmp_path: Path
) -> None:
    """The prompts come out of the wheel, and so does the code that runs in a program's child."""
    with ScriptedUpstream() as upstream:
        upstream.reply('```python\nget_weather(location="London")\n```')
        with serving(installed, upstream, tmp_path, "--sandbox", "none") as (_, client):
            assert weather_call(client) == ("get_weather", '{"location":"London"}')
        assert "def get_weather(" in upstream.requests[0]["messages"][0]["content"]


INTERPRETER = {"type": "code_interpreter", "container": {"type": "auto"}}
KERNELS = "the ipykernel library is not installed", "pip install 'tool-use-api-emulator[kernels]'"


def test_a_proxy_without_the_kernels_packages_makes_calls_and_names_the_command_for_cells(
    without_kernels: Path, tmp_path: Path
) -> None:
    assert {"ipykernel", "zmq"}.isdisjoint(
        each.name for each in without_kernels.parent.glob("lib/*/site-packages/*")
    )
    with (
        ScriptedUpstream() as upstream,
        serving(without_kernels, upstream, tmp_path, "--sandbox", "none") as (proxy, client),
    ):
        (line,) = (each for each in proxy.wait_for("Try:").splitlines() if " off" in each)
        warning = json.loads(line)
        assert (warning["event"], warning["reason"], warning["fix"]) == (
            "code interpreter off", *KERNELS,
        )  # fmt: skip
        upstream.reply("```tool_code\nget_weather(location='lon'.title() + 'don')\n```")
        assert weather_call(client) == ("get_weather", '{"location":"London"}')
        upstream.reply("```python\nprint(6 * 7)\n```")
        with pytest.raises(openai.InternalServerError) as caught:
            client.responses.create(model="m", input="6 * 7?", tools=[INTERPRETER])
    assert (caught.value.status_code, caught.value.code) == (503, "sandbox_failed")
    assert caught.value.message.endswith(f"The code could not be run: {'; '.join(KERNELS)}")


def test_the_doctor_of_a_proxy_without_the_kernels_packages_names_the_command(
    without_kernels: Path, tmp_path: Path
) -> None:
    said = run(without_kernels / "tool-emulator", "doctor", cwd=tmp_path, code=1)
    reason, fix = KERNELS
    assert re.search(
        rf"^kernel \(bubblewrap\) +OFF +{reason}\n +fix: {re.escape(fix)}$", said, re.MULTILINE
    )
    assert re.search(r"^programs +works", said, re.MULTILINE), said


@needs_bubblewrap
def test_kernels_of_an_installed_proxy_do_not_see_the_package(
    installed: Path, tmp_path: Path
) -> None:
    """It lies among the packages that they may read; the fence against that turned them all off."""
    said = run(installed / "tool-emulator", "doctor", cwd=tmp_path)
    assert re.search(r"^kernel \(bubblewrap\) +works", said, re.MULTILINE), said
    assert re.search(r"^files +works", said, re.MULTILINE), said


LOOK = """
import importlib.metadata, os
own = importlib.metadata.distribution("tool-use-api-emulator")
[sorted(os.listdir(own.locate_file(f"tool_use_api_emulator-{own.version}.dist-info"))),
 [each.name for each in importlib.metadata.distributions()].count(own.name)]
"""
IN_A_KERNEL = f"""
from sandbox.engine import Limits
from sandbox.kernel.engine import KernelEngine
with KernelEngine(Limits(seconds=60), warm=0) as engine, engine.notebook() as notebook:
    print(list(notebook.run({LOOK!r}))[-1].value)
"""


@needs_bubblewrap
def test_kernels_of_an_installed_proxy_do_not_see_where_it_came_from(
    installed: Path, tmp_path: Path
) -> None:
    """pip writes the path or URL of what it installed."""
    assert (
        next(installed.parent.glob("lib/*/site-packages/tool_use*")) / "direct_url.json"
    ).exists()
    said = run(installed / "python", "-c", IN_A_KERNEL, cwd=tmp_path)
    assert said.strip() == "[['METADATA'], 1]"
