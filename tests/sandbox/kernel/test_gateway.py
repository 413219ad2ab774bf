"""Kernels on a real Jupyter gateway on loopback.

`make test-gateway` installs a Kernel Gateway, `make test-enterprise-gateway` an Enterprise Gateway.
"""

import base64
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from emulator.interpreter import doctor
from emulator.interpreter.engines import InterpreterEngines
from emulator.settings.settings import Settings
from sandbox.engine import Finished, Limits, Paused
from sandbox.errors import (
    ProgramFailed,
    SandboxDied,
    SandboxTimeout,
    SandboxUnavailable,
)
from sandbox.kernel.engine import KernelEngine
from sandbox.kernel.gateway import Gateway
from sandbox.kernel.notebook import KernelFile
from sandbox.outputs import Displayed, Printed
from tests.conftest import StartProxy
from tests.support import gateways
from tests.support.cells import cells
from tests.support.processes import wait_until

if not gateways.COMMAND:
    pytest.skip("no gateway to test against: `make test-gateway`", allow_module_level=True)

LIMITS = Limits(seconds=3.0, output=10_000, pauses=5)
TOKEN = secrets.token_hex(16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that the gateway and its kernels write."""
    return tmp_path_factory.mktemp("gateway")


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Gateway]:
    with gateways.running(folder, TOKEN) as url:
        yield Gateway(url, TOKEN)


def place(gateway: Gateway) -> dict[str, Any]:
    return {"place": "gateway", **asdict(gateway)}


@pytest.fixture(scope="module")
def engine(gateway: Gateway) -> Iterator[KernelEngine]:
    with KernelEngine(LIMITS, warm=1, **place(gateway)) as opened:
        yield opened


@pytest.fixture(scope="module")
def notebooks(gateway: Gateway) -> Iterator[KernelEngine]:
    with KernelEngine(Limits(seconds=10.0), warm=0, **place(gateway)) as opened:
        yield opened


def test_a_cell_pauses_and_resumes(engine: KernelEngine) -> None:
    with cells(engine, frozenset({"ask"}), "def twice(x): return 2 * x") as session:
        assert session.start("x = ask('Oslo', days=[1])\nprint(x['t'])\ntwice(x['t'])") == Paused(
            "ask", ("Oslo",), {"days": [1]}, 1
        )
        assert session.resume({"t": 21}) == Finished("21\n", 42, "42")
        assert session.start("x") == Finished("", {"t": 21}, "{'t': 21}")


ENDS = {
    "an error": ("1 / 0", ProgramFailed),
    "an endless loop": ("while True: pass", SandboxTimeout),
    "a loop that will not be interrupted": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", SandboxTimeout,
    ),
    "printing without end": ("while True: print('x' * 1000)", SandboxTimeout),
    "its own end": ("import os\nos._exit(1)", SandboxDied),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDS)
def test_a_cell_raises_the_same_errors_as_in_a_local_kernel(
    engine: KernelEngine, what: str
) -> None:
    source, expected = ENDS[what]
    with pytest.raises(expected), cells(engine) as session:
        session.start(source)
    with cells(engine) as session:
        assert session.start("1") == Finished("", 1, "1")


def test_no_kernel_stays_at_the_gateway(gateway: Gateway) -> None:
    def kernels() -> set[str]:
        listed = httpx2.get(f"{gateway.url}/api/kernels", headers=gateway.headers()).json()
        return {each["id"] for each in listed}

    before = kernels()
    with (
        KernelEngine(LIMITS, warm=0, **place(gateway)) as engine,
        cells(engine, frozenset({"ask"})) as session,
    ):
        session.start("ask()")
        assert len(kernels() - before) == 1
    assert kernels() - before == set()


def test_a_wrong_token_is_reported(gateway: Gateway) -> None:
    wrong = Gateway(gateway.url, "guess")
    problem = wrong.problem()
    assert problem is not None
    assert "401" in problem.reason
    with (
        KernelEngine(LIMITS, warm=0, **place(wrong)) as engine,
        pytest.raises(SandboxUnavailable, match="401"),
    ):
        cells(engine).__enter__()


def test_an_unknown_kernel_is_reported(gateway: Gateway) -> None:
    problem = Gateway(gateway.url, TOKEN, kernel="cobol").problem()
    assert problem is not None
    assert (problem.reason, problem.fix) == (
        "the gateway has no kernel 'cobol'", "use one of python3",
    )  # fmt: skip
    assert gateway.problem() is None


def test_an_unreachable_gateway_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = Gateway(f"http://127.0.0.1:{free.getsockname()[1]}")
    problem = nobody.problem()
    assert problem is not None
    assert problem.fix == "check the gateway's URL and token, and that it runs"


def test_the_settings_lead_to_the_gateway(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    there = Settings(
        sandbox="gateway",
        gateway_url=gateway.url, gateway_token=SecretStr(TOKEN),
    )  # fmt: skip
    engine = InterpreterEngines(there)("1g")
    with cells(engine) as session:
        assert session.start("6 * 7") == Finished("", 42, "42")
    engine.close()
    assert doctor.main(there) == 0
    assert "offers python3; its fences are its own" in capsys.readouterr().out
    astray = there.model_copy(update={"gateway_kernel": "cobol"})
    with pytest.raises(SandboxUnavailable, match="no kernel 'cobol'"):
        InterpreterEngines(astray)("1g").check()
    assert doctor.main(astray) == 1


class Picture:
    """A cell that displays one, and what must come of it."""

    png = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    cell = (
        "class Picture:\n"
        "    def __repr__(self): return 'a picture'\n"
        f"    def _repr_png_(self): return __import__('base64').b64decode({png!r})\n"
        "display(Picture())"
    )
    shown = Displayed({"text/plain": "a picture", "image/png": png})


def test_a_notebook_keeps_its_state_and_shows_things(notebooks: KernelEngine) -> None:
    with notebooks.notebook() as notebook:
        assert list(notebook.run("x = 20\nprint('set')")) == [
            Printed("set\n"), Finished("set\n"),
        ]  # fmt: skip
        assert list(notebook.run("x + 1")) == [
            Displayed({"text/plain": "21"}, is_result=True), Finished("", 21, "21"),
        ]  # fmt: skip
        assert next(notebook.run(Picture.cell)) == Picture.shown


def test_a_notebook_calls_and_gets_the_result(notebooks: KernelEngine) -> None:
    with notebooks.notebook() as notebook:
        notebook.offer(frozenset({"ask"}))
        assert list(notebook.run("y = ask(6)")) == [Paused("ask", (6,), {}, 1)]
        assert list(notebook.resume_with([42])) == [Finished()]
        assert list(notebook.run("y"))[-1] == Finished("", 42, "42")


def test_a_notebooks_files_are_written_and_read(notebooks: KernelEngine) -> None:
    large = bytes(range(256)) * 8192  # more than one message takes
    with notebooks.notebook() as notebook:
        notebook.write("in/data.bin", large)
        assert list(notebook.run("open('out.txt', 'w').write('x' * 3)"))[-1] == Finished("", 3, "3")
        match notebook.files():
            case [KernelFile("in/data.bin", 2097152), KernelFile("out.txt", 3)]:
                pass
            case others:
                raise AssertionError(others)
        assert (notebook.read("in/data.bin", len(large)), notebook.read("out.txt", 3)) == (
            large, b"xxx",
        )  # fmt: skip
        notebook.remove("in/data.bin")
        assert [seen.path for seen in notebook.files()] == ["out.txt"]


def test_each_kernel_has_its_own_folder_until_it_ends(
    notebooks: KernelEngine, folder: Path
) -> None:
    with notebooks.notebook() as one, notebooks.notebook() as other:
        one.write("mine", b"x")
        assert other.files() == []
        steps = [list(each.run("import os\nos.getcwd()"))[-1] for each in (one, other)]
        places = {str(step.value) for step in steps if isinstance(step, Finished)}
        assert len(places) == 2
        assert all(Path(place).parent == folder for place in places)
    wait_until(lambda: not any(Path(place).exists() for place in places))


def test_an_interrupt_keeps_a_notebooks_state(notebooks: KernelEngine) -> None:
    with notebooks.notebook() as notebook:
        list(notebook.run("x = 7"))
        outputs = notebook.run("print('begun')\nwhile True: pass")
        assert next(outputs) == Printed("begun\n")
        threading.Thread(target=notebook.interrupt).start()
        with pytest.raises(ProgramFailed) as caught:
            list(outputs)
        assert (caught.value.kind, notebook.ended) == ("KeyboardInterrupt", False)
        assert list(notebook.run("x"))[-1] == Finished("", 7, "7")


def test_containers_run_their_cells_at_the_gateway(
    gateway: Gateway, start_proxy: StartProxy
) -> None:
    """All of the way: HTTP, the proxy, the gateway's websocket, a kernel there, and back."""
    proxy = start_proxy(
        sandbox="gateway",
        gateway_url=gateway.url, gateway_token=SecretStr(TOKEN),
    )  # fmt: skip
    with httpx2.Client(base_url=f"{proxy}/v1", timeout=60) as http:
        container = http.post("/containers", json={"name": "there"}).json()["id"]
        http.post(f"/containers/{container}/files", files={"file": ("in.txt", b"Oslo")})

        def execute(code: str) -> Mapping[str, Any]:
            answer = http.post(f"/containers/{container}/execute", json={"code": code}).json()
            return {name: answer[name] for name in ("status", "stdout", "stderr", "result")} | {
                "files": {file["path"]: file["bytes"] for file in answer["files"]}
            }

        assert execute("city = open('in.txt').read()\nprint(city)") == {
            "status": "Success", "stdout": "Oslo\n", "stderr": "", "result": None, "files": {},
        }  # fmt: skip
        assert execute("open('out.txt', 'w').write(city * 2)") == {
            "status": "Success", "stdout": "", "stderr": "", "result": "8",
            "files": {"/mnt/data/out.txt": 8},
        }  # fmt: skip
        assert execute("1 / 0")["stderr"].endswith("ZeroDivisionError: division by zero\n")
        out = http.get(f"/containers/{container}/files").json()["data"][0]["id"]
        assert http.get(f"/containers/{container}/files/{out}/content").content == b"OsloOslo"
        assert http.delete(f"/containers/{container}").status_code == 200
