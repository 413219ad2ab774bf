"""Report a failing sandbox to the client. A failing program, in contrast, is reported to the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from emulator.core.errors import ExecutionDelayed, ExecutionFailed
from sandbox.errors import SandboxBusy, SandboxError


@contextmanager
def translate_sandbox_errors() -> Iterator[None]:
    """Raise `ExecutionFailed` for a `SandboxError`."""
    try:
        yield
    except SandboxBusy as error:
        raise ExecutionDelayed(f"The sandbox is busy; retry in a second: {error}") from error
    except SandboxError as error:
        raise ExecutionFailed(f"The sandbox failed to run the model's program: {error}") from error
