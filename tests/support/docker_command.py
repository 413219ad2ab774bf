"""`docker ...` as a user types it, before the engine that the tests were started with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def docker(*arguments: str, code: int = 0, env: Mapping[str, str] | None = None) -> str:
    """What `docker ...` prints, on both its outputs."""
    done = subprocess.run(
        ["docker", *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | (env or {}),
    )
    assert done.returncode == code, f"docker {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def index_argument() -> str:
    """The build argument that names the package index of this machine."""
    return f"PIP_INDEX_URL={os.environ['BUILD_INDEX_URL']}"


def built(name: str, *more: str, context: Path = ROOT) -> str:
    """Build an image; its name."""
    index = ("--build-arg", index_argument())
    docker("build", "--network=host", *index, "--tag", name, *more, str(context))
    return name


def pulled_or_built(name: str, context: Path, *more: str) -> None:
    """Have an image of this name: its registry's, else the one that stands in for it."""
    pulled = subprocess.run(
        ["docker", "pull", "--quiet", name],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    if pulled.returncode:
        built(name, *more, context=context)
