"""Hostile files that the host must copy: pipes, holes, links, odd names, false reports.

Each attempt is first made outside of a sandbox, where it succeeds: its failure inside would prove nothing
otherwise. In every case, ordinary files next to it are stored, and the container still works.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app import create_app
from emulator.settings.settings import Settings
from sandbox.engine import Limits
from sandbox.fences import probes
from sandbox.kernel.engine import KernelEngine
from sandbox.kernel.stub import STUB
from tests.interpreter.containers import Container
from tests.support.serving import serve

_PROBLEM = probes.problem()
pytestmark = pytest.mark.skipif(_PROBLEM is not None, reason=f"no sandbox for kernels: {_PROBLEM}")


@dataclass(frozen=True)
class Left:
    """What code leaves in its folder."""

    code: str
    """Run outside of a sandbox, it leaves `name` there."""
    name: str
    bytes: int | None = None
    """As large as this it is kept, if it is."""
    noted: bool = False
    """Whether the answer says that something was not kept."""


LONG = "n" * 255
LEFT = {
    "a pipe": Left("os.mkfifo('odd')", "odd"),
    "a socket": Left(
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('odd')", "odd"
    ),
    "a link to the machine's files": Left("os.symlink('/etc/passwd', 'odd')", "odd"),
    "a link to itself": Left("os.symlink('odd', 'odd')", "odd"),
    "a linked folder": Left("os.symlink('/etc', 'odd')", "odd"),
    "a folder without end": Left(
        "for _ in range(40):\n    os.mkdir('odd')\n    os.chdir('odd')\n"
        "open('deep', 'w').write('x')\nos.chdir('../' * 40)", "odd"
    ),
    "a hole of 1 TB": Left("open('odd', 'w').truncate(2**40)", "odd", 0),
    "a hole as large as the disk": Left(
        "open('odd', 'w').truncate(2**21)", "odd", noted=True
    ),
    "lines in a name": Left("open('a\\nb', 'w').write('x')", "a\nb", noted=True),
    "a terminal's commands in a name": Left(
        "open('\\x1b[2J', 'w').write('x')", "\x1b[2J", noted=True
    ),
    "a name of 255 bytes": Left(f"open('{LONG}', 'w').write('x')", LONG, 1),
    "a name that is no UTF-8": Left(
        "open(b'\\xff\\xfe', 'w').write('x')", "\udcff\udcfe", noted=True
    ),
    "a name like an option": Left("open('-rf', 'w').write('x')", "-rf", 1),
    "a name of blanks": Left("open(' ', 'w').write('x')", " ", 1),
    "a backslash in a name": Left("open('a\\\\b', 'w').write('x')", "a\\b", noted=True),
}  # fmt: skip


EMPTIED = f"""import os, shutil
stub = {STUB}
stub.files, stub.read = getattr(stub, "own", (stub.files, stub.read))
os.chdir("/mnt/data")
for entry in os.scandir(b"/mnt/data"):
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path)
    else:
        os.unlink(entry)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    settings = Settings(
        base_url="http://127.0.0.1:9/v1",
        database=":memory:",
        files_dir=str(tmp_path_factory.mktemp("files")),
        container_bytes=2**21,
        interpreter_seconds=30,
    )
    app = create_app(settings)
    with serve(app) as url:
        yield Container(url)
    app.extensions["emulator"].close()


@pytest.fixture
def container(shared: Container) -> Container:
    """A container as at its beginning: a kernel of its own for each test would take a minute."""
    report = shared.execute(EMPTIED)
    assert report["status"] == "Success", report["stderr"]
    assert shared.files() == {}
    return shared


@pytest.mark.parametrize("what", LEFT)
def test_without_a_sandbox_code_can_leave_each_hostile_file(tmp_path: Path, what: str) -> None:
    code = f"import os\n{LEFT[what].code}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert (tmp_path / LEFT[what].name).is_symlink() or (tmp_path / LEFT[what].name).exists()


@pytest.mark.parametrize("what", LEFT)
def test_a_hostile_file_is_stored_correctly_or_not_at_all(container: Container, what: str) -> None:
    leftover = LEFT[what]
    report = container.execute(f"import os\nopen('fine', 'w').write('y')\n{leftover.code}")
    stored = {"/mnt/data/fine": 1} | (
        {} if leftover.bytes is None else {f"/mnt/data/{leftover.name}": leftover.bytes}
    )
    assert {file["path"]: file["bytes"] for file in report["files"]} == stored
    assert {path: file["bytes"] for path, file in container.files().items()} == stored
    assert bool(report["notes"]) is leftover.noted
    for file in report["files"]:
        assert container.content(file["id"]) in (b"x", b"y", b"")
    assert container.execute("1 + 1")["result"] == "2"


