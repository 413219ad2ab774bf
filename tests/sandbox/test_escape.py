"""One test per promise that the sandboxes make. A program tries; what it reached is compared.

*Stops:* what these tests name. *Does not stop:* what they do not: bugs in the Linux kernel, memory spread
over many processes up to the process limit, side channels.
"""

import contextlib
import errno
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from sandbox.engine import JSON, Finished, Limits
from sandbox.errors import (
    ProgramFailed,
    SandboxDied,
    SandboxError,
    SandboxLimit,
    SandboxTimeout,
    SandboxUnavailable,
)
from sandbox.fences import bubblewrap, cgroups, syscalls
from sandbox.kernel.engine import KernelEngine
from sandbox.outputs import Printed
from sandbox.programs.server import ProgramServer
from tests.sandbox.promises import (
    ATTEMPTS,
    CONTROLS,
    DEATHS,
    LOOPS,
    MEMORY,
    OUTPUT,
    PAGE,
    PRELUDE,
    REFUSED_CALLS,
    Attempt,
    page,
    program,
)
from tests.support.cells import Cells, cells
from tests.support.children import run
from tests.support.ordinary_user import NOBODY, ordinary_user
from tests.support.places import IN_DOCKER, OWN_VARIABLES, REFUSALS, kernels, problem

LIMITS = Limits(seconds=15.0, memory=256 * 1024 * 1024, output=10_000, pauses=5)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelEngine]:
    with kernels(LIMITS, warm=2) as engine:
        yield engine


def outcome(engine: KernelEngine, source: str) -> JSON | type[SandboxError]:
    """The value of the program's last expression, or the kind of error that ended it."""
    try:
        with cells(engine, frozenset({"ask"})) as session:
            step = session.start(dedent(source))
    except SandboxError as error:
        return type(error)
    assert isinstance(step, Finished), step
    return step.value


REACHED = """
reached = []
for target in {targets!r}:
    try:
        {attempt}
        reached.append(target)
    except Exception:
        pass
reached
"""


def reached(engine: KernelEngine, attempt: str, targets: object) -> JSON | type[SandboxError]:
    """Which of `targets` a program could reach by the statement `attempt`."""
    return outcome(engine, REACHED.format(targets=targets, attempt=attempt))


@pytest.fixture(scope="module")
def host() -> Iterator[dict[str, JSON]]:
    """What this machine has to be got at: a file, listening sockets, a process, a variable."""
    folder = Path(tempfile.mkdtemp(prefix="escape-"))
    (folder / "secret").write_text("x")
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as file,
        subprocess.Popen(["sleep", "600"]) as victim,
    ):
        abstract.bind(f"\0escape-{os.getpid()}")
        file.bind(str(folder / "socket"))
        for listener in (abstract, file):
            listener.listen()
        os.environ["ESCAPE_TEST"] = "1"
        yield {
            "secret": str(folder / "secret"),
            "socket": str(folder / "socket"),
            "abstract": f"\0escape-{os.getpid()}",
            "port": tcp.getsockname()[1],
            "victim": victim.pid,
            "name": os.uname().nodename,
            "project": str(ROOT / "sandbox" / "engine.py"),
            "packages": sysconfig.get_path("purelib"),
            "clone": syscalls.EXAMINED[platform.machine()]["clone"],
        }
        del os.environ["ESCAPE_TEST"]
        victim.kill()
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=[False, True], ids=["programs-hidden", "programs-visible"])
def sees_programs(request: pytest.FixtureRequest) -> bool:
    """Whether the kernel sees the programs of /usr/bin, as those of the code interpreter do."""
    if request.param and IN_DOCKER:
        pytest.skip("a kernel in docker sees the programs of its image")
    return bool(request.param)


@pytest.fixture(scope="module")
def inside(host: dict[str, JSON], sees_programs: bool) -> Iterator[Cells]:
    """One session for all that is only tried: each starts where the last one failed."""
    options = {"programs": True} if sees_programs else {}
    with kernels(LIMITS, warm=0, **options) as engine, cells(engine) as session:
        yield session


each_attempt = pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.what)


def got_out(session: Cells, attempt: Attempt, host: object) -> JSON:
    try:
        step = session.start(program(attempt, host))
    except ProgramFailed:
        return False
    assert isinstance(step, Finished)
    return step.value


