"""What hostile programs try, and the result. The tests run these tables; escapes.md shows them.

`python -m tests.sandbox.promises` writes the tables of the page. An attempt is the body of a function that
may use `host` (facts of this machine) and `syscall`; it escapes if it returns something true. A control runs
the same attempt in an ordinary interpreter of this user, where it must succeed: otherwise its failure in a
sandbox would prove nothing.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PAGE = Path(__file__).with_name("escapes.md")


@dataclass(frozen=True)
class Attempt:
    """One attempt to escape. `control`: where it succeeds without a sandbox (a key of CONTROLS).

    `in_docker`: the result in a container, if it differs from bubblewrap.
    """

    area: str
    what: str
    body: str
    control: str = "anyone"
    in_docker: Literal["stopped", "succeeds"] = "stopped"


PRELUDE = """
import ctypes, errno, fcntl, os, resource, signal, socket, stat, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
"""


def program(attempt: Attempt, host: object) -> str:
    """The attempt as a program whose last value says whether it escaped."""
    body = "\n".join(f"    {line}" for line in attempt.body.splitlines())
    return f"{PRELUDE}host = {host!r}\ndef attempt():\n{body}\nbool(attempt())"


CONTROLS = {
    "anyone": "succeeds",
    "root": "succeeds as root",
    "namespaces": "succeeds (in separate namespaces)",
    "vsock": "succeeds where Linux has them",
    "none": "not tried: it would reboot the host",
}
"""Where an attempt succeeds without a sandbox -> what the page says of it."""

ATTEMPTS = [
    Attempt("files", "read /etc/shadow", "return open('/etc/shadow').read()", "root"),
    Attempt("files", "read a file of the user who runs the server",
            "return open(host['secret']).read()"),
    Attempt("files", "list that user's folder", "return os.listdir(os.path.dirname(host['secret']))"),
    Attempt("files", "read the project's own code", "return open(host['project']).read()"),
    Attempt("files", "climb out of the working directory",
            "return open(os.getcwd() + '/..' * 20 + host['secret']).read()"),
    Attempt("files", "follow a symbolic link",
            "os.symlink(host['secret'], 'link')\nreturn open('link').read()"),
    Attempt("files", "go through /proc/self/root",
            "return open('/proc/self/root' + host['secret']).read()"),
    Attempt("files", "go through pid 1's root",
            "return os.path.exists('/proc/1/root' + host['secret'])", "namespaces"),
    Attempt("files", "write next to the interpreter's packages",
            "return os.access(host['packages'], os.W_OK)", "root"),
    Attempt("files", "write to /", "return os.access('/', os.W_OK)", "root"),
    Attempt("files", "write to /dev", "return os.access('/dev', os.W_OK)", "root"),
    Attempt("files", "make a device",
            "os.mknod('null', stat.S_IFCHR | 0o600, os.makedev(1, 3))\nreturn True", "root"),
    Attempt("files", "chroot", "os.chroot('.')\nreturn True", "root"),
    Attempt("files", "mount a file system",
            "return libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0", "namespaces"),
    Attempt("network", "connect to a port on the host's loopback",
            "return socket.create_connection(('127.0.0.1', host['port']), 5)"),
    Attempt("network", "open a UDP socket", "return socket.socket(type=socket.SOCK_DGRAM)"),
    Attempt("network", "open an IPv6 socket", "return socket.socket(socket.AF_INET6)"),
    Attempt("network", "open a raw socket",
            "return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)", "root"),
    Attempt("network", "open a packet socket",
            "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "root"),
    Attempt("network", "open a netlink socket",
            "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
    Attempt("network", "open a vsock socket", "return socket.socket(40, socket.SOCK_STREAM)", "vsock"),
    Attempt("network", "reach a cloud's metadata address",
            "return socket.create_connection(('169.254.169.254', 80), 1)", "namespaces"),
    Attempt("network", "resolve a name", "return socket.getaddrinfo('example.com', 80)",
            "namespaces"),
    Attempt("network", "reach an abstract socket of the host",
            "s = socket.socket(socket.AF_UNIX)\ns.connect(host['abstract'])\nreturn s"),
    Attempt("network", "reach a socket file of the host (docker.sock)",
            "s = socket.socket(socket.AF_UNIX)\ns.connect(host['socket'])\nreturn s"),
    Attempt("network", "see the host's interfaces",
            "return len(open('/proc/net/dev').readlines()) > 3"),
    Attempt("processes", "see processes of the host",
            "return os.path.exists(f\"/proc/{host['victim']}\")"),
    Attempt("processes", "signal a process of the host", "os.kill(host['victim'], 0)\nreturn True"),
    Attempt("processes", "see the host's environment",
            "return 'ESCAPE_TEST' in os.environ"),
    Attempt("processes", "become root", "os.setuid(0)\nreturn os.getuid() == 0", "root"),
    Attempt("processes", "run a shell", "return subprocess.run(['/bin/sh', '-c', '']).returncode == 0",
            in_docker="succeeds"),
    Attempt("processes", "lift the limit on memory",
            "resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)\nreturn True"),
    Attempt("processes", "make a user namespace", "return libc.unshare(0x10000000) == 0"),
    Attempt("processes", "clone into a user namespace",
            "pid = syscall(host['clone'], 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)\n"
            "if pid == 0: os._exit(0)\nreturn pid > 0"),
    Attempt("processes", "change a setting of the host",
            "return open('/proc/sys/vm/swappiness', 'r+')", "root"),
    Attempt("processes", "change the host's name",
            "return libc.sethostname(b'x', 1) == 0", "namespaces"),
    Attempt("processes", "see the host's name", "return os.uname().nodename == host['name']"),
    Attempt("processes", "reboot", "return libc.reboot(0x1234567) == 0", "none"),
]  # fmt: skip

# Name -> number on x86_64, on aarch64. With -1 for every argument none of them does anything.
REFUSED_CALLS = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "chroot": (161, 51),
    "clock_settime": (227, 112), "clone3": (435, 435), "delete_module": (176, 106),
    "fanotify_init": (300, 262), "init_module": (175, 105), "io_setup": (206, 0),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425),
    "kcmp": (312, 272), "kexec_load": (246, 104), "keyctl": (250, 219), "memfd_create": (319, 279),
    "mount": (165, 40), "move_mount": (429, 429), "mq_open": (240, 180), "msgget": (68, 186),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41), "process_madvise": (440, 440), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "reboot": (169, 142), "request_key": (249, 218), "seccomp": (317, 277), "setns": (308, 268),
    "settimeofday": (164, 170), "shmget": (29, 194), "splice": (275, 76), "swapoff": (168, 225),
    "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "vmsplice": (278, 75),
}  # fmt: skip

MEMORY = {
    "10 GB at once": "x = bytearray(10 * 2**30)",
    "in small pieces": "x = []\nwhile True: x.append(bytearray(2**20))",
    "mapped": "import mmap\nx = mmap.mmap(-1, 10 * 2**30)\nraise MemoryError",
    "in an unnamed file": (
        "import os\nfile = os.memfd_create('x')\nwhile True: os.write(file, bytes(2**20))"
    ),
}

LOOPS = {
    "an endless loop": "while True: pass",
    "one that ignores SIGINT": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    ),
    "one that catches everything": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    ),
    "one big number, computed in C": "10 ** 10 ** 10",
    "waiting": "import _thread\nlock = _thread.allocate_lock()\nlock.acquire()\nlock.acquire()",
    "reading standard input": "import sys\nsys.__stdin__.read()\nimport signal\nsignal.pause()",
}

OUTPUT = {
    "endless printing": "while True: print('x' * 100_000)",
    "one print of 50 MB": "print('x' * 50_000_000)",
    "endless display": ("from IPython.display import display\nwhile True: display('x' * 100_000)"),
    "displaying 200 MB of HTML": (
        "from IPython.display import HTML, display\n"
        "for _ in range(200): display(HTML('<b>' + 'x' * 1_000_000))"
    ),
    "a last value of 50 MB": "'x' * 50_000_000",
    "writing to the file descriptor": "import os\nwhile True: os.write(1, b'x' * 10_000)",
}

DEATHS = {
    "_exit": "import os\nos._exit(0)",
    "a segmentation fault": "import ctypes\nctypes.string_at(0)",
    "killing all it can": (
        "import os\ntry: os.kill(-1, 9)\nexcept OSError: pass\nos.kill(os.getpid(), 9)"
    ),
    "closing all descriptors": "import os\nos.closerange(0, 256)\nos._exit(0)",
    "abort": "import os\nos.abort()",
    "replacing itself": "import os, sys\nos.execv(sys.executable, ['python', '-c', ''])",
}

_ACTS = "class Acts:\n    def __repr__(self): {0}\n    __str__ = _repr_html_ = __repr__\n"


def _repr(body: str, *errors: str) -> tuple[str, str, tuple[str, ...]]:
    """A last value whose repr does that; the same asked for by name; how either may end."""
    return _ACTS.format(body) + "Acts()", "repr(Acts())", errors


_TOO_BIG = ("SandboxLimit", "SandboxDied", "SandboxTimeout")
ACTING: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "an endless repr": _repr("exec('while True: pass')", "SandboxTimeout"),
    "an endless str, printed": (
        _ACTS.format("exec('while True: pass')") + "print(Acts())",
        "",
        ("SandboxTimeout",),
    ),
    "a repr of 50 MB": (
        _ACTS.format("return 'x' * 50_000_000") + "Acts()",
        "print(repr(Acts()))",
        _TOO_BIG,
    ),
    "a _repr_html_ of 50 MB": (
        "class Acts:\n    def _repr_html_(self): return 'x' * 50_000_000\nActs()",
        "print(Acts()._repr_html_())",
        _TOO_BIG,
    ),
    "a repr that raises": _repr("raise ValueError('no')", "ProgramFailed"),
    "a repr that exits": _repr("raise SystemExit(5)", "ProgramFailed"),
    "a repr that is not text": _repr("return 5", "ProgramFailed"),
    "a repr with endless calls": _repr("exec('while True: ask()')", "SandboxLimit"),
    "an error with an endless message": (
        "class Acts(Exception):\n    def __str__(self):\n        while True: pass\nraise Acts",
        "",
        ("SandboxTimeout",),
    ),
    "an error with a message of 50 MB": (
        "raise ValueError('x' * 50_000_000)",
        "",
        ("ProgramFailed", *_TOO_BIG),
    ),
    "an argument with endless fields": (
        "class Acts:\n    @property\n    def __dict__(self):\n        while True: pass\nask(Acts())",
        "vars(Acts())",
        ("SandboxTimeout",),
    ),
    "an argument that contains itself": (
        "x = []\nx.append(x)\nask(x)",
        "import json\njson.dumps(x)",
        ("ProgramFailed",),
    ),
}
"""A program, what looks at its value where no kernel does, and what may come of it."""

_IN_DOCKER = {"stopped": "stopped", "succeeds": "succeeds, within the container"}
_TABLES = re.compile(
    r"(?<=the tables that the tests run. -->\n).*(?=\n<!-- End of the tables)", re.DOTALL
)


def _rows(results: list[tuple[str, str]]) -> list[str]:
    """One row per result, with all attempts that have it."""
    return [
        f"| {'; '.join(what for what, each in results if each == result)} | {result} |"
        for result in dict.fromkeys(result for _, result in results)
    ]


def page() -> str:
    """escapes.md with current tables."""
    lines: list[str] = []
    for area in dict.fromkeys(attempt.area for attempt in ATTEMPTS):
        results = [
            (
                attempt.what,
                f"stopped | {_IN_DOCKER[attempt.in_docker]} | stopped | {CONTROLS[attempt.control]}",
            )
            for attempt in ATTEMPTS
            if attempt.area == area
        ]
        lines += [
            f"\n## {area.capitalize()}\n",
            "| a program tries to | bubblewrap | docker | child | without a sandbox |",
            "|---|---|---|---|---|",
            *_rows(results),
        ]
    lines += [
        "\n## System calls\n",
        f"{len(REFUSED_CALLS)} are tried that a program in a kernel does not have (ENOSYS), such as "
        "`bpf`, `clone3`, `io_uring_setup`, `memfd_create`, `mount`, `ptrace`, `unshare` "
        "([all](promises.py)). In Docker the same; an engine before version 23 "
        "answers EPERM.",
        "\n## Limits and crashes\n",
        f"{sum(map(len, (MEMORY, LOOPS, OUTPUT, DEATHS, ACTING)))} programs exhaust the memory, run or "
        "print forever, crash, or have values whose methods do so "
        "([all](promises.py)). Each ends with an error, in its own session alone.",
    ]
    return _TABLES.sub(lambda _: "\n".join(lines) + "\n", PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"wrote {PAGE.name}\n")
