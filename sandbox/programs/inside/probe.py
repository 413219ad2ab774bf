"""Stops: running programs where a fence has silently no effect. A child tries what it must not do, by real
system calls, before any program runs.

Does not stop: what no act tries; tests/sandbox/programs tries much more.

An act is stopped if it fails with EPERM, the filter's answer: each would succeed, or fail with another
error, in a process without the filter. No act does harm if it succeeds. The control is a call that must
succeed: otherwise the acts might fail because nothing can be called.
"""

import ctypes
import os
from collections.abc import Iterator

from sandbox.programs.inside import channel
from sandbox.programs.inside.filter import MACHINES, SOCKET

CONTROL = "control"
FOUND = "found"

_AT_FDCWD = -100
_SIGCHLD = 17
_READ, _EXECUTE = 1, 4
_PRIVATE_ANONYMOUS, _SHARED_ANONYMOUS = 0x22, 0x21
_RLIMIT_NOFILE = 7

_NUMBERS = {
    "getpid": (39, 172), "openat": (257, 56), "socket": (41, 198), "connect": (42, 203),
    "sendto": (44, 206), "clone": (56, 220), "execve": (59, 221), "kill": (62, 129),
    "ptrace": (101, 117), "prlimit64": (302, 261), "write": (1, 64), "read": (0, 63),
    "mmap": (9, 222), "dup": (32, 23), "setuid": (105, 146), "bpf": (321, 280),
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _acts(server: int) -> Iterator[tuple[str, str, tuple[object, ...]]]:
    """What the act is, its system call, and the arguments. `server` is the pid of the parent."""
    old = ctypes.byref((ctypes.c_ulong * 2)())
    address = ctypes.create_string_buffer(b"\x01\x00\x00probe")
    nothing = ctypes.c_char_p(b"")
    yield "open a file", "openat", (_AT_FDCWD, ctypes.c_char_p(b"/"), 0)
    yield "make a socket", "socket", (1, 1, 0)
    yield "connect its socket", "connect", (SOCKET, address, 8)
    yield "send with an address or a descriptor", "sendto", (SOCKET, nothing, 0, 0, None, 0)
    yield "make a process", "clone", (_SIGCHLD, 0, 0, 0, 0)
    yield "execute a program", "execve", (nothing, None, None)
    yield "signal another process", "kill", (server, 0)
    yield "trace a process", "ptrace", (0, 0, 0, 0)
    yield "change another process's limits", "prlimit64", (server, _RLIMIT_NOFILE, None, old)
    yield "write to another descriptor", "write", (1, nothing, 0)
    yield "read from another descriptor", "read", (0, None, 0)
    yield "duplicate its descriptor", "dup", (SOCKET,)
    yield "map executable memory", "mmap", (0, 4096, _READ | _EXECUTE, _PRIVATE_ANONYMOUS, -1, 0)
    yield "map shared memory", "mmap", (0, 4096, _READ, _SHARED_ANONYMOUS, -1, 0)
    yield "change its user", "setuid", (0,)
    yield "load a program into the Linux kernel", "bpf", (-1, None, 0)


def main(machine: str, server: int) -> None:
    """Try each act and send the results: act -> error number, 0 if it succeeded. `server` is the pid of the
    parent."""
    place = list(MACHINES).index(machine)
    own = os.getpid()
    found = {}
    for act, name, arguments in _acts(server):
        found[act] = _error_of(_NUMBERS[name][place], arguments)
        if _libc.syscall(_NUMBERS["getpid"][place]) != own:
            os._exit(0)  # this is the process that must not be
    channel.send({FOUND: found, CONTROL: _libc.syscall(_NUMBERS["getpid"][place]) == own})
    channel.receive()  # until the host ends this process


def _error_of(number: int, arguments: tuple[object, ...]) -> int:
    """The error number of a system call, or 0."""
    return ctypes.get_errno() if _libc.syscall(number, *arguments) < 0 else 0
