"""The lists of requirements agree with one another, and what is installed is pinned."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from emulator.upstream import local_model
from sandbox.kernel.places import PLACES

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
PINNED = re.compile(r"^([a-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
# Modules without a requirement: ours, those for type checkers, those that a requirement hands out in its API.
NOT_REQUIRED = {"emulator", "sandbox", "_typeshed"}
NOT_REQUIRED |= {
    "IPython",
    "markupsafe",
    "mcp_types",
    "pydantic_core",
    "traitlets",
    "werkzeug",
    "zmq",
}
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
ENVIRONMENTS: dict[str, dict[str, Any]] = tomllib.loads(
    (ROOT / "scripts" / "environments.toml").read_text()
)


def test_requirements_txt_is_the_packages_own_list_and_that_of_kernels() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        *PROJECT["project"]["dependencies"],
        *EXTRAS["kernels"],
    ]


def test_the_list_of_the_kernels_image_is_the_extras_own() -> None:
    lines = (ROOT / "sandbox" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == EXTRAS["interpreter"]
    assert "COPY sandbox/requirements.txt" in (ROOT / "sandbox" / "Dockerfile").read_text()
    assert any(line.startswith("pytz") for line in lines), "pandas 3 no longer brings it"


def test_every_environment_is_made_of_lists_and_files_that_exist() -> None:
    for name, entry in ENVIRONMENTS.items():
        assert set(entry.get("lists", [])) <= {*EXTRAS, *GROUPS}, name
        files = [word for word in entry.get("arguments", []) if word.endswith(".txt")]
        assert all((ROOT / file).is_file() for file in files + entry.get("inputs", [])), name


def test_every_environment_is_needed_by_a_target_and_none_is_missing() -> None:
    assert set(re.findall(r"(?<![.v])\benv-([a-z-]+)", (ROOT / "Makefile").read_text())) == set(
        ENVIRONMENTS
    )


def test_a_package_in_two_lists_has_the_same_version_in_both() -> None:
    wanted: dict[str, set[str]] = {}
    for requirements in (PROJECT["project"]["dependencies"], *EXTRAS.values(), *GROUPS.values()):
        for requirement in requirements:
            name = re.split(r"[~=>\[]", requirement)[0]
            wanted.setdefault(name, set()).add(requirement)
    assert [each for each in wanted.values() if len(each) > 1] == []


def test_messages_about_a_missing_package_name_the_requirement_of_its_extra() -> None:
    assert list(local_model.REQUIREMENTS) == EXTRAS["local"]
    for name in ("docker", "gateway"):
        listed = " ".join(f'"{one}"' for one in EXTRAS[name])
        assert PLACES[name].install == f"pip install {listed}"
    assert " ".join(EXTRAS["local"]) in (ROOT / "docs" / "settings.md").read_text()


def locked() -> dict[str, str]:
    return dict(PINNED.findall((ROOT / "requirements.lock").read_text()))


def test_every_requirement_is_locked_in_a_version_that_fits() -> None:
    """After a change of requirements.txt: `make lock`. The image has some extras besides."""
    versions = locked()
    of_image = re.search(r"^IMAGE_EXTRAS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert of_image, "the Makefile names the extras of the image"
    names = of_image[1].split()
    assert {"gateway", "shared"} <= set(names), "what several replicas need"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    for line in [*lines, *(line for name in names for line in extras[name])]:
        if line and not line.startswith("#"):
            wanted = Requirement(line)
            assert wanted.specifier.contains(versions[wanted.name]), line


def test_every_locked_version_has_its_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text()
    pieces = re.split(r"\n(?=[a-z0-9])", text.strip())
    assert len(pieces) == len(PINNED.findall(text)) > 50
    assert [piece for piece in pieces if "--hash=sha256:" not in piece] == []
    assert "://" not in text


def test_the_image_installs_what_is_locked() -> None:
    assert "--require-hashes -r /tmp/requirements.lock" in (ROOT / "Dockerfile").read_text()


def test_each_image_is_pinned() -> None:
    files = [ROOT / "Dockerfile", ROOT / "sandbox/Dockerfile", *(ROOT / "deploy").rglob("*.yaml")]
    named = [
        name
        for file in files
        for name in re.findall(r"^(?:FROM|\s+image:) (\S+)", file.read_text(), re.MULTILINE)
        if name != "tool-use-api-emulator"  # built from this checkout
    ]
    pinned = re.compile(r".+@sha256:[0-9a-f]{64}|elyra/enterprise-gateway:\d+\.\d+\.\d+")
    assert len(named) == 6
    assert [name for name in named if not pinned.fullmatch(name)] == []


SLOW = (
    "IPython",
    "datamodel_code_generator",
    "httpx2",
    "jupyter_client",
    "openai",
)


def test_slow_packages_are_imported_only_where_they_are_used() -> None:
    """Half of the time that `import app` took."""
    code = f"import app, sys; print([name for name in {SLOW} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_package_requires_every_package_that_it_imports() -> None:
    """Other packages of this environment, or what a requirement requires in turn, are no promise."""
    declared = [
        *PROJECT["project"]["dependencies"],
        *(one for list_ in EXTRAS.values() for one in list_),
    ]
    required = {canonicalize_name(Requirement(line).name) for line in declared}
    known = packages_distributions()
    undeclared = set()
    for file in [*(ROOT / "emulator").rglob("*.py"), *(ROOT / "sandbox").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for top in {name.partition(".")[0] for name in names}:
                if top in sys.stdlib_module_names or top in NOT_REQUIRED:
                    continue
                if not required & {canonicalize_name(name) for name in known.get(top, [top])}:
                    undeclared.add(f"{file.relative_to(ROOT)}: {top}")
    assert undeclared == set()
