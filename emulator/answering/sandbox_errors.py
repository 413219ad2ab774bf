"""A sandbox that fails, unlike a program that does, is told to the client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from emulator.errors import ExecutionFailed
from sandbox.errors import SandboxBusy, SandboxError


@contextmanager
def translate_sandbox_errors() -> Iterator[None]:
    """Raises `ExecutionFailed`."""
    try:
        yield
    except SandboxBusy as error:
        message = f"The model's program could not be run now: {error}"
        raise ExecutionFailed(message, code="overloaded", headers={"retry-after": "1"}) from error
    except SandboxError as error:
        raise ExecutionFailed(f"The model's program could not be run: {error}") from error
