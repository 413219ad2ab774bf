"""`python -m tests.support.image_engine COMMAND...`: run a command before a Docker engine that can build.

Its containers share this machine's network: the builds ask Debian's mirrors and, by way of loopback, this
machine's package index; what runs meets the tests' servers. The Dockerfiles' base image is pulled; where
no registry can be reached, this machine's distribution stands in under its name, and that is said.
"""

from __future__ import annotations

import contextlib
import re
import sys

from tests.support import compose_plugin, debian_images
from tests.support.debian_images import ROOT
from tests.support.docker_engine import imported, with_engine
from tests.support.package_index import package_index


def base_image() -> tuple[str, str]:
    """Name and tag of the one image from which all stages of the Dockerfiles start."""
    text = (ROOT / "Dockerfile").read_text() + (ROOT / "sandbox" / "Dockerfile").read_text()
    [base] = set(re.findall(r"^FROM ([^\s@]+)", text, re.MULTILINE))
    name, _, tag = base.partition(":")
    return name, tag


def main(command: list[str]) -> int:
    with package_index() as url:

        def images(host: str) -> dict[str, str]:
            _base(host)
            return {"BUILD_INDEX_URL": url, **_compose()}

        return with_engine(command, images, own_network=False)


def _base(host: str) -> None:
    name, tag = base_image()
    why = _pull(host, name, tag)
    if why:
        imported(host, debian_images.python(), name, tag)
        sys.stderr.write(
            f"{name}:{tag} cannot be pulled ({why}): {debian_images.release()} with its own python3,"
            " made by debootstrap, stands in for it\n"
        )


def _compose() -> dict[str, str]:
    try:
        return {"COMPOSE": "yes", **compose_plugin.variables()}
    except debian_images.Missing as why:
        sys.stderr.write(f"no Compose, whose tests are skipped: {why}\n")
        return {}


def _pull(host: str, name: str, tag: str) -> str:
    """Why this image cannot be pulled, or nothing."""
    import docker

    with contextlib.closing(docker.DockerClient(base_url=host, timeout=300)) as client:
        try:
            client.images.pull(name, tag)
        except docker.errors.DockerException as error:
            return str(error.explanation if hasattr(error, "explanation") else error).strip()
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
