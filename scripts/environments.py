"""Make the environments that targets of the Makefile need: `python3 scripts/environments.py NAME ...`

environments.toml says what they are made of. What is there is left alone: a file in each says what
was installed. Variables: VENV is the folder of the tests' environment, UV a path to uv, which installs in
half of the time of pip, but does not know its settings; without it uv is used if it is on PATH. Needs
Python 3.11 and no packages: it makes the first environment.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
import threading
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TABLE: dict[str, dict[str, Any]] = tomllib.loads(
    (ROOT / "scripts" / "environments.toml").read_text()
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LISTS: dict[str, list[str]] = (
    PROJECT["project"]["optional-dependencies"] | PROJECT["dependency-groups"]
)
VENV, UV = os.environ.get("VENV") or ".venv", os.environ.get("UV") or shutil.which("uv")
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
REPORT_SECONDS = 4.0
PIP_WITH_GROUPS = "pip>=25.1"
"""The first that reads dependency groups: `pip install --group examples`."""
NO_SERVICES = Path("/usr/sbin/policy-rc.d")
"""Debian starts services when it installs them, unless this file refuses."""


def main(names: list[str]) -> None:
    os.chdir(ROOT)
    os.environ["PATH"] += os.pathsep.join(
        ["", "/usr/sbin", "/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    )
    for name in names:
        if programs := TABLE[name].get("programs"):
            install_programs(programs, TABLE[name].get("optional"))
        if TABLE[name].keys() & {"arguments", "lists", "before"}:
            make_environment(name)


def make_environment(name: str) -> None:
    """Install what is not installed of environment ``name``."""
    entry = TABLE[name]
    folder = ROOT / entry.get("folder", VENV)
    packages = [
        *entry.get("arguments", []),
        *(one for each in entry.get("lists", []) for one in LISTS[each]),
    ]
    files = [word for word in packages if word.endswith(".txt")] + entry.get("inputs", [])
    wanted = json.dumps([entry, packages, *(Path(file).read_text() for file in files)])
    stamp = folder / f".installed-{name}"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    python = str(folder / "bin" / "python")
    if not (folder / "bin" / "pip").exists():  # the last thing that is made
        if version := entry.get("python"):
            command = [installed_python(version), "-m", "venv", "--clear", "--symlinks", folder]
            subprocess.run(command, check=True)
        else:
            venv.create(folder, with_pip=True, clear=True, symlinks=True)
        if not UV:
            subprocess.run([python, *PIP, "install", "--quiet", PIP_WITH_GROUPS], check=True)
    if before := entry.get("before"):
        subprocess.run(["bash", "-c", before], env=os.environ | {"python": python}, check=True)
    if packages:
        print(f"Installing {' '.join(packages)}", flush=True)
        install(python, packages)
    stamp.write_text(wanted)


def installed_python(version: str) -> str:
    """The path of an installed Python."""
    found = subprocess.run([ROOT / ".ci" / "pythons"], capture_output=True, text=True, check=False)
    pythons = dict(line.split(" ", 1) for line in found.stdout.splitlines())
    return pythons.get(version) or sys.exit(f"install first: Python {version}")


def install(python: str, packages: list[str]) -> None:
    """On a terminal pip shows its progress; elsewhere each package is a line, then every few seconds."""
    if UV:
        command = [UV, "pip", "install", "--quiet", "--compile-bytecode", "--python", python]
        subprocess.run([*command, *packages], check=True)
    elif sys.stdout.isatty():
        subprocess.run([python, *PIP, "install", *packages], check=True)
    else:
        command = [python, *PIP, "install", "--progress-bar", "off", *packages]
        ended = threading.Event()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pip:
            for line in pip.stdout or ():
                if line.startswith("Collecting "):
                    print(" ", line.split()[1], flush=True)
                elif line.startswith("Installing collected packages: "):
                    count = line.count(",") + 1
                    print(f"Installing {count} packages, which takes about a minute", flush=True)
                    folder = Path(python).parents[1]
                    threading.Thread(
                        target=report, args=(folder, count, ended), daemon=True
                    ).start()
        ended.set()
        if pip.returncode:
            sys.exit(pip.returncode)


def report(folder: Path, count: int, ended: threading.Event) -> None:
    """Print how many of ``count`` packages are installed, until it has ended: pip says nothing meanwhile."""
    earlier = len([*folder.glob("lib/*/site-packages/*.dist-info")])
    while not ended.wait(REPORT_SECONDS):
        done = len([*folder.glob("lib/*/site-packages/*.dist-info")]) - earlier
        print(f"  {max(done, 0)} of {count}", flush=True)


def install_programs(programs: dict[str, str], optional: str | None) -> None:
    """Install the Debian packages of missing ``programs``; on failure print ``optional``, or exit."""
    missing = [package for program, package in programs.items() if not is_installed(program)]
    if not missing:
        return
    print(f"Installing {' '.join(missing)}", flush=True)
    as_root = [] if os.getuid() == 0 else ["sudo", "-n"]
    environment = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive"]
    options = ["-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
    refuses = not NO_SERVICES.exists()
    if refuses:
        refuse = f"printf '#!/bin/sh\\nexit 101\\n' > {NO_SERVICES} && chmod +x {NO_SERVICES}"
        succeeds([*as_root, "sh", "-c", refuse])
    succeeds([*as_root, "apt-get", "update", "-qq"])
    installed = succeeds([*environment, "apt-get", "install", *options, *missing])
    if refuses:
        succeeds([*as_root, "rm", "-f", str(NO_SERVICES)])
    if not installed and optional:
        print(optional, file=sys.stderr)
    elif not installed:
        sys.exit(f"install first: {' '.join(missing)}")


def is_installed(program: str) -> bool:
    library, is_library, _ = program.partition(".so.")
    if is_library:
        return ctypes.util.find_library(library.removeprefix("lib")) is not None
    return shutil.which(program) is not None


def succeeds(command: list[str]) -> bool:
    quiet = subprocess.DEVNULL
    try:
        ended = subprocess.run(command, check=False, stdin=quiet, stdout=quiet, stderr=quiet)
    except OSError:  # no such program: not Debian
        return False
    return ended.returncode == 0


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
