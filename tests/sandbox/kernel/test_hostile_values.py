"""Attacks of a program on its own kernel and on others: stolen keys, forged ends, acting values.

Each attempt first where nothing is in its way (a plain interpreter, or kernels without a sandbox), where it
must come off; then in the place where kernels run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from textwrap import dedent

import pytest

from sandbox.engine import JSON, Finished, Limits, Paused
from sandbox.errors import SandboxError
from sandbox.kernel.engine import KernelEngine
from tests.sandbox.promises import ACTING
from tests.support.cells import cells
from tests.support.places import kernels

LIMITS = Limits(seconds=30.0, memory=256 * 1024 * 1024, output=10_000, pauses=5)


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelEngine]:
    with kernels(LIMITS, warm=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def unguarded() -> Iterator[KernelEngine]:
    with KernelEngine(LIMITS, place="none", warm=0) as engine:
        yield engine


def ended(engine: KernelEngine, source: str) -> JSON | type[SandboxError]:
    """The program's value, or the kind of error that ended it; each call is answered with 1."""
    try:
        with cells(engine, frozenset({"ask"})) as session:
            step = session.start(dedent(source))
            while isinstance(step, Paused):
                step = session.resume(1)
    except SandboxError as error:
        return type(error)
    return step.value


# Another session's kernel

STEAL = """
import glob, json, os, time
from jupyter_client.blocking.client import BlockingKernelClient

def connections():
    for place in glob.glob('/proc/[0-9]*/fd/*'):
        try:
            if place.split('/')[2] != str(os.getpid()) and 'memfd:kernel' in os.readlink(place):
                found = json.loads(os.pread(os.open(place, os.O_RDONLY), 10_000, 0))
                if found['ip'] == WANTED:
                    yield found
        except (OSError, ValueError, LookupError):
            pass

def attack():
    for found in connections():
        client = BlockingKernelClient()
        client.load_connection_info(found)
        client.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=False)
        client.execute('stolen = True', reply=True, timeout=20)
        client.stop_channels()
        return found['key'] != ''
    return False

attack()
"""
"""Find the key of another kernel's connection, and run code in that kernel with it."""

WHERE = """
kernel = get_ipython().kernel.parent
kernel.ip
"""


def stolen(engine: KernelEngine) -> tuple[JSON, JSON]:
    """Whether the attack says that it came off, and whether the other session notices it."""
    with cells(engine) as victim, cells(engine) as thief:
        step = victim.start(dedent(WHERE))
        assert isinstance(step, Finished)
        said = thief.start(f"WANTED = {step.value!r}\n{STEAL}")
        seen = victim.start("'stolen' in globals()")
        assert isinstance(said, Finished) and isinstance(seen, Finished)
        return said.value, seen.value


def test_without_a_sandbox_a_program_takes_another_kernel_over_by_its_key(
    unguarded: KernelEngine,
) -> None:
    assert stolen(unguarded) == (True, True)


def test_no_program_gets_the_key_of_another_kernel(kernel: KernelEngine) -> None:
    assert stolen(kernel) == (False, False)


# Descriptors

INHERITED = """
import os
def secrets():
    for number in os.listdir('/proc/self/fd'):
        try:
            if b'inherited secret' in os.pread(int(number), 100, 0):
                yield number
        except OSError:
            pass
bool(list(secrets()))
"""


def test_a_descriptor_that_the_host_holds_open_for_its_children_is_no_kernels() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"inherited secret")
        file.flush()
        os.set_inheritable(file.fileno(), True)
        outside = INHERITED.replace("bool(", "raise SystemExit(not ")
        command = [sys.executable, "-c", outside]
        assert subprocess.run(command, check=False, close_fds=False).returncode == 0
        with kernels(LIMITS, warm=0) as engine:
            assert ended(engine, INHERITED) is False


# Forged ends

FORGED_END = """
kernel = get_ipython().kernel
parent = PARENT or kernel.get_parent()
data = {'text/plain': '666', 'application/vnd.tool-emulator.value+json': '666'}
def tell(socket, kind, content, **more):
    kernel.session.send(socket, kind, content, parent=parent, **more)
tell(kernel.iopub_socket, 'execute_result', {'data': data, 'execution_count': 1, 'metadata': {}})
tell(kernel.iopub_socket, 'status', {'execution_state': 'idle'})
tell(kernel.shell_stream.socket, 'execute_reply', {'status': 'ok', 'execution_count': 1},
     ident=kernel._shell_parent_ident.get())
import _thread
lock = _thread.allocate_lock()
lock.acquire(), lock.acquire(timeout=0.5)
7
"""
"""Say, signed, that a piece has ended, and with what: the program's own, or the one that PARENT names."""


@pytest.mark.parametrize("place", ["none", "sandbox"])
def test_a_forged_end_affects_only_the_programs_own_session(
    place: str, kernel: KernelEngine, unguarded: KernelEngine
) -> None:
    """A program can always report a false end of itself; the host trusts it no more than its output."""
    engine = unguarded if place == "none" else kernel
    with cells(engine) as session, cells(engine) as other:
        assert session.start(f"PARENT = None\n{FORGED_END}") == Finished("", 666, "666")
        assert session.start("2") == Finished("", 2, "2")
        assert other.start("1") == Finished("", 1, "1")


def test_an_end_that_is_forged_for_another_session_is_ignored(kernel: KernelEngine) -> None:
    header = "{k: str(v) for k, v in get_ipython().kernel.get_parent()['header'].items()}"
    with (
        cells(kernel, frozenset({"ask"})) as victim,
        cells(kernel) as forger,
    ):
        paused = victim.start(f"given = ask({header})\ngiven + 1")
        assert isinstance(paused, Paused)
        parent = {"header": paused.args[0]}
        assert forger.start(f"PARENT = {parent!r}\n{FORGED_END}") == Finished("", 7, "7")
        assert victim.resume(1) == Finished("", 2, "2")


# Values that act when they are looked at


CALLS = """
import sys
calls = 0
def ask(*_):
    global calls
    calls += 1
    if calls > 99:
        sys.exit(3)
"""


@pytest.mark.parametrize("what", ACTING)
def test_a_value_with_side_effects_acts_in_a_plain_interpreter(what: str) -> None:
    source, shown, _ = ACTING[what]
    code = f"{CALLS}\n{source}\n{shown}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=False, timeout=2
        )
    except subprocess.TimeoutExpired:
        return
    assert done.returncode != 0 or len(done.stdout) > 10_000_000


@pytest.mark.parametrize("what", ACTING)
def test_a_value_with_side_effects_is_bounded_and_ends_only_its_own_piece(
    kernel: KernelEngine, what: str
) -> None:
    source, _, comes = ACTING[what]
    with kernels(Limits(seconds=2.0, output=10_000, pauses=5), warm=0) as engine:
        found = ended(engine, source)
    assert isinstance(found, type) and found.__name__ in comes, found