@each_attempt
def test_a_kernels_program_does_not_get_out(
    inside: Cells, host: dict[str, JSON], attempt: Attempt, sees_programs: bool
) -> None:
    succeeds = IN_DOCKER and attempt.in_docker == "succeeds"
    succeeds |= sees_programs and attempt.what == "run a shell"
    assert got_out(inside, attempt, host) is succeeds


@each_attempt
def test_a_program_does_not_get_out_of_its_child(
    programs: ProgramServer, host: dict[str, JSON], attempt: Attempt
) -> None:
    try:
        ended = run(programs, program(attempt, host))
    except SandboxDied:
        return  # the Linux kernel ended it
    assert ended["value"] in (None, "False"), ended


@each_attempt
def test_without_a_sandbox_the_attempt_succeeds(
    host: dict[str, JSON], attempt: Attempt, tmp_path: Path
) -> None:
    if attempt.control == "none":
        pytest.skip(CONTROLS[attempt.control])
    if attempt.control == "root" and os.geteuid() != 0:
        pytest.skip("succeeds only as root")
    if attempt.control == "vsock" and not _has_vsock():
        pytest.skip("this Linux has no vsock")
    source = program(attempt, host).replace("bool(attempt())", "sys.exit(not attempt())")
    command = [sys.executable, "-c", source]
    if attempt.control == "namespaces":
        command = [
            *_own_namespaces(),
            sys.executable,
            str(ROOT / "tests/sandbox/own_machine.py"),
            source,
        ]
    assert subprocess.run(command, check=False, cwd=tmp_path).returncode == 0


def _has_vsock() -> bool:
    try:
        socket.socket(socket.AF_VSOCK).close()
    except OSError as error:
        return error.errno != errno.EAFNOSUPPORT
    return True


def _own_namespaces() -> list[str]:
    """What runs a command as root of a network, of a host name, of mounts and of processes of its own."""
    command = "unshare --net --uts --mount --pid --fork --mount-proc".split()
    command += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    if subprocess.run([*command, "true"], check=False).returncode != 0:
        pytest.skip("no namespaces can be made here")
    return command


SYSTEM_CALL = """
{prelude}
def error_of(number):
    try:
        syscall(number, -1, -1, -1, -1, -1, -1)
    except OSError as error:
        return error.errno
result = {{name: error_of(number) for name, number in {calls!r}.items()}}
"""


