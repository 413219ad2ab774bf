"""Each rule of a child's fence, with a control: the same act in a child without the rule."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.engine import Limits
from sandbox.errors import SandboxUnavailable
from sandbox.programs.inside.fence import STEPS
from sandbox.programs.server import FenceBroken, ProgramServer
from sandbox.programs.server_process import ENVIRONMENT, ServerProcess
from tests.support.children import run
from tests.support.native_code import LIMITS, PRELUDE, answer, launch, server
from tests.support.processes import wait_until

NO_FILTER = {"filter", "server filter"}
AS_ROOT = os.geteuid() == 0
DESCRIPTORS = "value = [n for n in range(65536) if error_of(lambda: os.fstat(n)) == 0]"
STATUS = """
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
value = [int(lines[name], 16) for name in ("CapInh", "CapPrm", "CapEff")]
"""
KINDS = [
    "RLIMIT_AS",
    "RLIMIT_CPU",
    "RLIMIT_NOFILE",
    "RLIMIT_FSIZE",
    "RLIMIT_CORE",
    "RLIMIT_MEMLOCK",
]
RLIMITS = f"value = {{n: list(resource.getrlimit(getattr(resource, n))) for n in {KINDS}}}"
DUMPABLE = "value = libc.prctl(3, 0, 0, 0, 0)"


def test_a_child_has_one_descriptor_of_65536() -> None:
    assert answer(DESCRIPTORS, without=NO_FILTER) == [3]
    without_rule = answer(DESCRIPTORS, without={*NO_FILTER, "descriptors"})
    assert len(without_rule) > 4, without_rule


def test_a_child_reads_and_writes_its_socket_only() -> None:
    tried = """
reads = [n for n in range(65536) if n != 3 and error_of(lambda: os.read(n, 0)) != 1]
writes = [n for n in range(65536) if n != 3 and error_of(lambda: os.write(n, b"")) != 1]
value = [reads, writes]
"""
    assert answer(tried) == [[], []]
    reads, writes = answer(tried, without=NO_FILTER)
    assert len(reads) == len(writes) == 65535


@pytest.mark.skipif(not AS_ROOT, reason="only root's server may change the user of a child")
def test_a_child_of_root_runs_as_nobody() -> None:
    code = "value = [*os.getresuid(), *os.getresgid(), *os.getgroups()]"
    assert answer(code, without=NO_FILTER) == [65534] * 6
    assert answer(code, without={*NO_FILTER, "user"})[:6] == [0] * 6


@pytest.mark.skipif(not AS_ROOT, reason="an ordinary user's server has no capabilities")
def test_a_child_of_root_has_no_capabilities() -> None:
    assert answer(STATUS, without={*NO_FILTER, "user"}) == [0, 0, 0]
    assert answer(STATUS, without={*NO_FILTER, "user", "capabilities"})[2] != 0


def test_a_child_has_limits_that_it_cannot_raise() -> None:
    limits = answer(RLIMITS, without=NO_FILTER)
    space = limits.pop("RLIMIT_AS")
    assert space[0] == space[1] < LIMITS.memory + 2**30
    assert limits == {
        "RLIMIT_CPU": [21, 21],
        "RLIMIT_NOFILE": [4, 4],
        "RLIMIT_FSIZE": [0, 0],
        "RLIMIT_CORE": [0, 0],
        "RLIMIT_MEMLOCK": [0, 0],
    }
    without_rule = answer(RLIMITS, without={*NO_FILTER, "limits"})
    assert all(without_rule[name] != limit for name, limit in {**limits, "RLIMIT_AS": space}.items()
               if name != "RLIMIT_CORE")  # fmt: skip


def test_a_child_is_not_dumpable() -> None:
    assert answer(DUMPABLE, without=NO_FILTER) == 0
    # A change of user clears the mark as well (prctl(2)).
    assert answer(DUMPABLE, without={*NO_FILTER, "dumpable", "user"}) == 1


@pytest.mark.parametrize(("without", "ends"), [((), True), ({"parent"}, False)])
def test_a_child_ends_with_its_server(without: set[str], *, ends: bool) -> None:
    with server(without=without) as (_, process):
        handle = process.fork()
        ended = select.poll()
        ended.register(handle.pidfd, select.POLLIN)
        handle.socket.setblocking(True)
        os.kill(process.pid, signal.SIGKILL)
        assert bool(ended.poll(5000 if ends else 300)) is ends
        handle.kill()
        handle.close()


def test_every_step_has_a_test() -> None:
    text = Path(__file__).read_text()
    assert [name for name in STEPS if f'"{name}"' not in text] == []


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user that a program might attack."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


ATTACKS = {
    "change its limits": "libc.prlimit({pid}, 7, ctypes.byref((ctypes.c_ulong * 2)(5, 5)), None)",
    "signal it": "libc.kill({pid}, 0)",
    "trace it": "libc.ptrace(0x4206, {pid}, 0, 0)",
    "read its memory": "libc.process_vm_readv({pid}, None, 0, None, 0, 0)",
    "find its group": "libc.getpgid({pid})",
    "look at its scheduling": "libc.sched_getscheduler({pid})",
    "start a thread of its own": "libc.unshare(0)",
    "open a file": "libc.open(b'/etc/hostname', 0)",
    "ask for a socket": "libc.socket(1, 1, 0)",
    "send on its socket by another call": "libc.send(3, b'', 0, 0)",
    "duplicate its socket": "libc.dup(3)",
    "control its socket": "libc.fcntl(3, 1)",
    "poll": "libc.poll(None, 0, 0)",
    "sleep": "libc.usleep(1)",
    "set a timer": "libc.alarm(0) - 1",
    "change its name": "libc.prctl(15, b'name', 0, 0, 0)",
    "hold its memory": "libc.mlockall(0)",
    "share a key": "libc.shmget(0, 4096, 0o1600)",
    "make a file of memory": "libc.memfd_create(b'', 0)",
    "read the machine's name": "libc.uname(ctypes.create_string_buffer(1024))",
}
ALWAYS_REFUSED = {"hold its memory"}
"""What an ordinary process may not do either, or what fails for another reason; no control."""


@pytest.mark.parametrize("attack", ATTACKS)
def test_native_code_in_a_child_is_refused(attack: str, victim: subprocess.Popen[bytes]) -> None:
    code = f"""
