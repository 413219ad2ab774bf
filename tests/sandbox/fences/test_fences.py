"""The fences one by one: the seccomp filter on every machine, control groups, sweeps, the pool."""

import contextlib
import errno
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from emulator.interpreter import doctor
from emulator.interpreter.engines import InterpreterEngines
from emulator.settings.settings import Settings
from sandbox.errors import SandboxBusy, SandboxDied, SandboxUnavailable
from sandbox.fences import cgroups, leftovers, probes, seccomp, syscalls
from sandbox.fences.cgroups import ControlGroup, Roots
from sandbox.fences.probes import FENCES, FenceProbe
from sandbox.pool import WarmPool
from sandbox.report import Check

ROOT = Path(__file__).parents[3]
no_bubblewrap = probes.problem()
needs_bubblewrap = pytest.mark.skipif(no_bubblewrap is not None, reason=str(no_bubblewrap))

ENOSYS, EPERM = seccomp.refuse(errno.ENOSYS), seccomp.refuse(errno.EPERM)
NO_NETWORK = seccomp.refuse(errno.EOPNOTSUPP)


def answer(machine: str, number: int, *arguments: int, entry: int | None = None) -> int:
    """What the filter answers: classic BPF, as far as the filter uses it."""
    words = [number, entry or seccomp.AUDIT_MACHINE[machine], 0, 0]
    for argument in [*arguments, *[0] * (6 - len(arguments))]:
        words += [argument & 0xFFFFFFFF, argument >> 32]
    code = list(struct.iter_unpack("=HBBI", seccomp.assemble(machine)))
    loaded, place = 0, 0
    while True:
        operation, then, otherwise, value = code[place]
        place += 1
        match operation:
            case 0x20:
                loaded = words[value // 4]
            case 0x06:
                return int(value)
            case 0x15:
                place += then if loaded == value else otherwise
            case 0x25:
                place += then if loaded > value else otherwise
            case 0x35:
                place += then if loaded >= value else otherwise
            case 0x45:
                place += then if loaded & value else otherwise


ANSWERS = {
    "a local socket": ("socket", (1, 1), seccomp.ALLOW),
    "an inet socket": ("socket", (2, 1), NO_NETWORK),
    "a netlink socket": ("socket", (16, 3), NO_NETWORK),
    "the kernel reads 32 bits of the family": ("socket", (2 + (1 << 32), 1), NO_NETWORK),
    "a pair of local sockets": ("socketpair", (1, 1), seccomp.ALLOW),
    "a pair of others": ("socketpair", (40, 1), NO_NETWORK),
    "a thread": ("clone", (0x3D0F00,), seccomp.ALLOW),
    "a child": ("clone", (signal.SIGCHLD,), seccomp.ALLOW),
    "a user namespace": ("clone", (0x10000000 | signal.SIGCHLD,), EPERM),
    "a mount namespace": ("clone", (0x00020000,), EPERM),
    "a question about a file": ("ioctl", (3, 0x541B), seccomp.ALLOW),
    "a character into the terminal": ("ioctl", (0, 0x5412), EPERM),
    "a name for a thread": ("prctl", (15,), seccomp.ALLOW),
    "turning off the speculation fences": ("prctl", (53,), EPERM),
}


@pytest.mark.parametrize("machine", syscalls.MACHINES)
@pytest.mark.parametrize("what", ANSWERS)
def test_a_call_is_judged_by_its_arguments(machine: str, what: str) -> None:
    name, arguments, expected = ANSWERS[what]
    assert answer(machine, syscalls.EXAMINED[machine][name], *arguments) == expected


def docker_answers(machine: str, name: str, *arguments: int) -> int:
    """What a Docker engine's filter answers, as an answer of ours."""
    meets = {
        "SCMP_CMP_NE": lambda found, condition: found != condition["value"],
        "SCMP_CMP_MASKED_EQ": lambda found, condition: (
            found & condition["value"] == condition["valueTwo"]
        ),
    }
    profile = seccomp.profile(machine)
    for rule in profile["syscalls"]:
        conditions = rule.get("args", [])
        if name in rule["names"] and all(
            meets[each["op"]](arguments[each["index"]], each) for each in conditions
        ):
            allowed = rule["action"] == "SCMP_ACT_ALLOW"
            return seccomp.ALLOW if allowed else seccomp.refuse(rule["errnoRet"])
    return seccomp.refuse(profile["defaultErrnoRet"])


@pytest.mark.parametrize("machine", syscalls.MACHINES)
@pytest.mark.parametrize("what", ANSWERS)
def test_a_docker_engine_gets_the_same_rules(machine: str, what: str) -> None:
    name, arguments, expected = ANSWERS[what]
    if name == "ioctl":
        expected = seccomp.ALLOW  # a container has no terminal to reach out through
    elif expected == EPERM:
        expected = ENOSYS
    assert docker_answers(machine, name, *arguments) == expected


@pytest.mark.parametrize("machine", syscalls.MACHINES)
def test_a_docker_engine_gets_the_same_list_of_system_calls(machine: str) -> None:
    named = {name for rule in seccomp.profile(machine)["syscalls"] for name in rule["names"]}
    known = {*syscalls.ALLOWED[machine], *syscalls.EXAMINED[machine]}
    assert named == {*known, "clone3"}
    assert docker_answers(machine, "clone3") == ENOSYS
    assert {docker_answers(machine, name) for name in syscalls.ALLOWED[machine]} == {seccomp.ALLOW}


@pytest.mark.parametrize("machine", syscalls.MACHINES)
def test_only_listed_system_calls_are_allowed(machine: str) -> None:
    allowed = set(syscalls.ALLOWED[machine].values())
    examined = set(syscalls.EXAMINED[machine].values())
    assert len(allowed) == len(syscalls.ALLOWED[machine])
    assert not allowed & examined
    for number in set(range(600)) - examined:
        expected = seccomp.ALLOW if number in allowed else ENOSYS
        assert answer(machine, number) == expected, number


def test_other_system_call_interfaces_are_refused() -> None:
    assert answer("x86_64", 1, entry=0x40000003) == seccomp.KILL  # int 0x80
    assert answer("x86_64", 1 | 0x40000000) == ENOSYS  # x32


def test_a_machine_without_a_filter_has_no_sandbox() -> None:
    with pytest.raises(SandboxUnavailable, match="no seccomp filter for sparc64"):
        seccomp.assemble("sparc64")


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/aarch64-linux-gnu/asm/unistd_64.h"),
}


