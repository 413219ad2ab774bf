"""Kernels on a real Jupyter Kernel Gateway on loopback; `make test-gateway` installs one."""

import importlib.util
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from emulator import doctor
from emulator.engines import open_engines
from emulator.settings import Settings
from sandbox.engine import Engine, Finished, Limits, Paused
from sandbox.errors import (
    ProgramFailed,
    SandboxDied,
    SandboxLimit,
    SandboxTimeout,
    SandboxUnavailable,
)
from sandbox.gateway import Gateway, GatewayKernel
from sandbox.kernel import KernelEngine

if importlib.util.find_spec("kernel_gateway") is None:
    pytest.skip("jupyter_kernel_gateway is not installed", allow_module_level=True)

import httpx2
from pydantic import SecretStr

LIMITS = Limits(seconds=3.0, output=10_000, pauses=5)
TOKEN = secrets.token_hex(16)


@contextmanager
def running(*options: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "kernel_gateway", "--KernelGatewayApp.ip=127.0.0.1",
               f"--KernelGatewayApp.port={port}", *options]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            until = time.monotonic() + 60
            while time.monotonic() < until:
                try:
                    httpx2.get(f"{url}/api", timeout=1.0)
                    break
                except httpx2.HTTPError:
                    time.sleep(0.1)
            yield url
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running(
        f"--KernelGatewayApp.auth_token={TOKEN}", "--JupyterWebsocketPersonality.list_kernels=True"
    ) as url:
        yield Gateway(url, TOKEN)


@pytest.fixture(scope="module")
def engine(gateway: Gateway) -> Iterator[Engine]:
    with KernelEngine(LIMITS, warm=1, connect=partial(GatewayKernel, gateway)) as opened:
        yield opened


def test_a_program_pauses_and_goes_on(engine: Engine) -> None:
    with engine.session(frozenset({"ask"}), preamble="def twice(x): return 2 * x") as session:
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
    "printing without end": ("while True: print('x' * 1000)", SandboxLimit),
    "its own end": ("import os\nos._exit(1)", SandboxDied),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDS)
def test_a_program_ends_in_the_same_errors_as_here(engine: Engine, what: str) -> None:
    source, expected = ENDS[what]
    with pytest.raises(expected), engine.session(frozenset()) as session:
        session.start(source)
    with engine.session(frozenset()) as session:
        assert session.start("1") == Finished("", 1, "1")


def test_no_kernel_is_left_at_the_gateway(gateway: Gateway) -> None:
    def kernels() -> set[str]:
        listed = httpx2.get(f"{gateway.url}/api/kernels", headers=gateway.headers()).json()
        return {each["id"] for each in listed}

    before = kernels()
    with (
        KernelEngine(LIMITS, warm=0, connect=partial(GatewayKernel, gateway)) as engine,
        engine.session(frozenset({"ask"})) as session,
    ):
        session.start("ask()")
        assert len(kernels() - before) == 1
    assert kernels() - before == set()


def test_a_wrong_token_is_told(gateway: Gateway) -> None:
    wrong = Gateway(gateway.url, "guess")
    problem = wrong.problem()
    assert problem is not None
    assert "401" in problem.reason
    with (
        KernelEngine(LIMITS, warm=0, connect=partial(GatewayKernel, wrong)) as engine,
        pytest.raises(SandboxUnavailable, match="the gateway starts no kernel: 401"),
    ):
        engine.session(frozenset()).__enter__()


def test_an_unknown_kernel_is_told(gateway: Gateway) -> None:
    problem = Gateway(gateway.url, TOKEN, kernel="cobol").problem()
    assert problem is not None
    assert (problem.reason, problem.fix) == (
        "the gateway has no kernel 'cobol'", "use one of python3",
    )  # fmt: skip
    assert gateway.problem() is None


def test_a_gateway_that_is_not_there_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = Gateway(f"http://127.0.0.1:{free.getsockname()[1]}")
    problem = nobody.problem()
    assert problem is not None
    assert problem.fix == "check the gateway's URL and token, and that it runs"


def test_the_settings_lead_to_the_gateway(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    there = Settings(
        engines=("kernel",), sandbox="gateway", warm_kernels=0,
        gateway_url=gateway.url, gateway_token=SecretStr(TOKEN),
    )  # fmt: skip
    (engine,) = open_engines(there)
    with engine.session(frozenset()) as session:
        assert session.start("6 * 7") == Finished("", 42, "42")
    engine.close()
    assert doctor.main(there) == 0
    assert "offers python3; its fences are its own" in capsys.readouterr().out
    astray = there.model_copy(update={"gateway_kernel": "cobol"})
    with pytest.raises(SandboxUnavailable, match="no kernel 'cobol'"):
        open_engines(astray)
    assert doctor.main(astray) == 1
