"""Shell commands in containers: a command is a cell that starts bash, under the same fences as any other.

A cell can be declined, edited before it is approved, or end its kernel: then there is no outcome of the
command, only what the execution says. What a kernel reports is validated here. Knows nothing of models or
HTTP.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

from emulator.interpreter.execution import Execution, shorten
from emulator.interpreter.interpreter import Interpreter, Progress
from emulator.storage.container_rows import Container

MAX_CHARS = 100_000
"""Characters of each output that leave the kernel. A longer output loses its middle."""

# A session of its own, so that what the command started in the background ends at the timeout too.
_CELL = """\
def _run_command(command, seconds, most):
    import os, signal, subprocess
    started = subprocess.Popen(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
    )
    try:
        outputs, exit_code = started.communicate(timeout=seconds), started.returncode
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        outputs, exit_code = started.communicate(), None
    stdout, stderr = (
        text if len(text) <= most else text[:most // 2] + "\\n[...]\\n" + text[-(most // 2):]
        for text in outputs
    )
    return {"stdout": stdout, "stderr": stderr, "exit_code": exit_code}
"""


class CommandOutput(BaseModel):
    stdout: str
    stderr: str
    exit_code: int | None
    """None if the command was ended at its timeout."""

    def json_output(self, most: int) -> dict[str, Any]:
        """An item of a `shell_call_output`'s ``output``, its texts shortened to ``most`` characters."""
        outcome: dict[str, Any] = {"type": "timeout"}
        if self.exit_code is not None:
            outcome = {"type": "exit", "exit_code": self.exit_code}
        return {
            "stdout": shorten(self.stdout, most),
            "stderr": shorten(self.stderr, most),
            "outcome": outcome,
        }


def run_command(
    interpreter: Interpreter, container: Container, command: str, seconds: float
) -> CommandOutput:
    """Run a command, for at most ``seconds``. Raises as `Interpreter.run`."""
    code = f"{_CELL}_run_command({command!r}, {seconds!r}, {MAX_CHARS})"
    steps: list[Progress] = [*interpreter.run(container, code)]
    execution = steps[-1]
    assert isinstance(execution, Execution), "a cell without functions does not wait"
    try:
        return CommandOutput.model_validate(execution.value, strict=True)
    except ValidationError:
        return CommandOutput(stdout=execution.stdout, stderr=execution.stderr, exit_code=1)
