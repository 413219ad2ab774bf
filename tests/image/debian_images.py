"""Images for the tests' Docker engine, made of a Debian or Ubuntu as apt knows it here, and kept in ~/.cache.

``kernels`` is an image in which kernels run. ``python`` replaces the base image of the Dockerfiles
where no image registry can be reached: the distribution's own python3 and pip, under that image's name.
Knows nothing of engines.
"""

from __future__ import annotations

import hashlib
import inspect
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

WANTED = ("ipykernel", "numpy", "matplotlib")
"""What of the requirements the kernels' image has."""
SUPERFLUOUS = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/cache/apt",
    "var/lib/apt/lists",
)
ROOT = Path(__file__).parents[2]
CACHE = Path("~/.cache/tool-use-api-emulator").expanduser()


class Missing(Exception):
    """What the tests need cannot be had here; the message says why."""


def kernels() -> Path:
    """The files of an image for kernels, as a tar archive."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = [
        line for line in listed["optional-dependencies"]["interpreter"] if line.startswith(WANTED)
    ]
    return _cached("kernel-image", pinned, _with_packages)


def python() -> Path:
    """The files of an image that has ``python`` and ``pip``, as a tar archive."""
    return _cached("python-image", ["python3-pip", "ca-certificates"], _with_pip)


def release() -> str:
    """The code name of this machine's distribution."""
    facts = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    return facts.get("VERSION_CODENAME", "").strip('"')


def run(*command: str) -> str:
    """What a command prints.

    Raises:
        Missing: it failed; its last line says how.
    """
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Missing(f"{command[0]} fails: {words[-1]}")
    return done.stdout


def _cached(name: str, added: list[str], build: Callable[[list[str], Path], None]) -> Path:
    """The archive of a root that ``build`` made, made anew only for other ingredients."""
    recipe = "\n".join([release(), *added, *SUPERFLUOUS, *map(inspect.getsource, (build, _debian))])
    archive = CACHE / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.tar"
    if archive.exists():
        return archive
    CACHE.mkdir(parents=True, exist_ok=True)
    for older in CACHE.glob(f"{name}-*"):
        older.unlink()
    with tempfile.TemporaryDirectory(prefix="image-", dir=CACHE) as folder:
        root = Path(folder) / "root"
        build(added, root)
        for path in SUPERFLUOUS:
            shutil.rmtree(root / path, ignore_errors=True)
        unfinished = Path(folder) / "image.tar"
        run("tar", "-C", str(root), "-cf", str(unfinished), ".")
        unfinished.rename(archive)
    return archive


def _with_packages(requirements: list[str], root: Path) -> None:
    version = _debian(root, "python3")
    packages = root / f"usr/local/lib/python{version}/dist-packages"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    only = ("--python-version", version, "--only-binary=:all:")
    run(*pip, "--target", str(packages), *only, *requirements)


def _with_pip(packages: list[str], root: Path) -> None:
    version = _debian(root, "python3", *packages)
    # The image of this name has no other Python than its own: `python`, and a pip that may install.
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    (root / f"usr/lib/python{version}/EXTERNALLY-MANAGED").unlink(missing_ok=True)


def _debian(root: Path, *packages: str) -> str:
    """Make a root of this distribution with these packages; the version of its python3."""
    suite = release()
    listed = run(
        "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
        f"Release: {suite}", "Component: main",
    ).split()  # fmt: skip
    if not listed:
        raise Missing(f"apt names no source of {suite}")
    included = f"--include={','.join(packages)}"
    run("debootstrap", "--variant=minbase", included, suite, str(root), listed[0])
    return next((root / "usr/bin").glob("python3.*")).name.removeprefix("python")
