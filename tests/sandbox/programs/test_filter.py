"""The system calls of a child and of its server, by an interpreter of their filters."""

from __future__ import annotations

import pytest

from sandbox.programs.inside import filter as filters
from sandbox.programs.inside.filter import ALLOW, CHILD, KILL, MACHINES, REFUSE, SERVER, Calls
from tests.support.bpf import result

NUMBERS = {
    "x86_64": {0, 1, 9, 10, 11, 12, 13, 14, 15, 25, 28, 39, 60, 96, 186, 202, 228, 231, 318},
    "aarch64": {63, 64, 93, 94, 98, 113, 134, 135, 139, 169, 172, 178, 214, 215, 216, 222, 226, 233, 278},
}  # fmt: skip
"""The 19 calls of a child, from the tables of the Linux kernel."""
SOUND = [(3, 0, 0, 0x22), (0, 128, 4), (0, 0, 1, 0x22), (17, 0, 0), (1, 0, 0)]
"""Arguments with which at least one call of each kind is allowed."""
each_machine = pytest.mark.parametrize("machine", MACHINES)


def allowed(calls: Calls, machine: str, number: int) -> bool:
    code = filters.assemble(calls, machine)
    found = {result(code, MACHINES[machine], number, arguments) for arguments in SOUND}
    assert found <= {ALLOW, REFUSE}
    return ALLOW in found


@each_machine
def test_a_child_has_19_system_calls(machine: str) -> None:
    assert {number for number in range(1101) if allowed(CHILD, machine, number)} == NUMBERS[machine]


@each_machine
def test_a_server_has_the_system_calls_of_its_table(machine: str) -> None:
    place = list(MACHINES).index(machine)
    named = {numbers[place] for numbers, _ in SERVER.values()} - {None}
    assert {number for number in range(1101) if allowed(SERVER, machine, number)} == named


@each_machine
@pytest.mark.parametrize("calls", [CHILD, SERVER], ids=["child", "server"])
def test_other_system_call_interfaces_are_refused(machine: str, calls: Calls) -> None:
    code = filters.assemble(calls, machine)
    x32 = 0x4000_0000
    for number in range(1101):
        assert result(code, MACHINES[machine], number | x32, (3,)) == REFUSE
    foreign = {0x40000003, 0x40000028, 0, *MACHINES.values()} - {MACHINES[machine]}  # i386, ARM
    for other in foreign:
        assert {result(code, other, number, (3,)) for number in range(1101)} == {KILL}


ARGUMENTS: list[tuple[str, tuple[int, ...], int]] = [
    ("write", (3, 0, 0), ALLOW),
    ("write", (2, 0, 0), REFUSE),
    ("write", (1 << 32 | 3, 0, 0), ALLOW),  # the Linux kernel reads the low half
    ("read", (0, 0, 0), REFUSE),
    ("mmap", (0, 4096, 3, 0x22), ALLOW),
    ("mmap", (0, 4096, 3, 0x22 | 0x4010), ALLOW),
    ("mmap", (0, 4096, 5, 0x22), REFUSE),  # executable
    ("mmap", (0, 4096, 3, 0x21), REFUSE),  # shared
    ("mmap", (0, 4096, 3, 0x02), REFUSE),  # of a file
    ("mprotect", (0, 4096, 1), ALLOW),
    ("mprotect", (0, 4096, 4), REFUSE),
    ("mprotect", (0, 4096, 0x0100_0001), REFUSE),
    ("madvise", (0, 4096, 4), ALLOW),
    ("madvise", (0, 4096, 9), REFUSE),
    ("futex", (0, 128), ALLOW),
    ("futex", (0, 128 | 9 | 256), ALLOW),
    ("futex", (0, 0), REFUSE),  # of other processes
    ("futex", (0, 128 | 4), REFUSE),
]


@each_machine
@pytest.mark.parametrize(("name", "arguments", "expected"), ARGUMENTS)
def test_arguments_are_checked(
    machine: str, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    number = CHILD[name][0][list(MACHINES).index(machine)]
    assert number is not None
    code = filters.assemble(CHILD, machine)
    assert result(code, MACHINES[machine], number, arguments) == expected
    everything = filters.assemble({name: (CHILD[name][0], ())}, machine)  # the control
    assert result(everything, MACHINES[machine], number, arguments) == ALLOW


@each_machine
def test_a_server_changes_the_limits_of_no_other_process(machine: str) -> None:
    number = SERVER["prlimit64"][0][list(MACHINES).index(machine)]
    assert number is not None
    code = filters.assemble(SERVER, machine)
    assert result(code, MACHINES[machine], number, (0,)) == ALLOW
    assert result(code, MACHINES[machine], number, (1,)) == REFUSE