@pytest.mark.parametrize("machine", syscalls.MACHINES)
def test_the_numbers_are_those_of_the_headers(machine: str) -> None:
    if not HEADERS[machine].exists():
        pytest.skip("the headers of this machine are not installed")
    text = HEADERS[machine].read_text()
    known = {name: int(n) for name, n in re.findall(r"#define __NR_(\w+) (\d+)", text)}
    listed = syscalls.ALLOWED[machine] | syscalls.EXAMINED[machine]
    newer = {"fchmodat2", "futex_wake", "futex_wait", "futex_requeue"}
    assert {n: v for n, v in listed.items() if n not in newer} == {
        name: known[name] for name in listed if name not in newer
    }


@pytest.fixture
def roots() -> Roots:
    found = cgroups.find()
    if isinstance(found, SandboxUnavailable):
        pytest.skip(str(found))
    return found


_SPREAD = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(30 * 2**20)
        for page in range(0, len(held), 4096):
            held[page] = 1
        time.sleep(60)
os.wait()
"""


def test_a_group_bounds_the_memory_of_all_its_processes(roots: Roots) -> None:
    group = ControlGroup(roots, memory=64 * 2**20, processes=64)
    try:
        command = group.join_command([sys.executable, "-c", _SPREAD])
        with subprocess.Popen(command, start_new_session=True) as running:
            running.wait(timeout=60)
            with_limit = group.out_of_memory()
            for pid in _members(group):
                os.kill(pid, signal.SIGKILL)
    finally:
        group.remove()
    assert with_limit
    assert not any(folder.exists() for folder in group.folders)


_FORKS = """
import os, signal
children = []
try:
    for _ in range(20):
        children.append(os.fork())
        if children[-1] == 0:
            signal.pause()
except BlockingIOError:
    print(len(children))
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_a_group_bounds_the_number_of_its_processes(roots: Roots) -> None:
    group = ControlGroup(roots, memory=2**28, processes=5)
    try:
        command = group.join_command([sys.executable, "-c", _FORKS])
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    finally:
        group.remove()
    assert done.stdout == "4\n"


def _members(group: ControlGroup) -> set[int]:
    return {
        int(pid)
        for folder in group.folders
        for pid in (folder / "cgroup.procs").read_text().split()
    }