def test_a_system_call_that_is_not_listed_does_not_exist(inside: Cells) -> None:
    place = syscalls.MACHINES.index(platform.machine())
    calls = {name: numbers[place] for name, numbers in REFUSED_CALLS.items()}
    source = SYSTEM_CALL.format(prelude=PRELUDE, calls=calls)
    control = subprocess.run(
        [sys.executable, "-c", f"{source}\nimport json; print(json.dumps(result))"],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    known = {name for name, error in json.loads(control.stdout).items() if error != errno.ENOSYS}
    assert len(known) > 30
    step = inside.start(f"{source}\nresult")
    assert isinstance(step, Finished)
    assert isinstance(step.value, dict)
    assert {name for name, error in step.value.items() if error in REFUSALS} == set(calls)


def test_the_kernel_writes_only_to_its_own_folders(kernel: KernelEngine) -> None:
    packages = sysconfig.get_path("purelib")
    places = ["/", "/etc", "/usr/lib", "/dev", "/proc/sys/kernel", "/root", "/run", packages]
    attempt = "open(f'{target}/escape', 'w')"
    assert reached(kernel, attempt, [*places, "/tmp", "/mnt/data"]) == ["/tmp", "/mnt/data"]


@pytest.mark.parametrize("folder", ["/tmp", "/mnt/data", "/dev/shm", "/run/kernel"])
def test_the_kernel_writes_a_bounded_number_of_bytes(kernel: KernelEngine, folder: str) -> None:
    source = f"""
        import os
        written = 0
        try:
            for number in range(100):
                with open(f'{folder}/{{number}}', 'wb') as file:
                    for _ in range(8):
                        written += file.write(b'x' * 1_000_000)
                        file.flush()
        except OSError:
            pass
        written // 2**20
    """
    written = outcome(kernel, source)
    assert isinstance(written, int)
    assert written <= 64


def test_the_kernel_sees_no_process_of_the_host(kernel: KernelEngine) -> None:
    source = "import os\n[os.getpid(), *sorted(int(pid) for pid in os.listdir('/proc') if pid.isdigit())]"
    seen = outcome(kernel, source)
    assert isinstance(seen, list)
    own, *others = seen
    assert others == [1, own]


def test_the_kernel_has_a_cleared_environment(
    kernel: KernelEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with kernels(LIMITS, warm=0) as engine:
        names = outcome(engine, "import os\nsorted(os.environ)")
    assert isinstance(names, list)
    own = {"PWD", "TERM", "COLUMNS", "LINES", "CLICOLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "PAGER",
           "GIT_PAGER", "MPLBACKEND", "PYDEVD_USE_FRAME_EVAL", "LC_CTYPE"}  # fmt: skip
    assert {str(name) for name in names} - own - OWN_VARIABLES == set(bubblewrap.ENVIRONMENT)


def test_the_kernel_has_no_privileges(kernel: KernelEngine) -> None:
    source = """
        status = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())
        import os
        [{status[name].strip('0') for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')},
         status['NoNewPrivs'], os.getuid() > 0, os.getgroups() in ([], [os.getgid()], [65534])]
    """
    assert outcome(kernel, source) == [[""], "1", True, True]


@pytest.mark.parametrize("how", MEMORY)
def test_the_kernel_gets_no_more_memory_than_allowed(kernel: KernelEngine, how: str) -> None:
    assert outcome(kernel, MEMORY[how]) in (SandboxLimit, ProgramFailed)


def test_a_fork_bomb_is_stopped_by_the_process_limit(kernel: KernelEngine) -> None:
    source = """
        import os, time
        children = 0
        try:
            while children < 1000:
                if os.fork() == 0:
                    while True: time.pause() if hasattr(time, 'pause') else os.read(pipe[0], 1)
                children += 1
        except OSError as error:
            stopped = error.errno
        [children < 64, stopped]
    """
    assert outcome(kernel, "import os\npipe = os.pipe()\n" + dedent(source)) == [True, 11]


def test_a_thread_bomb_is_stopped_by_the_process_limit(kernel: KernelEngine) -> None:
    source = """
        import _thread  # a program's own `threading` runs one thread after the other
        _thread.stack_size(65536)  # else the limit on address space would come first
        lock, threads = _thread.allocate_lock(), 0
        lock.acquire()
        try:
            while threads < 1000:
                _thread.start_new_thread(lock.acquire, ())
                threads += 1
        except (RuntimeError, MemoryError):
            pass
        lock.release()
        threads < 64
    """
    assert outcome(kernel, source) is True


@pytest.mark.parametrize("how", LOOPS)
def test_a_program_ends_at_its_deadline(kernel: KernelEngine, how: str) -> None:
    with kernels(Limits(seconds=1.0), warm=0) as engine:
        assert outcome(engine, LOOPS[how]) in (SandboxTimeout, SandboxLimit)
    assert outcome(kernel, "1") == 1


@pytest.mark.parametrize("how", OUTPUT)
def test_a_cell_prints_a_bounded_number_of_characters(kernel: KernelEngine, how: str) -> None:
    printed = 0
    # A kernel that fills up with what the host has not read yet may end of that.
    with contextlib.suppress(SandboxError), cells(kernel) as session:
        for event in session.notebook.run(OUTPUT[how]):
            printed += len(event.text) if isinstance(event, Printed) else 0
            assert not isinstance(event, Finished) or len(event.text or "") <= LIMITS.output
    assert printed <= LIMITS.output
    assert outcome(kernel, "1") == 1


def test_a_program_that_undoes_the_count_inside_still_ends(kernel: KernelEngine) -> None:
    source = "import sys\ndel sys.stdout.write\nwhile True: print('x' * 1000)"
    assert outcome(kernel, source) in (SandboxLimit, SandboxDied, SandboxTimeout)


@pytest.mark.parametrize("how", DEATHS)
def test_a_dead_kernel_ends_its_own_session_only(kernel: KernelEngine, how: str) -> None:
    with cells(kernel) as other:
        assert outcome(kernel, DEATHS[how]) is SandboxDied
        assert other.start("1") == Finished("", 1, "1")


FORGED = {
    "an unknown name": {"name": "rm", "args": [], "kwargs": {}, "line": 1},
    "arguments of another shape": {"name": "ask", "args": {}, "kwargs": [], "line": 1},
    "no object": [1],
    "an unknown name among several": [
        {"name": name, "args": [], "kwargs": {}, "line": 1} for name in ("ask", "rm")
    ],
}


FORGE = "import sys; sys.modules['sandbox.inside.calls'].request"


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_call_is_not_believed(kernel: KernelEngine, what: str) -> None:
    source = f"{FORGE}({json.dumps(FORGED[what])!r})"
    assert outcome(kernel, source) is SandboxDied


def test_deeply_nested_json_does_not_harm_the_host(kernel: KernelEngine) -> None:
    assert outcome(kernel, f"{FORGE}('[' * 500_000)") is SandboxDied


def test_garbage_on_the_wire_is_ignored(kernel: KernelEngine) -> None:
    source = """
        socket = get_ipython().kernel.iopub_socket
        for frames in ([b'x'], [b'<IDS|MSG>'], [b'<IDS|MSG>', b'', b'{}', b'{}', b'{}', b'{}']):
            socket.send_multipart(frames)
        7
    """
    assert outcome(kernel, source) == 7


def test_text_for_a_terminal_or_a_browser_is_only_text(kernel: KernelEngine) -> None:
    text = "\x1b[2J\x1b]0;x\x07<script>alert(1)</script>"
    source = f"print({text!r})\nclass R:\n    def __repr__(self): return {text!r}\nR()"
    with cells(kernel) as session:
        assert session.start(source) == Finished(f"{text}\n", {}, text)


def test_memory_in_many_processes_is_bounded_as_a_whole(kernel: KernelEngine) -> None:
    """Rlimits are per process: 20 processes once got 20 times the memory."""
    if isinstance(cgroups.find(), SandboxUnavailable):
        pytest.skip(str(cgroups.find()))
    source = """
        import os, select
        children = []
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                held = b'x' * (100 * 2**20)
                os.read(pipe[0], 1)
                os._exit(0)
            children.append(pid)
        for _ in range(40):
            select.select([], [], [], 0.1)
            dead = [pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]]
            if dead: break
        len(dead) > 0
    """
    # Time enough to touch two gigabytes on a busy machine.
    with kernels(replace(LIMITS, seconds=60.0), warm=0) as engine:
        found = outcome(engine, "import os\npipe = os.pipe()\n" + dedent(source))
    assert found in (True, SandboxLimit, SandboxDied)


WITH_THE_KEY = {
    "a reply to its own piece": (
        "kernel.session.send(kernel.iopub_socket, 'status', {'execution_state': 'idle'}, parent=parent)"
    ),
    "a reply of another shape": (
        "kernel.session.send(kernel.iopub_socket, 'stream', {'text': [1]}, parent=parent)"
    ),
    "a result that is no JSON": (
        "kernel.session.send(kernel.iopub_socket, 'execute_result', {'data': {'text/plain': 'x', "
        "'application/vnd.tool-emulator.value+json': '{'}}, parent=parent)"
    ),
    "a message without parts": (
        "kernel.session.send(kernel.iopub_socket, 'status', {}, parent=parent)"
    ),
}


@pytest.mark.parametrize("what", WITH_THE_KEY)
def test_a_program_with_the_connection_key_harms_its_own_session_only(
    kernel: KernelEngine, what: str
) -> None:
    source = f"kernel = get_ipython().kernel\nparent = kernel.get_parent()\n{WITH_THE_KEY[what]}\n7"
    with cells(kernel) as other:
        assert outcome(kernel, source) in (7, SandboxDied)
        assert other.start("1") == Finished("", 1, "1")


def test_a_socket_that_a_program_replaces_gets_no_peer(kernel: KernelEngine) -> None:
    source = """
        import os, socket
        made = []
        for number in range(1, 6):
            try:
                os.unlink(f'/run/kernel/s-{number}')
                made.append(socket.socket(socket.AF_UNIX))
                made[-1].bind(f'/run/kernel/s-{number}')
                made[-1].listen()
                made[-1].setblocking(False)
            except OSError:
                pass
        import select
        [peer for peer in made if select.select([peer], [], [], 0.3)[0]]
    """
    assert outcome(kernel, source) == []


def test_a_kernel_has_no_descriptor_of_the_hosts(kernel: KernelEngine) -> None:
    source = """
        import os
        found = set()
        for number in os.listdir('/proc/self/fd'):
            try:
                found.add(os.readlink(f'/proc/self/fd/{number}').split(':')[0])
            except OSError:
                pass
        sorted(found)
    """
    with (ROOT / "pyproject.toml").open():
        found = outcome(kernel, source)
    assert isinstance(found, list)
    kinds = {"pipe", "socket", "anon_inode", "/dev/null", "/dev/urandom"}
    own = ("/proc/", "/usr/lib/")  # libffi keeps its own library open
    assert {str(name) for name in found if not str(name).startswith(own)} <= kinds


def test_each_session_has_a_user_of_its_own(kernel: KernelEngine) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give users out")
    whose = "import os\nos.getuid()"
    with KernelEngine(LIMITS, place="none", warm=0) as control:
        assert [outcome(control, whose) for _ in range(2)] == [0, 0]
    users = [outcome(kernel, whose) for _ in range(3)]
    assert len(set(map(str, users))) == 3


def test_no_process_of_a_program_outlives_its_session(kernel: KernelEngine) -> None:
    source = """
        import os
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                import signal, select
                for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
                os.write(pipe[1], b'x')
                select.select([], [], [])
            os._exit(0)
        os.read(pipe[0], 1)
        os.readlink('/proc/self/ns/pid')
    """
    namespace = outcome(kernel, "import os\npipe = os.pipe()\n" + dedent(source))
    assert isinstance(namespace, str)
    until = time.monotonic() + 10
    while namespace in _namespaces() and time.monotonic() < until:
        time.sleep(0.01)
    assert namespace not in _namespaces()


def _namespaces() -> set[str]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.add(str((process / "ns" / "pid").readlink()))
    return found


def test_one_session_leaves_nothing_for_another(kernel: KernelEngine) -> None:
    outcome(kernel, "open('/mnt/data/a', 'w')\nopen('/tmp/b', 'w')\nimport math\nmath.c = 1")
    # Not the listing of /tmp: a checkout below it shows there, by its interpreter.
    source = (
        "import math, os\n[os.listdir('/mnt/data'), os.path.exists('/tmp/b'), hasattr(math, 'c')]"
    )
    assert outcome(kernel, source) == [[], False, False]


def test_concurrent_sessions_share_no_files(kernel: KernelEngine) -> None:
    with cells(kernel) as one, cells(kernel) as other:
        one.start("open('/mnt/data/mine', 'w').write('x')")
        step = other.start("import os\nos.path.exists('/mnt/data/mine')")
        assert step == Finished("", False, "False")


def test_the_page_of_escapes_shows_the_tables_of_these_tests() -> None:
    """`python -m tests.sandbox.promises` writes it."""
    assert PAGE.read_text() == page()


@pytest.mark.slow
@pytest.mark.parametrize(
    "which",
    [
        pytest.param("does_not_get_out or without_a_sandbox", id="attempts"),
        pytest.param("not ordinary_user", id="all", marks=pytest.mark.nightly),
    ],
)
def test_the_promises_hold_for_an_ordinary_user_too(which: str, tmp_path: Path) -> None:
    """As root a sandbox is made without a user namespace, as anyone else with one."""
    if os.geteuid() != 0 or IN_DOCKER or problem() is not None:
        pytest.skip("these tests already run as an ordinary user, or not in bubblewrap")
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        environment = {"PATH": os.environ["PATH"], "HOME": folder}
        user = ordinary_user(tmp_path)
        reading = "import os, sys; os.stat(sys.executable); import pytest"
        readable = subprocess.run([*user, sys.executable, "-c", reading], check=False, cwd=ROOT)
        if readable.returncode != 0:
            pytest.skip(
                "an ordinary user may not read this interpreter, nor can it be mounted for one"
            )
        tests = [__file__, str(Path(__file__).with_name("fences") / "test_bubblewrap.py")]
        options = ["-p", "no:cacheprovider", "-x", "-k", which]
        command = [
            *user,
            sys.executable,
            "-m",
            "pytest",
            *options,
            f"--basetemp={folder}/t",
            *tests,
        ]
        assert subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode == 0
