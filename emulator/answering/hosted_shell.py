"""Run the model's shell commands in a container: the tool ``shell`` with a container as its environment.

The commands of a call run one after the other, each as a cell of the code interpreter, so under its fences.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from emulator.conversation.call_policy import INTERPRETER
from emulator.core import client_disconnect, json_codec
from emulator.core.errors import BadRequest, EmulatorError
from emulator.core.protocol import ChatCompletionRequest, validated
from emulator.hosted.hosted_tool import HostedResult, HostedTool, HostedTools, ToolResolver
from emulator.interpreter.container_choice import AutoContainer
from emulator.interpreter.execution import MAX_MODEL_CHARS
from emulator.interpreter.interpreter import Interpreter
from emulator.interpreter.interpreter_session import reuse_or_create
from emulator.interpreter.shell import CommandOutput, run_command
from emulator.settings.settings import Settings
from emulator.storage.container_rows import Container

SHELL = "shell"
_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 1}
_OUTPUT = {
    "type": "object",
    "properties": {
        "stdout": _TEXT,
        "stderr": _TEXT,
        "outcome": {
            "type": "object",
            "properties": {"type": {"enum": ["exit", "timeout"]}, "exit_code": {"type": "integer"}},
            "required": ["type"],
        },
    },
    "required": ["stdout", "stderr", "outcome"],
}
_DEFINITION: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": SHELL,
        "description": "Run bash commands in a sandbox without network, and return the output of each. Each"
        " starts in /mnt/data, where files persist.",
        "parameters": {
            "type": "object",
            "properties": {
                "commands": {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 16},
                "timeout_ms": {**_COUNT, "description": "Deadline of each command."},
                "max_output_length": {**_COUNT, "description": "Most characters of an output."},
            },
            "required": ["commands"],
            "additionalProperties": False,
        },
        "output_schema": {"type": "array", "items": _OUTPUT},
    },
}


class ContainerShell:
    """Adds the shell to the tools of another resolver. Safe to share between threads."""

    def __init__(self, others: ToolResolver, interpreter: Interpreter, settings: Settings) -> None:
        self._others = others
        self._interpreter = interpreter
        self._settings = settings

    def resolve(self, chat: ChatCompletionRequest, client: str) -> HostedTools:
        """Raises `BadRequest` naming the place, `NotFound` for an unknown container."""
        hosted = self._others.resolve(chat, client)
        for n, tool in enumerate(chat.tools or ()):
            environment = tool.get("environment")
            if tool.get("type") != SHELL or not isinstance(environment, Mapping):
                continue
            if environment.get("type") != "local":
                container = self._container(chat, client, environment, f"tools[{n}].environment")
                tools = (*hosted.tools, self._tool(container))
                return replace(hosted, tools=tools, types=hosted.types | {SHELL})
        return hosted

    def _tool(self, container: Callable[[], Container]) -> HostedTool:
        start = partial(self._start, container)
        return HostedTool(
            _DEFINITION, "shell", "", SHELL, start, container_id=lambda: container().id
        )

    def _container(
        self,
        chat: ChatCompletionRequest,
        client: str,
        environment: Mapping[str, Any],
        place: str,
    ) -> Callable[[], Container]:
        """Return a function that returns the container, and creates it when it is first called."""
        kind, container_id = environment.get("type"), environment.get("container_id")
        if kind == "container_reference" and isinstance(container_id, str):
            cells = [tool for tool in chat.tools or () if tool.get("type") == INTERPRETER]
            if any(tool.get("container") == container_id for tool in cells):
                message = (
                    f"{place}: the code interpreter has this container. Cells can run commands too."
                )
                raise BadRequest(message, place)
            referenced = self._interpreter.containers.get(client, container_id)
            return lambda: referenced
        if kind != "container_auto":
            message = (
                f"Invalid value for {place!r}: expected type container_auto, or type"
                " container_reference with a container_id."
            )
            raise BadRequest(message, place)
        auto = validated(AutoContainer, environment, place)
        created: list[Container] = []
        lock = threading.Lock()

        def container() -> Container:
            with lock:
                if not created:
                    chosen, _ = reuse_or_create(
                        self._interpreter, self._settings, client, auto, auto.reuse
                    )
                    created.append(chosen)
                return created[0]

        return container

    def _start(
        self, container: Callable[[], Container], arguments: Mapping[str, Any]
    ) -> Future[HostedResult]:
        future: Future[HostedResult] = Future()
        # A cancelled call stops its cell as a client that disconnects does.
        cancelled = client_disconnect.ClientDisconnect()
        future.add_done_callback(lambda done: cancelled.report() if done.cancelled() else None)

        def run() -> None:
            client_disconnect.current.set(cancelled)
            result = self._result(container, arguments, future.cancelled)
            with suppress(InvalidStateError):  # cancelled
                future.set_result(result)

        threading.Thread(target=copy_context().run, args=(run,), name="shell", daemon=True).start()
        return future

    def _result(
        self,
        container: Callable[[], Container],
        arguments: Mapping[str, Any],
        is_cancelled: Callable[[], bool],
    ) -> HostedResult:
        """Run the commands until one is cancelled. A command that cannot run has the reason as its stderr."""
        seconds = 0.9 * self._settings.interpreter_seconds  # the deadline of a cell is later
        if (milliseconds := arguments.get("timeout_ms")) is not None:
            seconds = min(seconds, milliseconds / 1000)
        most = min(arguments.get("max_output_length") or MAX_MODEL_CHARS, MAX_MODEL_CHARS)
        outputs: list[CommandOutput] = []
        for command in arguments["commands"]:
            if is_cancelled():
                break
            try:
                outputs.append(run_command(self._interpreter, container(), command, seconds))
            except EmulatorError as error:
                outputs.append(CommandOutput(stdout="", stderr=error.message, exit_code=1))
        content = json_codec.dumps([output.json_output(most) for output in outputs]).decode()
        return HostedResult(content, is_error=any(output.exit_code != 0 for output in outputs))
