"""One test per promise that the sandboxes make. A program tries; what it reached is compared.

*Stops:* what these tests name. *Does not stop:* what they do not: bugs in the Linux kernel or in
Monty, memory spread over many processes up to the process limit, side channels.
"""

import json
import os
import socket
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from sandbox import bubblewrap, fences
from sandbox.engine import Engine, Finished, Limits, Paused
from sandbox.errors import (
    ProgramFailed,
    SandboxDied,
    SandboxError,
    SandboxLimit,
    SandboxTimeout,
    Unsupported,
)
from sandbox.kernel import KernelEngine
from sandbox.monty import MontyEngine
from sandbox.values import JSON

LIMITS = Limits(seconds=5.0, memory=256 * 1024 * 1024, output=10_000, pauses=5)
ROOT = Path(__file__).parents[1]

no_bubblewrap = fences.problem()


@pytest.fixture(scope="module")
def kernel() -> Iterator[Engine]:
    if no_bubblewrap is not None:
        pytest.skip(str(no_bubblewrap))
    with KernelEngine(LIMITS, warm=2) as engine:
        yield engine


@pytest.fixture(scope="module")
def monty() -> Iterator[Engine]:
    with MontyEngine(LIMITS) as engine:
        yield engine


def outcome(engine: Engine, source: str) -> JSON | type[SandboxError]:
    """The value of the program's last expression, or the kind of error that ended it."""
    try:
        with engine.session(frozenset({"ask"})) as session:
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


def reached(engine: Engine, attempt: str, targets: object) -> JSON | type[SandboxError]:
    """Which of `targets` a program could reach by the statement `attempt`."""
    return outcome(engine, REACHED.format(targets=targets, attempt=attempt))