@dataclass(frozen=True)
class Lie:
    """What a cell puts in the place of the functions by which the host asks for its files."""

    files: str = "lambda most: [['odd', 1, 1]]"
    read: str = "lambda path, start, size: 'eA=='"
    stored: dict[str, int] = field(default_factory=dict)


LIES = {
    "none: an ordinary file": Lie(stored={"/mnt/data/odd": 1}),
    **{
        f"the path {path!r}": Lie(files=f"lambda most: [[{path!r}, 1, 1]]")
        for path in ("../odd", "../../../../etc/cron.d/odd", "/etc/odd", "a/../../odd", "..", ".", "",
                     "a//b", "a/", "a\0b", "a\nb", "\udcff", "n" * 100_000, "a/" * 5000)
    },
    "a size of 1 TB": Lie(files="lambda most: [['odd', 2**40, 1]]"),
    "a size that no file has": Lie(files="lambda most: [['odd', 2**400, 1]]"),
    "a size below nothing": Lie(files="lambda most: [['odd', -2**40, 1]]"),
    "a size that is a word": Lie(files="lambda most: [['odd', 'x', 1]]"),
    "no list": Lie(files="lambda most: {'odd': 1}"),
    "a list of 300,000": Lie(files="lambda most: [[f'odd{n}', 2**40, 1] for n in range(300_000)]"),
    "a list of something else": Lie(files="lambda most: [1, None, []]"),
    "a list that raises": Lie(files="lambda most: 1 / 0"),
    "an end of the kernel": Lie(files="lambda most: os._exit(0)"),
    "content without end": Lie(read="lambda path, start, size: 'eHh4' * (size // 3)"),
    "more content than was asked for": Lie(read="lambda path, start, size: 'eHh4' * size"),
    "content that is no base64": Lie(read="lambda path, start, size: '%%'"),
    "content that is no text": Lie(read="lambda path, start, size: [1]"),
    "content that raises": Lie(read="lambda path, start, size: 1 / 0"),
}  # fmt: skip


def lying_code(lie: Lie) -> str:
    own = "stub.own = getattr(stub, 'own', (stub.files, stub.read))"
    return f"import os\nstub = {STUB}\n{own}\nstub.files = {lie.files}\nstub.read = {lie.read}"


def test_without_a_sandbox_a_cell_can_replace_the_functions_that_the_host_calls() -> None:
    """Nothing in a kernel keeps its code from them, so nothing that they say may be believed."""
    lie = Lie(files="lambda most: [['../odd', 1, 1]]")
    with (
        KernelEngine(Limits(seconds=30.0), place="none", warm=0) as engine,
        engine.notebook() as notebook,
    ):
        assert list(notebook.run(lying_code(lie)))
        assert [file.path for file in notebook.files()] == ["../odd"]
        assert notebook.read("/etc/shadow", 10) == b"x"


@pytest.mark.parametrize("what", LIES)
def test_a_cells_false_report_of_its_files_is_rejected(container: Container, what: str) -> None:
    lie = LIES[what]
    report = container.execute(lying_code(lie))
    assert {file["path"]: file["bytes"] for file in report["files"]} == lie.stored
    assert {path: file["bytes"] for path, file in container.files().items()} == lie.stored
    container.execute("1")  # its notes may say that the session was restarted
    assert container.execute("1 + 1")["result"] == "2"


def test_the_cells_after_a_file_whose_name_is_no_utf_8_run(tmp_path: Path) -> None:
    """Its name was stored with the state of the container's kernel, which failed from then on."""
    settings = Settings(
        base_url="http://127.0.0.1:9/v1",
        database=str(tmp_path / "d.sqlite"),
        files_dir=str(tmp_path / "files"),
    )
    app = create_app(settings)
    with serve(app) as url:
        container = Container(url)
        for code in ("open(b'\\xff', 'w').write('x')", "open('good', 'w').write('x')", "1"):
            report = container.execute(code)
            assert report["status"] == "Success", report
        assert [*container.files()] == ["/mnt/data/good"]
    app.extensions["emulator"].close()