ctypes.set_errno(0)
value = [{ATTACKS[attack].format(pid=victim.pid)}, ctypes.get_errno()]
"""
    others = {"user", "capabilities", "limits"}  # so that only the filter can refuse
    assert answer(code, without=others)[1] == errno.EPERM
    if attack not in ALWAYS_REFUSED:
        assert answer(code, without={*others, *NO_FILTER})[1] != errno.EPERM
    assert victim.poll() is None


EXECUTABLE = """
import mmap
def mapped(protection, flags):
    return error_of(lambda: mmap.mmap(-1, 4096, flags=flags, prot=protection).close())
value = [mapped(3, 0x22), mapped(5, 0x22), mapped(7, 0x22), mapped(3, 0x21)]
"""


def test_a_child_maps_private_memory_that_cannot_be_executed() -> None:
    assert answer(EXECUTABLE) == [0, errno.EPERM, errno.EPERM, errno.EPERM]
    assert answer(EXECUTABLE, without={*NO_FILTER, "limits"}) == [0, 0, 0, 0]


SERVER_ACTS = """
value = {
    "open": error_of(lambda: os.close(os.open("/", os.O_RDONLY))),
    "execute": 0 if libc.execve(b"", None, None) >= 0 else ctypes.get_errno(),
    "make a socket": 0 if libc.socket(1, 1, 0) >= 0 else ctypes.get_errno(),
    "connect": 0 if libc.connect(3, b"", 0) >= 0 else ctypes.get_errno(),
}
"""


def test_the_server_opens_executes_and_connects_nothing() -> None:
    """A child without the last step has its server's filter."""
    assert set(answer(SERVER_ACTS, without={"filter"}).values()) == {errno.EPERM}
    without_rule = answer(SERVER_ACTS, without={*NO_FILTER, "limits"})
    assert errno.EPERM not in without_rule.values()


def test_a_server_with_shared_writable_memory_does_not_start() -> None:
    first = "import mmap; shared = mmap.mmap(-1, 4096); "
    with pytest.raises(SandboxUnavailable, match="shared writable memory"):
        launch(first=first)
    launch(first=first, without={"shared memory"}).close()


