"""Stops: starting kernels on a machine where a fence has silently no effect. Each probe is a few lines of
Python that run behind the fences of a bubblewrap sandbox, as a kernel does; its finding returns as JSON
and is judged here. If a required fence does not hold, the kernel engine is turned off.

Does not stop: what no probe tests; tests/sandbox/test_escape.py tests much more.
"""

import errno
import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.errors import SandboxUnavailable
from sandbox.fences import bubblewrap, cgroups
from sandbox.fences.rlimits import SET_LIMITS
from sandbox.report import Check, first_problem

_MiB = 1024 * 1024
_MEMORY = 64 * _MiB
_PROCESSES = 64


@dataclass(frozen=True)
class FenceProbe:
    """`probe` is Python source that sets `found` or raises; `holds` judges the value found."""

    name: str
    promise: str
    probe: str
    holds: Callable[[Any], bool]
    fix: str = bubblewrap.PERMIT_FIX


_HOST_FILES = ("/etc/passwd", "/etc/shadow", "/sys/kernel", str(Path(__file__)))
_NAMESPACES = ("pid", "net", "ipc", "uts", "mnt")


def _are_own_namespaces(found: Any) -> bool:
    return all(found[kind] != str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in _NAMESPACES)


FENCES = (
    FenceProbe(
        "interpreter", "the interpreter starts and finds ipykernel",
        "import importlib.util; found = importlib.util.find_spec('ipykernel') is not None",
        lambda found: found is True,
        "install ipykernel for this interpreter, in its own prefix",
    ),
    FenceProbe(
        "namespaces", "pid, net, ipc, uts and mount namespaces of its own",
        f"found = {{kind: os.readlink(f'/proc/self/ns/{{kind}}') for kind in {_NAMESPACES}}}",
        _are_own_namespaces,
    ),
    FenceProbe(
        "seccomp", "unlisted system calls do not exist, inet sockets are refused",
        "import ctypes, socket; libc = ctypes.CDLL(None, use_errno=True); libc.unshare(0x10000000)\n"
        "found = [status['Seccomp'], ctypes.get_errno(), failing(lambda: socket.socket())]",
        lambda found: found == ["2", errno.ENOSYS, errno.EOPNOTSUPP],
        "use a Linux kernel with CONFIG_SECCOMP_FILTER",
    ),
    FenceProbe(
        "network", "no network interface except its own loopback",
        "found = [line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line]",
        lambda found: found == ["lo"],
    ),
    FenceProbe(
        "files", "no host file except the interpreter's and the system libraries",
        f"found = [path for path in {_HOST_FILES!r} if os.path.exists(path)]",
        lambda found: found == [],
        "keep the project outside the interpreter's prefix",
    ),
    FenceProbe(
        "/proc/sys", "settings of the host cannot be changed",
        "found = [failing(lambda: open(path, 'r+')) for path in "
        "('/proc/sys/kernel/hostname', '/proc/sys/vm/overcommit_memory', '/proc/sysrq-trigger')]",
        lambda found: all(error in (errno.EROFS, errno.EACCES, errno.ENOENT) for error in found),
    ),
    FenceProbe(
        "privileges", "no root, no capabilities, no way to gain them",
        "found = [os.getuid() > 0, status['NoNewPrivs'], sorted({status[name].strip('0') for name "
        "in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')})]",
        lambda found: found == [True, "1", [""]],
    ),
    FenceProbe(
        "memory", "a process that exceeds its memory gets MemoryError",
        f"found = ''\ntry: bytearray({2 * _MEMORY})\nexcept MemoryError: found = 'MemoryError'",
        lambda found: found == "MemoryError",
        "use a Linux kernel with RLIMIT_AS",
    ),
    FenceProbe(
        "processes", "processes and threads are limited",
        "found = resource.getrlimit(resource.RLIMIT_NPROC)",
        lambda found: found == [_PROCESSES, _PROCESSES],
        "use a Linux kernel with RLIMIT_NPROC",
    ),
)  # fmt: skip

_PROBE = """\
import json, os
def failing(attempt):
    try:
        attempt()
    except OSError as error:
        return error.errno
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
status = {name: value.strip() for name, value in status.items()}
report = {}
for name, probe in PROBES:
    try:
        exec(probe)
        report[name] = found
    except Exception as error:
        report[name] = f"{type(error).__name__}: {error}"
print(json.dumps(report))
"""


def problem() -> SandboxUnavailable | None:
    """The first required fence that does not hold on this machine; None if all hold."""
    return first_problem(checks())


def checks() -> list[Check]:
    """Start one sandbox and test each fence in it. Takes about 0.1 s."""
    try:
        report = _report()
    except SandboxUnavailable as error:
        return [Check("bubblewrap", ok=False, detail=error.reason, fix=error.fix)]
    return [*(judge(fence, report.get(fence.name)) for fence in FENCES), _group()]


def judge(fence: FenceProbe, found: Any) -> Check:
    """The result of a probe, judged."""
    try:
        holds = fence.holds(found)
    except (TypeError, LookupError, ValueError):  # the probe reported an error instead
        holds = False
    if holds:
        return Check(fence.name, ok=True, detail=fence.promise)
    broken = f"the fence does not hold: {fence.promise} (found {found!r})"
    return Check(fence.name, ok=False, detail=broken, fix=fence.fix)


def _group() -> Check:
    name, promise = "control group", "memory and processes are bounded as a whole"
    found = cgroups.find()
    if isinstance(found, SandboxUnavailable):
        return Check(name, ok=False, detail=found.reason, fix=found.fix, needed=False)
    return Check(name, ok=True, detail=promise)


def probe(fences: Iterable[FenceProbe]) -> str:
    """Python source that sets its limits (`rlimits.SET_LIMITS`), tests each fence and prints a report."""
    probes = [(fence.name, fence.probe) for fence in fences]
    return f"{SET_LIMITS}\nPROBES = {probes!r}\n{_PROBE}"


def _report() -> dict[str, Any]:
    limits = f"{_MEMORY},10,{_PROCESSES},{_MiB}"
    # -I: neither the working directory nor the environment affects imports.
    command = [str(bubblewrap.interpreter()), "-I", "-c", probe(FENCES), limits]
    with bubblewrap.prepare_launch(
        command, data_size=_MiB, memory=_MEMORY, processes=_PROCESSES
    ) as launch:
        try:
            done = subprocess.run(
                launch.command,
                pass_fds=launch.pass_fds,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=30,
                check=False,
                env={},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxUnavailable(
                f"bubblewrap does not start: {error}", bubblewrap.PERMIT_FIX
            ) from error
        finally:
            if launch.group is not None:
                launch.group.remove()
    failure = f"bubblewrap cannot make a sandbox here (exit code {done.returncode})"
    return read_report(done.stdout, failure, bubblewrap.PERMIT_FIX)


def read_report(output: bytes, failure: str, fix: str) -> dict[str, Any]:
    """The findings in the last line that a probe printed. Raises SandboxUnavailable."""
    line = (output.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
    try:
        report = json.loads(line)
    except ValueError:
        raise SandboxUnavailable(f"{failure}: {line}", fix) from None
    assert isinstance(report, dict)
    return report


def missing() -> list[Check]:
    """Optional fences that this machine does not have, for a warning to the operator."""
    check = _group()
    return [] if check.ok else [check]
