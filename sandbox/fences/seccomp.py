"""Stops: every system call that is not on the list of `sandbox.fences.syscalls`, sockets other than
AF_UNIX, new namespaces, injecting characters into a terminal, the machine's other system call interfaces
(i386, x32).

Does not stop: bugs in the allowed calls; anything behind pointers (a filter sees registers, not memory),
so neither paths nor addresses.

Assembles a seccomp filter for kernels. `assemble` makes classic BPF (Linux's
Documentation/userspace-api/seccomp_filter.rst) in the form that `bwrap --seccomp` reads: an array of
struct sock_filter. `profile` is the same filter for a Docker engine (docs.docker.com, "Seccomp security
profiles for Docker").
"""

import errno
import platform
import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from sandbox.errors import SandboxUnavailable
from sandbox.fences.syscalls import ALLOWED, EXAMINED

_LOAD, _RETURN = 0x20, 0x06
_IF_EQUAL, _IF_GREATER, _IF_NOT_LESS, _IF_ANY_BIT = 0x15, 0x25, 0x35, 0x45

_NUMBER, _MACHINE = 0, 4  # offsets in struct seccomp_data


def _argument(index: int) -> int:
    return 16 + 8 * index  # the low half: the kernel reads no more of these arguments


ALLOW = 0x7FFF0000
KILL = 0x80000000


def refuse(error: int) -> int:
    """The filter result that makes a call fail with `error`."""
    return 0x00050000 | error


AUDIT_MACHINE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_AF_UNIX = 1
# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_CLONE_NEW = 0x0002_0000 | 0x7E00_0000
# TIOCSTI, TIOCLINUX and TIOCSETD can escape from the sandbox through a terminal.
_TERMINAL = (0x5412, 0x541C, 0x5423)
# They name a process, bind it to its parent, or drop rights; the last one names memory for glibc.
_PRCTL = (1, 2, 3, 4, 8, 15, 16, 21, 23, 24, 27, 29, 30, 38, 39, 47, 0x53564D41)

Instruction = tuple[int, int, int, int]


def _one_of(index: int, values: tuple[int, ...], then: int, otherwise: int) -> list[Instruction]:
    """Return `then` if the argument is one of `values`, else `otherwise`."""
    tests = [(_IF_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [
        (_LOAD, 0, 0, _argument(index)), *tests,
        (_RETURN, 0, 0, otherwise), (_RETURN, 0, 0, then),
    ]  # fmt: skip


# libzmq reads EOPNOTSUPP as a machine without this kind of network, and aborts on any other error.
_NO_NETWORK = _one_of(0, (_AF_UNIX,), ALLOW, refuse(errno.EOPNOTSUPP))

_EXAMINATIONS: dict[str, list[Instruction]] = {
    "socket": _NO_NETWORK,
    "socketpair": _NO_NETWORK,
    "clone": [
        (_LOAD, 0, 0, _argument(0)),
        (_IF_ANY_BIT, 0, 1, _CLONE_NEW),
        (_RETURN, 0, 0, refuse(errno.EPERM)),
        (_RETURN, 0, 0, ALLOW),
    ],
    "ioctl": _one_of(1, _TERMINAL, refuse(errno.EPERM), ALLOW),
    "prctl": _one_of(0, _PRCTL, ALLOW, refuse(errno.EPERM)),
}


def assemble(machine: str | None = None) -> bytes:
    """The filter for `machine`, by default this one. Raises SandboxUnavailable if there is none."""
    machine = _supported(machine)
    instructions: list[Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_IF_EQUAL, 1, 0, AUDIT_MACHINE[machine]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for first, last in _ranges(sorted(ALLOWED[machine].values())):
        instructions += [
            (_IF_NOT_LESS, 0, 2, first), (_IF_GREATER, 1, 0, last), (_RETURN, 0, 0, ALLOW),
        ]  # fmt: skip
    for name, number in EXAMINED[machine].items():
        examination = _EXAMINATIONS[name]
        instructions += [(_IF_EQUAL, 0, len(examination), number), *examination]
    instructions.append((_RETURN, 0, 0, refuse(errno.ENOSYS)))
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)


def profile(machine: str | None = None) -> dict[str, Any]:
    """The same filter as a profile for a Docker engine. Raises SandboxUnavailable if there is none.

    Differences: calls refused for their arguments fail with ENOSYS, except sockets; every ioctl is
    allowed, since a container has no terminal except its own; engines before version 23 ignore
    `defaultErrnoRet` and use EPERM.
    """
    machine = _supported(machine)
    allow = {"action": "SCMP_ACT_ALLOW"}
    sockets = {"names": ["socket", "socketpair"]}
    no_network = {"action": "SCMP_ACT_ERRNO", "errnoRet": errno.EOPNOTSUPP}
    other = {"index": 0, "value": _AF_UNIX, "op": "SCMP_CMP_NE"}
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.ENOSYS,
        "architectures": [f"SCMP_ARCH_{machine.upper()}"],
        "syscalls": [
            {**allow, "names": [*ALLOWED[machine], "ioctl"]},
            # glibc falls back to clone only after ENOSYS.
            {"action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS, "names": ["clone3"]},
            {**allow, **sockets, "args": [_equals(_AF_UNIX)]},
            {**no_network, **sockets, "args": [other]},
            {**allow, "names": ["clone"], "args": [_equals(0, within=_CLONE_NEW)]},
            *({**allow, "names": ["prctl"], "args": [_equals(option)]} for option in _PRCTL),
        ],
    }


def _equals(value: int, within: int = 0xFFFFFFFF) -> dict[str, Any]:
    """A condition on the first argument: its bits ``within`` equal `value`."""
    return {"index": 0, "value": within, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _supported(machine: str | None) -> str:
    machine = machine or platform.machine()
    if machine not in AUDIT_MACHINE:
        raise SandboxUnavailable(
            f"there is no seccomp filter for {machine}",
            f"use one of {', '.join(AUDIT_MACHINE)}, or run with --sandbox none",
        )
    return machine


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of consecutive numbers."""
    first = numbers[0]
    for number, following in pairwise([*numbers, -1]):
        if following != number + 1:
            yield first, number
            first = following