def test_a_server_has_two_variables_its_own_session_and_no_standard_streams() -> None:
    with server() as (programs, process):
        programs.open().close()
        of_server = Path(f"/proc/{process.pid}")
        variables = dict(
            each.split("=", 1) for each in (of_server / "environ").read_text().split("\0") if each
        )
        assert variables == ENVIRONMENT
        session = re.sub(r".*\) ", "", (of_server / "stat").read_text()).split()[3]
        assert int(session) == process.pid
        # The server has a socket and a descriptor of a child until it has noticed the child's end.
        wait_until(lambda: len([*(of_server / "fd").iterdir()]) == 4)
        opened = {int(each.name): str(each.readlink()) for each in (of_server / "fd").iterdir()}
        assert {name: opened.pop(name) for name in (0, 1, 2)} == dict.fromkeys(
            range(3), "/dev/null"
        )
        assert opened.pop(3).startswith("socket:")
        assert opened == {}


def memory_of(pid: int) -> Iterator[bytes]:
    """The readable memory of a process."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if " r" in line and "[v" not in line:
                start, end = (int(each, 16) for each in line.split()[0].split("-"))
                memory.seek(start)
                yield memory.read(end - start)


def test_no_data_of_a_program_stays_in_the_server() -> None:
    """Also not while the program still runs: later children are copies of the server."""
    secret = b"residue-" + os.urandom(8).hex().encode()
    process: list[ServerProcess] = []
    control = "a name in the server's memory".replace(" ", "-")

    def start() -> ServerProcess:
        process.append(launch(first=f"kept = {control!r}; "))
        return process[0]

    programs = ProgramServer(LIMITS, launch=start)
    try:
        programs.check()
        with programs.open() as child:
            code = f"kept = [{secret.decode()!r} * n for n in range(1, 50)]; value = len(kept)"
            assert child.ask({"code": code})["value"] == 49
            held = b"".join(memory_of(process[0].pid))
            assert control.encode() in held
            assert secret not in held
        assert secret not in b"".join(memory_of(process[0].pid))
    finally:
        programs.close()


@pytest.mark.parametrize("without", [{"filter"}, {"filter", "server filter"}])
def test_the_probe_finds_a_filter_that_is_missing(without: set[str]) -> None:
    programs = ProgramServer(LIMITS, launch=lambda: launch(without=without))
    try:
        with pytest.raises(FenceBroken, match="programs' fence"):
            programs.check()
        assert programs.problem is not None
        with pytest.raises(FenceBroken):
            programs.open()
        [row] = programs.checks()
        assert not row.ok
        assert "programs' fence" in row.detail
    finally:
        programs.close()


def test_the_probe_tries_more_than_ten_acts(programs: ProgramServer) -> None:
    [row] = programs.checks()
    assert row.ok
    acts = int(row.detail.split()[0])
    assert acts >= 10


def test_a_child_in_a_loop_ends_by_its_cpu_limit() -> None:
    limits = Limits(seconds=0.5, memory=LIMITS.memory)
    with server(limits=limits) as (_, process):
        handle = process.fork()
        code = (PRELUDE + "while True: pass").encode()
        message = b'{"code": ' + b'"' + code.replace(b"\n", b"\\n").replace(b'"', b'\\"') + b'"}'
        handle.socket.setblocking(True)
        handle.socket.sendall(len(message).to_bytes(4, "big") + message)
        ended = select.poll()
        ended.register(handle.pidfd, select.POLLIN)
        assert ended.poll(20_000), "RLIMIT_CPU ends it"
        handle.close()


def test_a_program_cannot_reach_its_servers_resources(programs: ProgramServer) -> None:
    """The acts above as a program writes them; `test_escape` has many more."""
    source = """
import os
found = []
for act in (lambda: os.getppid() and os.kill(os.getppid(), 9), lambda: os.listdir("/"), lambda: os.fork(),
            lambda: os.dup(3), lambda: os.sched_setaffinity(0, {0}), lambda: os.nice(1)):
    try:
        act()
        found.append("done")
    except Exception as error:
        found.append(type(error).__name__)
print(found)
"""
    ended = run(programs, source)
    assert "done" not in str(ended), ended
