"""Stops: every system call that is not in the tables below, and those with other arguments than listed; the
machine's other system call interfaces (i386, x32, 32-bit ARM).

Does not stop: bugs in the allowed calls; anything behind pointers (a filter sees registers, not memory).

Assembles the seccomp filters of a child and of its server as classic BPF (Linux's
Documentation/userspace-api/seccomp_filter.rst). Knows no process: `fence` installs them.
"""

import errno
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Machine -> its AUDIT_ARCH number (linux/audit.h)."""

ALLOW = 0x7FFF0000
KILL = 0x80000000
"""Ends the whole process."""
REFUSE = 0x00050000 | errno.EPERM

SOCKET = 3
"""The only descriptor of a child: its socket. In the server it is the control socket."""

LOAD, AND, IF_EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, value (struct sock_filter)."""


@dataclass(frozen=True)
class Condition:
    """Argument `index`, without the bits of `free`, is one of `values`.

    Only the low half is tested: the Linux kernel reads no more of the arguments tested here.
    """

    index: int
    values: tuple[int, ...]
    free: int = 0


_READ_WRITE = 1 | 2
_MAP_PRIVATE_ANONYMOUS, _MAP_FIXED, _MAP_NORESERVE, _MAP_STACK = 0x22, 0x10, 0x4000, 0x20000
_DONTNEED, _FREE = 4, 8
_PRIVATE, _CLOCK_REALTIME = 128, 256
_FUTEX = tuple(_PRIVATE | operation for operation in (0, 1, 9, 10))  # wait, wake, and with bits
_SIGCHLD, _CHILD_CLEARTID, _CHILD_SETTID = 17, 0x0020_0000, 0x0100_0000
# PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS
_PRCTL = (1, 4, 22, 38)

_ON_THE_SOCKET = (Condition(0, (SOCKET,)),)
_NOT_EXECUTABLE = Condition(2, (0,), free=_READ_WRITE)
_ANONYMOUS = Condition(3, (_MAP_PRIVATE_ANONYMOUS,), free=_MAP_FIXED | _MAP_NORESERVE | _MAP_STACK)
_ITSELF = (Condition(0, (0,)),)

_NONE = None  # a call that the machine does not have
Numbers = tuple[int | None, int | None]
Calls = Mapping[str, tuple[Numbers, tuple[Condition, ...]]]

CHILD: Calls = {
    "read": ((0, 63), _ON_THE_SOCKET),
    "write": ((1, 64), _ON_THE_SOCKET),
    "mmap": ((9, 222), (_NOT_EXECUTABLE, _ANONYMOUS)),
    "mprotect": ((10, 226), (_NOT_EXECUTABLE,)),
    "munmap": ((11, 215), ()),
    "brk": ((12, 214), ()),
    "mremap": ((25, 216), ()),
    "madvise": ((28, 233), (Condition(2, (_DONTNEED, _FREE)),)),
    "rt_sigaction": ((13, 134), ()),
    "rt_sigprocmask": ((14, 135), ()),
    "rt_sigreturn": ((15, 139), ()),
    "futex": ((202, 98), (Condition(1, _FUTEX, free=_CLOCK_REALTIME),)),
    "clock_gettime": ((228, 113), ()),
    "gettimeofday": ((96, 169), ()),
    "getrandom": ((318, 278), ()),
    "getpid": ((39, 172), ()),
    "gettid": ((186, 178), ()),
    "exit": ((60, 93), ()),
    "exit_group": ((231, 94), ()),
}
"""Name -> its numbers on the `MACHINES`, and what its arguments must be."""

SERVER: Calls = {
    **CHILD,
    # It gets a child's socket, and passes that child's pidfd on.
    "recvmsg": ((47, 212), _ON_THE_SOCKET),
    "sendmsg": ((46, 211), _ON_THE_SOCKET),
    "pidfd_open": ((434, 434), ()),
    "close": ((3, 57), ()),
    # It forks, without new namespaces or threads, and reaps.
    "clone": (
        (56, 220),
        (Condition(0, (_SIGCHLD,), free=_CHILD_SETTID | _CHILD_CLEARTID),),
    ),
    "fork": ((57, _NONE), ()),  # musl's way
    "wait4": ((61, 260), ()),
    # A forked child begins with these in glibc and in musl.
    "set_robust_list": ((273, 99), ()),
    "set_tid_address": ((218, 96), ()),
    # A child inherits this filter, and gives up its rights within it.
    "dup2": ((33, _NONE), ()),
    "dup3": ((292, 24), ()),
    "close_range": ((436, 436), ()),
    "setgroups": ((116, 159), ()),
    "setresgid": ((119, 149), ()),
    "setresuid": ((117, 147), ()),
    "capset": ((126, 91), ()),
    "prlimit64": ((302, 261), _ITSELF),
    "prctl": ((157, 167), (Condition(0, _PRCTL),)),
    "getppid": ((110, 173), ()),
}
"""The same for the server, from the end of its imports on. A child has this filter too, below its own."""


def assemble(calls: Calls, machine: str) -> bytes:
    """The filter that allows `calls` on one of `MACHINES`: an array of struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *each) for each in _instructions(calls, machine))


def _instructions(calls: Calls, machine: str) -> Iterator[Instruction]:
    number_offset, machine_offset = 0, 4  # in struct seccomp_data
    yield LOAD, 0, 0, machine_offset
    yield IF_EQUAL, 1, 0, MACHINES[machine]
    yield RETURN, 0, 0, KILL
    yield LOAD, 0, 0, number_offset
    place = list(MACHINES).index(machine)
    for numbers, conditions in calls.values():
        if (number := numbers[place]) is not None:
            checks = [each for condition in conditions for each in _check(condition)]
            yield IF_EQUAL, 0, len(checks) + 1, number
            yield from checks
            yield RETURN, 0, 0, ALLOW
    yield RETURN, 0, 0, REFUSE


def _check(condition: Condition) -> Iterator[Instruction]:
    """Refuses, or continues after the last instruction. The number is lost: a call is checked once."""
    yield LOAD, 0, 0, 16 + 8 * condition.index
    if condition.free:
        yield AND, 0, 0, 0xFFFF_FFFF & ~condition.free
    for place, value in enumerate(condition.values):
        yield IF_EQUAL, len(condition.values) - place, 0, value
    yield RETURN, 0, 0, REFUSE
