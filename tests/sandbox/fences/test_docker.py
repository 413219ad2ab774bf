"""What is particular to kernels in Docker containers, before a real engine; `make test-docker` starts one.

What holds in every place is in test_escape.py and test_cells.py, which that target runs there too.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx2
import pytest

from emulator.interpreter import doctor
from emulator.interpreter.engines import InterpreterEngines
from emulator.settings.settings import Settings
from sandbox.engine import Finished, Limits
from sandbox.errors import SandboxDied, SandboxLimit, SandboxUnavailable
from sandbox.fences import container, docker, docker_probes
from sandbox.fences.docker import DockerLimits
from sandbox.fences.leftovers import mark
from sandbox.kernel.engine import KernelEngine
from sandbox.report import first_problem
from tests.conftest import StartProxy
from tests.support.cells import cells
from tests.support.places import CONFIG, IN_DOCKER, containers, kernels

if not IN_DOCKER:
    pytest.skip("make test-docker starts an engine for these", allow_module_level=True)

ROOT = Path(__file__).parents[3]
LIMITS = Limits(seconds=30.0, output=10_000)
ROOM = DockerLimits(memory=2**26, data_size=2**20, processes=8)


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelEngine]:
    with kernels(LIMITS, warm=1) as engine:
        yield engine


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what() and time.monotonic() < end:
        time.sleep(0.02)
    assert what()


def traces(of: set[str]) -> list[str]:
    """Where these containers still show on this machine: control groups, processes, sockets."""
    # os.walk passes over groups that go while it looks: those of others that run here.
    found = [place for place, _, _ in os.walk("/sys/fs/cgroup") if Path(place).name in of]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            belongs = (process / "cgroup").read_text()
        except OSError:
            continue
        found += [process.name for identity in of if identity in belongs]
    return found


def test_a_session_leaves_no_container() -> None:
    before = containers()
    with kernels(LIMITS, warm=0) as engine:
        with cells(engine, frozenset({"ask"})) as session:
            session.start("import subprocess, sys; subprocess.Popen([sys.executable]); ask()")
            made = containers() - before
            assert len(made) == 1
            assert traces(made) != []
        until(lambda: containers() == before)
    assert traces(made) == []


def test_an_engine_leaves_no_waiting_container() -> None:
    before = containers()
    with kernels(LIMITS, warm=2) as engine:
        engine.warm_up()
        until(lambda: len(containers() - before) == 2)
        made = containers() - before
    assert containers() == before
    assert traces(made) == []


def test_a_kernel_leaves_no_descriptor() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    counted = []
    for _ in range(2):
        with kernels(LIMITS, warm=0) as engine, cells(engine) as session:
            session.start("1")
        counted.append(descriptors())
    assert counted[0] == counted[1]


def test_a_failed_start_leaves_no_container(monkeypatch: pytest.MonkeyPatch) -> None:
    before = containers()
    change = {"devices": ["/dev/nonexistent"]}
    container_options = docker.container_options
    monkeypatch.setattr(
        docker, "container_options", lambda room, user: container_options(room, user) | change
    )
    with pytest.raises(SandboxUnavailable, match="/dev/nonexistent"):
        container.DockerContainer(CONFIG["image"], ["true"], ROOM)
    assert containers() == before


def test_a_command_that_ends_immediately_is_reported_or_leaves_no_container() -> None:
    """Whether its process is still found is a matter of luck."""
    before = containers()
    endings = set()
    for _ in range(5):
        try:
            ended = container.DockerContainer(CONFIG["image"], ["no-such-program"], ROOM)
        except SandboxUnavailable as error:
            endings.add(
                ("ended during its start" in error.reason, "no-such-program" in error.reason)
            )
        else:
            endings.add(ended.wait())
            ended.close()
    assert endings <= {(True, True), 127}
    until(lambda: containers() == before)


_SERVER = """
import sys
from sandbox.kernel.engine import KernelEngine
from sandbox.fences.leftovers import mark

with KernelEngine(place="docker", image=sys.argv[1], warm=0) as engine:
    with cells(engine, frozenset({"ask"})) as session:
        session.start(sys.argv[2])
        print(mark(), flush=True)
        input()