_KILLED = """
import os, signal, subprocess, sys, tempfile
from sandbox.fences import cgroups
from sandbox.fences import leftovers
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", leftovers.mark()],
                 start_new_session=True)
tempfile.mkdtemp(prefix=f"{leftovers.mark()}-")
roots = cgroups.find()
if isinstance(roots, cgroups.Roots):
    cgroups.ControlGroup(roots, memory=2**26, processes=8)
print(leftovers.mark(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_start_sweeps_the_leftovers_of_a_killed_server() -> None:
    """A SIGKILL within milliseconds of a launch once left an idle bwrap."""
    killed = subprocess.Popen(
        [sys.executable, "-c", _KILLED], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert killed.stdout is not None
    mark = killed.stdout.readline().strip()
    killed.stdout.close()
    killed.wait()
    own = Path(tempfile.mkdtemp(prefix=f"{leftovers.mark()}-"))
    assert len(_left(mark)) >= 2
    leftovers.sweep(cgroups.folders())
    until = time.monotonic() + 10
    while _left(mark) and time.monotonic() < until:
        time.sleep(0.01)
    assert _left(mark) == []
    assert own.exists()
    own.rmdir()


def _left(mark: str) -> list[str]:
    found = [str(path) for path in Path(tempfile.gettempdir()).glob(f"{mark}-*")]
    found += [str(path) for folder in cgroups.folders() for path in folder.glob(f"{mark}-*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in command:
            found.append(str(process))
    return found


def test_resources_of_a_living_server_are_not_abandoned() -> None:
    assert not leftovers.is_abandoned(f"{leftovers.mark()}-3")
    assert not leftovers.is_abandoned("emulator-kernel-x")
    namespace = leftovers.mark().split("-")[2]
    assert leftovers.is_abandoned(f"emulator-kernel-{namespace}-{os.getpid()}-1-3")
    assert not leftovers.is_abandoned(f"emulator-kernel-1-{os.getpid()}-1-3")  # not for us to say


def test_every_fence_holds_where_there_is_a_sandbox() -> None:
    """Where a fence does not hold the other tests are skipped, so this one must not be."""
    found = probes.checks()
    if found[0].name == "bubblewrap":
        pytest.skip(found[0].detail)
    assert [check.name for check in found] == [*(fence.name for fence in FENCES), "control group"]
    assert [check for check in found if check.needed and not check.ok] == []


@needs_bubblewrap
def test_a_fence_that_does_not_hold_turns_the_engine_off(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = FenceProbe(
        "moat", "the moat is wet", "found = 'dry'", lambda found: found == "wet", "add water"
    )
    raising = FenceProbe("wall", "the wall stands", "1 / 0", lambda found: found == 1, "add bricks")
    monkeypatch.setattr(probes, "FENCES", (*FENCES, broken, raising))
    assert probes.checks()[-3:-1] == [
        Check("moat", False, "the fence does not hold: the moat is wet (found 'dry')", "add water"),
        Check("wall", False, "the fence does not hold: the wall stands "
              "(found 'ZeroDivisionError: division by zero')", "add bricks"),
    ]  # fmt: skip
    problem = probes.problem()
    assert problem is not None
    assert (problem.reason, problem.fix) == (
        "the fence does not hold: the moat is wet (found 'dry')", "add water",
    )  # fmt: skip


@needs_bubblewrap
def test_the_doctor_prints_a_table_and_returns_whether_all_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.main(Settings()) == 0
    table = capsys.readouterr().out
    assert re.findall(r"^(\S.*?)  +works  ", table, re.MULTILINE)[:4] == [
        "programs", "kernel (bubblewrap)", "interpreter", "namespaces",
    ]  # fmt: skip
    monkeypatch.setenv("PATH", "")
    assert doctor.main(Settings()) == 1
    assert "fix: install it (`apt-get install bubblewrap`)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("library", "without", "fix"),
    [
        ("ipykernel", Settings(), "pip install 'tool-use-api-emulator[kernels]'"),
        (
            "ipykernel",
            Settings(sandbox="none"),
            "pip install 'tool-use-api-emulator[kernels]'",
        ),
        (
            "docker",
            Settings(sandbox="docker"),
            'pip install "docker~=7.2" "jupyter-client~=8.10"',
        ),
        (
            "websockets",
            Settings(sandbox="gateway", gateway_url="http://127.0.0.1:9"),
            'pip install "websockets~=16.0"',
        ),
    ],
    ids=["bubblewrap", "none", "docker", "gateway"],
)
def test_a_sandbox_without_its_library_is_off_with_the_reason(
    library: str,
    without: Settings,
    fix: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SandboxUnavailable) as caught:
        InterpreterEngines(without)("1g").check()
    assert (caught.value.reason, caught.value.fix) == (
        f"the {library} library is not installed", fix,
    )  # fmt: skip
    assert doctor.main(without) == 1
    assert f"fix: {fix}" in capsys.readouterr().out


@dataclass(eq=False)
class Thing:
    """Something that can be pooled."""

    living: bool = True
    disposed: threading.Event = field(default_factory=threading.Event)

    def alive(self) -> bool:
        return self.living

    def kill(self) -> None:
        self.living = False

    def dispose(self) -> None:
        self.living = False
        self.disposed.set()


Made = tuple[WarmPool[Thing], list[Thing]]


@pytest.fixture
def make_pool() -> Iterator[Callable[..., Made]]:
    pools: list[WarmPool[Thing]] = []

    def make(**how: Any) -> Made:
        things: list[Thing] = []

        def launch() -> Thing:
            things.append(Thing())
            return things[-1]

        pool = WarmPool(launch, **how)
        pools.append(pool)
        return pool, things

    yield make
    for pool in pools:
        pool.close()


def _until(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not what() and time.monotonic() < until:
        time.sleep(0.005)
    assert what()


def test_a_waiting_kernel_that_dies_is_replaced(make_pool: Callable[..., Made]) -> None:
    pool, things = make_pool(size=1, most=4)
    pool.keep_up()
    _until(lambda: len(things) == 1)
    things[0].living = False
    _until(lambda: len(things) == 2)
    assert things[0].disposed.wait(10)
    assert pool.acquire() is things[1]


def test_a_released_kernel_ends(make_pool: Callable[..., Made]) -> None:
    pool, things = make_pool(size=0, most=4)
    taken = pool.acquire()
    assert (taken.living, len(things)) == (True, 1)
    pool.release(taken)
    assert taken.disposed.wait(10)


def test_an_acquired_kernel_is_replaced_in_the_background(make_pool: Callable[..., Made]) -> None:
    pool, things = make_pool(size=2, most=4)
    pool.keep_up()
    _until(lambda: len(things) == 2)
    pool.acquire()
    _until(lambda: len(things) == 3)
    assert things[2].living


def test_kernels_are_kept_waiting_after_the_first_use(
    make_pool: Callable[..., Made],
) -> None:
    pool, things = make_pool(size=2, most=4)
    assert things == []
    for _ in range(3):
        pool.keep_up()
    _until(lambda: len(things) == 2)
    things[0].living = False
    _until(lambda: len(things) == 3)
    assert pool.counts()["in_use"] == 0


def test_a_pool_of_size_zero_keeps_no_kernel_waiting(make_pool: Callable[..., Made]) -> None:
    pool, things = make_pool(size=0, most=4)
    pool.keep_up()
    pool.close()
    pool.keep_up()
    assert things == []


def test_a_full_pool_raises_busy_until_a_kernel_is_released(make_pool: Callable[..., Made]) -> None:
    pool, _ = make_pool(size=0, most=1)
    taken = pool.acquire()
    with pytest.raises(SandboxBusy, match="all 1 kernels are in use"):
        pool.acquire()
    pool.release(taken)
    assert pool.acquire().living


def test_kernels_that_end_immediately_are_restarted_a_limited_number_of_times(
    make_pool: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Thing, "alive", lambda self: False)
    pool, things = make_pool(size=0, most=1)
    with pytest.raises(SandboxDied, match="end immediately after their start"):
        pool.acquire()
    assert len(things) == 2


def test_a_kernel_that_does_not_start_is_started_once_more() -> None:
    starts: list[Thing | SandboxUnavailable] = [SandboxUnavailable("no answer", "wait"), Thing()]
    starts += [SandboxUnavailable("no answer", "wait")] * 2

    def launch() -> Thing:
        started = starts.pop(0)
        if isinstance(started, SandboxUnavailable):
            raise started
        return started

    with contextlib.closing(WarmPool(launch, size=0, most=1)) as pool:
        pool.release(pool.acquire())
        with pytest.raises(SandboxUnavailable, match="no answer"):
            pool.acquire()
        assert not starts