def test_the_kernel_reaches_no_network(kernel: Engine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()  # control
        connect = "import socket; socket.create_connection(target, timeout=1)"
        targets = [("127.0.0.1", port), ("169.254.169.254", 80), ("1.1.1.1", 53), ("::1", port)]
        assert reached(kernel, connect, targets) == []


def test_the_kernel_resolves_no_names(kernel: Engine) -> None:
    resolve = "import socket; socket.getaddrinfo(target, 80)"
    assert reached(kernel, resolve, ["example.com", "metadata.google.internal"]) == []


def test_the_kernel_reaches_no_abstract_socket_of_the_host(kernel: Engine) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0escape-{os.getpid()}")
        listener.listen()
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(f"\0escape-{os.getpid()}")
        connect = "import socket; socket.socket(socket.AF_UNIX).connect(target)"
        assert reached(kernel, connect, [f"\0escape-{os.getpid()}"]) == []


def test_the_kernel_opens_no_raw_or_packet_socket(kernel: Engine) -> None:
    attempt = "import socket; socket.socket(*target)"
    raw = [(2, 3, 1), (17, 3, 3)]
    assert reached(kernel, attempt, raw) == []


def test_the_kernel_reads_no_file_of_the_host(kernel: Engine, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    targets = [
        "/etc/shadow", "/etc/passwd", "/etc/hostname", "/root/.bashrc", "/var/log", "/home",
        str(tmp_path / "secret"), str(ROOT / "pyproject.toml"), str(ROOT / "sandbox/kernel.py"),
        "/mnt/data/../../etc/shadow", "/proc/1/root/etc/shadow", "/proc/self/root/etc/passwd",
        "/var/run/docker.sock", "/run/docker.sock", "/sys/kernel",
    ]  # fmt: skip
    assert reached(kernel, "import os; os.stat(target)", targets) == []


def test_a_symlink_leads_no_further(kernel: Engine) -> None:
    source = "import os\nos.symlink('/etc/shadow', '/mnt/data/link')\nopen('/mnt/data/link')"
    assert outcome(kernel, source) is ProgramFailed


def test_the_kernel_writes_only_to_its_own_folders(kernel: Engine) -> None:
    packages = sysconfig.get_path("purelib")
    places = ["/", "/etc", "/usr/lib", "/dev", "/proc/sys/kernel", "/root", "/run", packages]
    attempt = "open(f'{target}/escape', 'w')"
    assert reached(kernel, attempt, [*places, "/tmp", "/mnt/data"]) == ["/tmp", "/mnt/data"]


def test_the_kernel_changes_no_setting_of_the_host(kernel: Engine) -> None:
    settings = [
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/swappiness",
        "/proc/sys/kernel/core_pattern",
    ]
    assert reached(kernel, "open(target, 'r+').write('1')", settings) == []


@pytest.mark.parametrize("folder", ["/tmp", "/mnt/data", "/dev/shm", "/run/kernel"])
def test_what_the_kernel_writes_is_bounded(kernel: Engine, folder: str) -> None:
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


def test_the_kernel_sees_no_process_of_the_host(kernel: Engine) -> None:
    source = "import os\n[pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) > 2]"
    assert outcome(kernel, source) == []


def test_the_kernel_kills_nothing_outside(kernel: Engine) -> None:
    assert reached(kernel, "import os; os.kill(target, 9)", [os.getpid(), os.getppid()]) == []


def test_the_kernel_has_a_cleared_environment(
    kernel: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with KernelEngine(LIMITS, warm=0) as engine:
        names = outcome(engine, "import os\nsorted(os.environ)")
    assert isinstance(names, list)
    own = {"PWD", "TERM", "COLUMNS", "LINES", "CLICOLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "PAGER",
           "GIT_PAGER", "MPLBACKEND", "PYDEVD_USE_FRAME_EVAL", "LC_CTYPE"}  # fmt: skip
    assert {str(name) for name in names} - own == set(bubblewrap.ENVIRONMENT)


def test_the_kernel_has_no_privileges(kernel: Engine) -> None:
    source = """
        status = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())
        import os
        [{status[name].strip('0') for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')},
         status['NoNewPrivs'], os.getuid() > 0, os.getgroups() in ([], [os.getgid()], [65534])]
    """
    assert outcome(kernel, source) == [[""], "1", True, True]


def test_the_kernel_gains_no_privileges(kernel: Engine) -> None:
    attempts = [
        "os.setuid(0)",
        "os.mknod('/tmp/device', 0o20600, os.makedev(1, 1))",
        "os.chroot('/tmp')",
        "resource.setrlimit(resource.RLIMIT_NPROC, (-1, -1))",
        "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "os.execv('/bin/sh', ['sh'])",
        "check(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
        "check(libc.reboot(0))",
        "check(libc.sethostname(b'x', 1))",
    ]
    if os.geteuid() == 0:  # else bwrap's init has the program's own uid, and no more rights
        attempts.append("check(libc.ptrace(16, 1, None, None))")
    source = (
        "import ctypes, os, resource; libc = ctypes.CDLL(None); exec('def check(r): assert r == 0')"
    )
    assert reached(kernel, f"{source}; exec(target)", attempts) == []


MEMORY = {
    "at once": "x = bytearray(10 * 2**30)",
    "bit by bit": "x = []\nwhile True: x.append(bytearray(2**20))",
    "mapped": "import mmap\nx = mmap.mmap(-1, 10 * 2**30)\nraise MemoryError",
}


@pytest.mark.parametrize("how", MEMORY)
def test_the_kernel_gets_no_more_memory_than_allowed(kernel: Engine, how: str) -> None:
    assert outcome(kernel, MEMORY[how]) in (SandboxLimit, ProgramFailed)


def test_a_fork_bomb_is_stopped_by_the_process_limit(kernel: Engine) -> None:
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


def test_a_thread_bomb_is_stopped_by_the_process_limit(kernel: Engine) -> None:
    source = """
        import threading
        stop, threads = threading.Event(), []
        try:
            while len(threads) < 1000:
                thread = threading.Thread(target=stop.wait, daemon=True)
                thread.start()
                threads.append(thread)
        except (RuntimeError, MemoryError):
            pass
        stop.set()
        len(threads) < 64
    """
    assert outcome(kernel, source) is True


LOOPS = {
    "an endless loop": "while True: pass",
    "one that ignores SIGINT": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    ),
    "one that catches everything": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    ),
    "one big number": "10 ** 10 ** 10",
    "waiting": "import threading\nthreading.Event().wait()",
    "reading standard input": "import sys\nsys.__stdin__.read()\nimport signal\nsignal.pause()",
}


@pytest.mark.parametrize("how", LOOPS)
def test_a_program_ends_at_its_deadline(kernel: Engine, how: str) -> None:
    with KernelEngine(Limits(seconds=1.0), warm=0) as engine:
        assert outcome(engine, LOOPS[how]) in (SandboxTimeout, SandboxLimit)
    assert outcome(kernel, "1") == 1


OUTPUT = {
    "print": "while True: print('x' * 100_000)",
    "one print": "print('x' * 50_000_000)",
    "display": "from IPython.display import display\nwhile True: display('x' * 100_000)",
    "a last value": "'x' * 50_000_000",
    "the file descriptor": "import os\nwhile True: os.write(1, b'x' * 10_000)",
}


@pytest.mark.parametrize("how", OUTPUT)
def test_what_a_program_prints_is_bounded(kernel: Engine, how: str) -> None:
    assert outcome(kernel, OUTPUT[how]) is SandboxLimit
    assert outcome(kernel, "1") == 1


def test_a_program_that_undoes_the_count_inside_still_ends(kernel: Engine) -> None:
    source = "import sys\ndel sys.stdout.write\nwhile True: print('x' * 1000)"
    assert outcome(kernel, source) in (SandboxLimit, SandboxDied)


DEATHS = {
    "_exit": "import os\nos._exit(0)",
    "a segmentation fault": "import ctypes\nctypes.string_at(0)",
    "killing all it can": "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\nos.kill(os.getpid(), 9)",
    "closing all descriptors": "import os\nos.closerange(0, 256)\nos._exit(0)",
}


@pytest.mark.parametrize("how", DEATHS)
def test_a_dead_kernel_ends_its_own_session_only(kernel: Engine, how: str) -> None:
    with kernel.session(frozenset()) as other:
        assert outcome(kernel, DEATHS[how]) is SandboxDied
        assert other.start("1") == Finished("", 1, "1")


FORGED = {
    "an unknown name": {"name": "rm", "args": [], "kwargs": {}, "line": 1},
    "arguments of another shape": {"name": "ask", "args": {}, "kwargs": [], "line": 1},
    "no object": [1],
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_call_is_not_believed(kernel: Engine, what: str) -> None:
    source = f"""
        cells = dict(zip(ask.__code__.co_freevars, ask.__closure__))
        cells['ask'].cell_contents(cells['marker'].cell_contents + {json.dumps(FORGED[what])!r})
    """
    assert outcome(kernel, source) is SandboxDied


def test_deeply_nested_json_does_not_harm_the_host(kernel: Engine) -> None:
    source = """
        cells = dict(zip(ask.__code__.co_freevars, ask.__closure__))
        cells['ask'].cell_contents(cells['marker'].cell_contents + '[' * 500_000)
    """
    assert outcome(kernel, source) is SandboxDied


def test_garbage_on_the_wire_is_nobodys_message(kernel: Engine) -> None:
    source = """
        socket = get_ipython().kernel.iopub_socket
        for frames in ([b'x'], [b'<IDS|MSG>'], [b'<IDS|MSG>', b'', b'{}', b'{}', b'{}', b'{}']):
            socket.send_multipart(frames)
        7
    """
    assert outcome(kernel, source) == 7


def test_one_session_leaves_nothing_for_another(kernel: Engine) -> None:
    outcome(kernel, "open('/mnt/data/a', 'w')\nopen('/tmp/b', 'w')\nimport math\nmath.c = 1")
    source = "import math, os\n[os.listdir('/mnt/data'), os.listdir('/tmp'), hasattr(math, 'c')]"
    assert outcome(kernel, source) == [[], [], False]


def test_sessions_side_by_side_do_not_meet(kernel: Engine) -> None:
    with kernel.session(frozenset()) as one, kernel.session(frozenset()) as other:
        one.start("open('/mnt/data/mine', 'w').write('x')")
        step = other.start("import os\nos.path.exists('/mnt/data/mine')")
        assert step == Finished("", False, "False")


MONTY_REFUSES = {
    "opening": "open('/etc/passwd').read()",
    "writing": "open('/tmp/escape', 'w').write('x')",
    "listing": "import os\nos.listdir('/')",
    "paths": "from pathlib import Path\nPath('/etc/passwd').read_text()",
    "existence": "from pathlib import Path\nPath('/etc/passwd').exists()",
    "the environment": "import os\nos.environ['HOME']",
    "one variable": "import os\nos.getenv('HOME')",
}


@pytest.mark.parametrize("what", MONTY_REFUSES)
def test_monty_refuses_what_lies_outside(monty: Engine, what: str) -> None:
    with (
        pytest.raises(ProgramFailed, match="not permitted") as caught,
        monty.session(frozenset()) as session,
    ):
        session.start(MONTY_REFUSES[what])
    assert caught.value.kind == "PermissionError"


def test_a_program_cannot_turn_montys_refusal_into_access(monty: Engine) -> None:
    source = "try:\n    x = open('/etc/passwd').read()\nexcept Exception as e:\n    x = str(e)\nx"
    assert outcome(monty, source) == (
        "open is not permitted here; only the given functions reach the outside"
    )


@pytest.mark.parametrize("module", ["socket", "subprocess", "ctypes", "shutil", "urllib.request"])
def test_monty_has_no_module_that_reaches_out(monty: Engine, module: str) -> None:
    lack = f"monty has no module {module.partition('.')[0]}"
    with pytest.raises(Unsupported, match=lack), monty.session(frozenset()) as session:
        session.start(f"import {module}")


MONTY_BOUNDS: dict[str, tuple[str, type[SandboxError]]] = {
    "time": ("while True: pass", SandboxTimeout),
    "memory": ("x = []\nwhile True: x.append('y' * 10**6)", SandboxLimit),
    "memory at once": ("'y' * 10**11\n1", SandboxLimit),
    "output": ("while True: print('y')", SandboxLimit),
    "recursion": ("def f(): return f()\nf()", ProgramFailed),
    "a deep value": ("x = []\nfor _ in range(10**5): x = [x]\n1", SandboxError),
}


@pytest.mark.parametrize("what", MONTY_BOUNDS)
def test_monty_is_bounded(what: str) -> None:
    source, expected = MONTY_BOUNDS[what]
    with MontyEngine(Limits(seconds=1.0, memory=50_000_000, output=10_000)) as engine:
        found = outcome(engine, source)
        assert found == 1 or (isinstance(found, type) and issubclass(found, expected))
        assert outcome(engine, "1") == 1


def test_a_crashed_monty_worker_ends_its_own_session_only(monty: Engine) -> None:
    with monty.session(frozenset({"ask"})) as session, monty.session(frozenset()) as other:
        assert session.start("ask()") == Paused("ask", (), {}, 1)
        worker = session._checkout.worker_pid  # type: ignore[attr-defined]
        os.kill(worker, 9)
        with pytest.raises(SandboxDied):
            session.resume(1)
        assert other.start("1") == Finished("", 1, "1")
    assert threading.active_count() < 20
