"""The wheel, installed in an environment of its own: its commands, its page, its kernels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import openai
import pytest

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
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and the packages of this one.

    That the wheel requires what it imports is a test in `test_requirements.py`.
    """
    folder = tmp_path_factory.mktemp("installed")
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), ".")
    (wheel,) = folder.glob("*.whl")
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (packages,) = folder.glob("venv/lib/*/site-packages")
    shutil.copytree(
        sysconfig.get_path("purelib"), packages, copy_function=_link, dirs_exist_ok=True
    )
    install = ("install", "--quiet", "--no-compile", "--no-deps", str(wheel))
    pip("--python", str(python), *install)
    return python.parent


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def run(command: Path, *arguments: str, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [command, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


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
    serve = (str(installed / "tool-emulator"), "serve")
    options = ("--sandbox", "none", "--database", ":memory:")
    with ScriptedUpstream() as upstream:
        upstream.reply('```python\nget_weather(location="London")\n```')
        with (
            processes.proxy(
                upstream.base_url, tmp_path / "log", *options, command=serve, cwd=tmp_path
            ) as (_, url),
            openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
        ):
            completion = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Weather?"}], tools=[GET_WEATHER]
            )
        (call,) = completion.choices[0].message.tool_calls or ()
        assert (call.function.name, call.function.arguments) == (
            "get_weather", '{"location":"London"}',
        )  # fmt: skip
        assert "def get_weather(" in upstream.requests[0]["messages"][0]["content"]


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
