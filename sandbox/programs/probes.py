"""Stops: running programs on a machine where a fence has silently no effect, and on one that has no seccomp.

Does not stop: what no probe tries; tests/sandbox/programs tries much more.

Judges what `inside.probe` finds in a child.
"""

import errno
import platform
import signal
import sys
from collections.abc import Mapping
from typing import Any

from sandbox.engine import Limits
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.programs.child_process import ChildProcess
from sandbox.programs.inside.filter import MACHINES
from sandbox.programs.inside.probe import CONTROL, FOUND
from sandbox.programs.server_process import FIX, Handle
from sandbox.programs.slots import RunningSlots, WaitingSlots

LEAST_ACTS = 10
"""Acts that a probe must have tried."""

_LIMITS = Limits(seconds=10.0)


class FenceBroken(SandboxUnavailable):
    """Programs cannot run on this machine: trying again will not help."""


def check_machine() -> None:
    """Raises FenceBroken if this kind of machine has no fence for programs."""
    if sys.platform != "linux":
        raise FenceBroken(f"programs need seccomp, which {platform.system()} lacks", FIX)
    if platform.machine() not in MACHINES:
        raise FenceBroken(
            f"programs have no fence on {platform.machine()}",
            f"use one of {', '.join(MACHINES)}, or let the model write plain calls",
        )
    if not hasattr(signal, "pidfd_send_signal"):
        raise FenceBroken("this Python was built without pidfd_send_signal", FIX)


def examine(handle: Handle) -> int:
    """The number of acts that a probe child was refused. Raises FenceBroken, SandboxUnavailable."""
    slots = RunningSlots(1)
    slots.acquire("")
    with ChildProcess(handle, _LIMITS, "", slots, WaitingSlots(0)) as child:
        try:
            report = child.ask()
            handle.kill()  # the probe waits: this shows that the host may kill a child
        except PermissionError as error:
            raise FenceBroken("the host may not end a program's process", FIX) from error
        except SandboxUnavailable:
            raise
        except SandboxError as error:
            raise FenceBroken(f"the probe of the programs' fence failed: {error}", FIX) from error
    return judge(report)


def judge(report: Mapping[str, Any]) -> int:
    """The number of acts that were refused. Raises FenceBroken if one was not."""
    found = report.get(FOUND)
    if report.get(CONTROL) is not True or not isinstance(found, dict) or len(found) < LEAST_ACTS:
        raise FenceBroken("the probe of the programs' fence did not work", FIX)
    broken = [act for act, error in found.items() if error != errno.EPERM]
    if broken:
        raise FenceBroken(
            f"the programs' fence does not hold: a program could {', '.join(broken)}", FIX
        )
    return len(found)
