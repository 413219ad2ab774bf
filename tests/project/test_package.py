"""What `pip install .` gives, and the lists of requirements that it and the Makefile read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import openai
import pytest

import emulator
from emulator.upstream import local_model
from sandbox.fences import docker
from sandbox.kernel import gateway
from tests.support import processes
from tests.support.places import needs_bubblewrap
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "pyproject.toml").read_text()
PROJECT: dict[str, Any] = tomllib.loads(TEXT)
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
NO_INDEX = ("failed to establish a new connection", "name resolution", "network is unreachable")


def test_requirements_txt_is_the_packages_own_list() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == PROJECT["project"][
        "dependencies"
    ]


def test_the_list_of_the_kernels_image_is_the_extras_own() -> None:
    lines = (ROOT / "sandbox" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == EXTRAS["interpreter"]
    assert "COPY sandbox/requirements.txt" in (ROOT / "sandbox" / "Dockerfile").read_text()
    assert any(line.startswith("pytz") for line in lines), "pandas 3 no longer brings it"


@pytest.mark.parametrize("name", [*EXTRAS, *GROUPS])
def test_each_list_stands_as_the_makefile_looks_for_it(name: str) -> None:
    """Its stamps change with the lines between the list's name and its closing bracket."""
    found = re.findall(rf"^{name} = \[\n((?:    \"[^\"]+\",\n)+)\]$", TEXT, re.MULTILINE)
    assert [re.findall(r'"(.*)"', lines) for lines in found] == [{**EXTRAS, **GROUPS}[name]]


def test_a_package_in_two_lists_has_the_same_version_in_both() -> None:
    wanted: dict[str, set[str]] = {}
    for requirements in (PROJECT["project"]["dependencies"], *EXTRAS.values(), *GROUPS.values()):
        for requirement in requirements:
            name = re.split(r"[~=>\[]", requirement)[0]
            wanted.setdefault(name, set()).add(requirement)
    assert [each for each in wanted.values() if len(each) > 1] == []


def test_what_is_missing_is_told_by_the_requirement_of_its_extra() -> None:
    assert list(local_model.REQUIREMENTS) == EXTRAS["local"]
    assert [f'pip install "{one}"' for one in EXTRAS["docker"]] == [docker.INSTALL_FIX]
    assert [f'pip install "{one}"' for one in EXTRAS["gateway"]] == [gateway.INSTALL_FIX]
    assert " ".join(EXTRAS["local"]) in (ROOT / "docs" / "settings.md").read_text()


def test_each_python_that_the_package_claims_is_tested() -> None:
    claimed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', TEXT)
    tested = re.search(r"^PYTHONS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert tested
    assert claimed == tested[1].split()
    assert PROJECT["project"]["requires-python"] == f">={claimed[0]}"
    assert "test-pythons" in (ROOT / ".ci" / "run").read_text()


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
    """The programs of an environment that has the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), ".")
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    pip(
        "--python",
        str(folder / "venv/bin/python"),
        "install",
        "--quiet",
        "--no-compile",
        str(wheel),
    )
    return folder / "venv" / "bin"


def run(command: Path, *arguments: str, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [command, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", PROJECT["project"]["scripts"])
def test_the_installed_commands_tell_their_version(
    installed: Path, tmp_path: Path, name: str
) -> None:
    assert run(installed / name, "--version", cwd=tmp_path) == (
        f"tool-emulator {emulator.__version__}\n"
    )


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_installed_code_is_not_that_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    code = "import emulator, sandbox; print(emulator.__file__, sandbox.__file__)"
    for place in run(installed / "python", "-c", code, cwd=tmp_path).split():
        assert Path(place).is_relative_to(installed.parent)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["monty", "kernel"])
def test_the_installed_proxy_makes_a_tool_call_in_any_folder(
    installed: Path, tmp_path: Path, engine: str
) -> None:
    """The prompts come out of the wheel, and so does the stub that runs inside a kernel."""
    serve = (str(installed / "tool-emulator"), "serve")
    options = ("--engines", engine, "--sandbox", "none", "--store", ":memory:")
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


@pytest.mark.slow
@needs_bubblewrap
def test_kernels_of_an_installed_proxy_do_not_see_it(installed: Path, tmp_path: Path) -> None:
    """It lies among the packages that they may read; the fence against that turned them all off."""
    said = run(installed / "tool-emulator", "doctor", cwd=tmp_path)
    assert re.search(r"^kernel \(bubblewrap\) +works", said, re.MULTILINE), said
    assert re.search(r"^files +works", said, re.MULTILINE), said


SLOW = (
    "IPython",
    "datamodel_code_generator",
    "httpx2",
    "jupyter_client",
    "openai",
    "pydantic_monty",
)


def test_what_is_slow_to_import_is_imported_where_it_is_used() -> None:
    """Half of the time that `import app` took."""
    code = f"import app, sys; print([name for name in {SLOW} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


LOOK = """
import importlib.metadata, os
own = importlib.metadata.distribution("tool-use-api-emulator")
[sorted(os.listdir(own.locate_file(f"tool_use_api_emulator-{own.version}.dist-info"))),
 [each.name for each in importlib.metadata.distributions()].count(own.name)]
"""
IN_A_KERNEL = f"""
from sandbox.engine import Limits
from sandbox.kernel.engine import KernelEngine
with KernelEngine(Limits(seconds=60), warm=0) as engine, engine.session(frozenset()) as session:
    print(session.start({LOOK!r}).value)
"""


@needs_bubblewrap
@pytest.mark.slow
def test_kernels_of_an_installed_proxy_do_not_see_where_it_came_from(
    installed: Path, tmp_path: Path
) -> None:
    """pip writes the path or URL of what it installed."""
    assert (
        next(installed.parent.glob("lib/*/site-packages/tool_use*")) / "direct_url.json"
    ).exists()
    said = run(installed / "python", "-c", IN_A_KERNEL, cwd=tmp_path)
    assert said.strip() == "[['METADATA'], 1]"