"""


def killed_server(program: str) -> tuple[str, set[str]]:
    """The mark of a server that was killed while `program` was paused, and its containers."""
    command = [sys.executable, "-c", _SERVER, CONFIG["image"], program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as server:
        assert server.stdout is not None
        its = server.stdout.readline().strip()
        made = containers(its)
        assert len(made) == 1
        server.kill()
    return its, made


def test_a_kernel_ends_with_its_server() -> None:
    its, made = killed_server("ask()")
    until(lambda: containers(its) == set())
    until(lambda: traces(made) == [])
    assert traces(made) == []


def test_the_next_start_removes_only_the_containers_of_a_killed_server() -> None:
    """A kernel ends with its server by its own hand, which a program can hold."""
    its, made = killed_server("import os\nos._exit = print\nask()")
    time.sleep(1.0)
    assert containers(its) == made
    with kernels(LIMITS, warm=0) as living, cells(living) as session:
        session.start("x = 1")
        with kernels(LIMITS, warm=0) as starting, cells(starting):
            until(lambda: containers(its) == set())
            until(lambda: traces(made) == [])
            assert len(containers(mark())) >= 2
        assert session.start("x") == Finished("", 1, "1")


def test_a_sweep_spares_the_living() -> None:
    waiting = container.DockerContainer(CONFIG["image"], ["python3", "-c", "input()"], ROOM)
    try:
        docker.sweep()
        assert waiting.poll() is None
    finally:
        waiting.kill()
        assert waiting.wait() == 128 + signal.SIGKILL
        waiting.close()


def test_a_kernel_that_runs_out_of_memory_is_reported_as_such(kernel: KernelEngine) -> None:
    source = """
        import os
        ready, stay = os.pipe(), os.pipe()
        for _ in range(12):
            if os.fork() == 0:
                held = b'x' * (30 * 2**20)
                os.write(ready[1], b'x')
                os.read(stay[0], 1)
        for _ in range(12): os.read(ready[0], 1)
        with open('/proc/self/oom_score_adj', 'w') as file: file.write('1000')
        mine = b'x' * (100 * 2**20)  # within its own limit; with the others' it is too much
    """
    with pytest.raises(SandboxLimit, match="memory"), cells(kernel) as session:
        session.start(dedent(source))


def test_a_kernel_that_kills_itself_is_not_reported_as_out_of_memory(kernel: KernelEngine) -> None:
    with pytest.raises(SandboxDied, match="SIGKILL"), cells(kernel) as session:
        session.start("import os\nos.kill(os.getpid(), 9)")


def test_a_session_uses_the_images_libraries() -> None:
    source = """
        import io
        import matplotlib
        matplotlib.use('Agg')
        from matplotlib import pyplot
        import numpy
        pyplot.plot(numpy.arange(3) ** 2)
        picture = io.BytesIO()
        pyplot.savefig(picture, format='png')
        picture.getvalue()[:4].hex()
    """
    roomy = Limits(seconds=60.0, memory=2**30)
    with kernels(roomy, warm=0) as engine, cells(engine) as session:
        assert session.start(dedent(source)) == Finished("", "89504e47", "'89504e47'")


TAKEN_AWAY: dict[str, tuple[dict[str, Any], str]] = {
    "the engine's seccomp": (
        {"security_opt": ["no-new-privileges", "seccomp=unconfined"]}, "seccomp",
    ),
    "no-new-privileges": ({"security_opt": []}, "privileges"),
    "the dropping of capabilities": ({"cap_drop": []}, "privileges"),
    "the user": ({"user": "0:0"}, "privileges"),
    "the pid namespace": ({"pid_mode": "host"}, "namespaces"),
    "the ipc namespace": ({"ipc_mode": "host"}, "namespaces"),
    "the read-only root": ({"read_only": False}, "files"),
    "the absence of the engine's socket": (
        {"volumes": {"/dev/null": {"bind": "/var/run/docker.sock", "mode": "ro"}}}, "files",
    ),
    "the size of what is written": ({"tmpfs": {"/tmp": "rw", "/mnt/data": "rw", "/run/kernel": "rw"}},
                                    "sizes"),
    "the memory limit": ({"mem_limit": 0, "memswap_limit": 0}, "control group"),
    "the process limit": ({"pids_limit": -1}, "control group"),
    "the processor limit": ({"nano_cpus": 0}, "control group"),
}  # fmt: skip


@pytest.mark.parametrize("fence", TAKEN_AWAY)
def test_a_missing_fence_turns_the_engine_off(fence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, name = TAKEN_AWAY[fence]
    container_options = docker.container_options
    monkeypatch.setattr(
        docker, "container_options", lambda room, user: container_options(room, user) | change
    )
    broken = [check.name for check in docker_probes.checks(CONFIG["image"]) if not check.ok]
    assert name in broken
    with (
        kernels(LIMITS) as engine,
        pytest.raises(SandboxUnavailable, match="the fence does not hold"),
    ):
        engine.warm_up()


def test_all_fences_hold() -> None:
    """Where one does not the other tests are skipped, so this one must not be."""
    assert [check for check in docker_probes.checks(CONFIG["image"]) if not check.ok] == []


def test_a_missing_image_is_reported() -> None:
    problem = first_problem(docker_probes.checks(image="nobody/nothing"))
    assert problem is not None
    assert (problem.reason, problem.fix) == (
        "the Docker engine has no image nobody/nothing:latest",
        "make kernel-image (docker build), or set another image with --docker-image",
    )


def test_an_image_without_ipykernel_is_reported() -> None:
    """It has a Python, but not for kernels: an empty folder hides its packages."""
    with docker.client() as client:
        made = client.containers.create(CONFIG["image"], ["rm", "-r", "/usr/local/lib"])
        made.start()
        made.wait()
        made.commit(repository="bare")
        made.remove()
    problem = first_problem(docker_probes.checks(image="bare"))
    assert problem is not None
    assert "python3 finds ipykernel" in problem.reason


def test_an_unreachable_docker_engine_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    problem = first_problem(docker_probes.checks())
    assert problem is not None
    assert problem.reason.startswith("the Docker engine failed: ")
    assert problem.fix.startswith("start Docker on this machine")


def test_the_settings_lead_to_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    there = Settings(
        sandbox="docker",
        docker_image=CONFIG["image"],
    )  # fmt: skip
    engine = InterpreterEngines(there)("1g")
    with cells(engine) as session:
        assert session.start("6 * 7") == Finished("", 42, "42")
    engine.close()
    assert doctor.main(there) == 0
    assert "kernel (docker)  works" in capsys.readouterr().out
    astray = there.model_copy(update={"docker_image": "nobody/nothing"})
    with pytest.raises(SandboxUnavailable, match="no image nobody/nothing"):
        InterpreterEngines(astray)("1g").check()
    assert doctor.main(astray) == 1


def test_a_containers_code_runs_in_docker_with_its_files(start_proxy: StartProxy) -> None:
    """What the code interpreter needs of a place: state, files both ways, output as it comes."""
    proxy = start_proxy(sandbox="docker", docker_image=CONFIG["image"])
    with httpx2.Client(base_url=f"{proxy}/v1", timeout=60) as http:
        made = http.post("/containers", json={"name": "x"}).json()["id"]
        http.post(f"/containers/{made}/files", files={"file": ("a.txt", b"up")})

        def execute(code: str) -> dict[str, Any]:
            report: dict[str, Any] = http.post(
                f"/containers/{made}/execute", json={"code": code}
            ).json()
            return report

        assert execute("x = open('/mnt/data/a.txt').read()")["status"] == "Success"
        report = execute("print(x)\nopen('b.txt', 'w').write(x + '!')")
        assert (report["stdout"], report["result"]) == ("up\n", "3")
        [file] = report["files"]
        content = http.get(f"/containers/{made}/files/{file['id']}/content").content
        assert content == b"up!"
        assert execute("import os\nos._exit(1)")["status"] == "Failure"
        assert execute("open('b.txt').read()")["result"] == "'up!'"
