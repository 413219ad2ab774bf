"""`docker ...` as a user types it, before the engine that the tests were started with."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def docker(
    *arguments: str, code: int = 0, env: Mapping[str, str] | None = None, stdin: str = ""
) -> str:
    """What `docker ...` prints, on both its outputs."""
    done = subprocess.run(
        ["docker", *arguments],
        check=False,
        input=stdin,
        capture_output=True,
        text=True,
        env=os.environ | (env or {}),
    )
    assert done.returncode == code, f"docker {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def index_argument() -> str:
    """The build argument that names the package index of this machine."""
    return f"PIP_INDEX_URL={os.environ['BUILD_INDEX_URL']}"


def without_digest(text: str) -> str:
    """Names of images without the digests, which a substitute image cannot have."""
    return re.sub(r"@sha256:[0-9a-f]{64}", "", text)


def built(name: str, *more: str, context: Path = ROOT, dockerfile: str = "Dockerfile") -> str:
    """Build an image; its name."""
    options = ("--network=host", "--build-arg", index_argument(), "--tag", name, *more)
    text = without_digest((context / dockerfile).read_text())
    docker("build", *options, "--file", "-", str(context), stdin=text)
    return name


def pulled_or_built(name: str, context: Path, *more: str) -> str:
    """The name of an image that is there: the registry's, else its substitute."""
    pulled = subprocess.run(
        ["docker", "pull", "--quiet", name],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    return built(without_digest(name), *more, context=context) if pulled.returncode else name
