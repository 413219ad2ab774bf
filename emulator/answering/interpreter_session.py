"""The interpreter of one answer: which container it means, and how much may be run in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from emulator.answering.prompt import SandboxDescription
from emulator.errors import BadRequest, NotFound
from emulator.interpreter.attachments import with_files_in_container
from emulator.interpreter.interface import AnyInterpreter
from emulator.protocol import ChatCompletionRequest, Message
from emulator.settings import MemoryLimit, Settings
from emulator.storage.container_rows import Container
from emulator.storage.files import Files

_TOLD_FILES = 50
"""More file names in a prompt would be no help."""

_LINK = re.compile(r"/containers/(cntr_[0-9a-f]+)/files/")


class AutoContainer(BaseModel):
    """``{"type": "auto", ...}``: a container for the asking. Other fields of OpenAI's are let pass."""

    model_config = ConfigDict(frozen=True)

    file_ids: list[str] = Field(default_factory=list, max_length=50)
    memory_limit: MemoryLimit | None = None
    stateful: bool = True
    approval: Literal["never", "required"] | None = None
    reuse: list[str] = Field(default_factory=list)
    """Containers of this conversation, the latest last: one that still runs is taken. Set by us."""


@dataclass(frozen=True)
class InterpreterSession:
    """Where the cells of one answer run, and how many of them there may be."""

    interpreter: AnyInterpreter
    container: Container
    max_cells: int
    """Cells in one answer."""
    max_failures: int
    """Cells in a row that may fail, after the first."""
    files: Files
    """Uploaded ones, which messages may name."""
    temporary: bool
    """The container was made for this answer."""

    def close(self) -> None:
        """A container that was made for an answer and not used is not kept."""
        if self.temporary and not self.interpreter.has_been_used(self.container):
            with suppress(NotFound):
                self.interpreter.delete(self.container.client, self.container.id)

    def with_files(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages, their files put into the container."""
        return with_files_in_container(
            messages, self.files, self.interpreter.containers, self.container
        )

    def describe_sandbox(self) -> SandboxDescription:
        files = [file.path for file in self.interpreter.containers.files(self.container.id)]
        more = [f"and {len(files) - _TOLD_FILES} more"] if len(files) > _TOLD_FILES else []
        libraries = self.interpreter.libraries(self.container)
        return SandboxDescription(libraries, [*files[:_TOLD_FILES], *more])


def open_session(
    interpreter: AnyInterpreter,
    files: Files,
    settings: Settings,
    client: str,
    request: ChatCompletionRequest,
    tool: Mapping[str, Any],
    *,
    few_shot: bool = False,
) -> InterpreterSession:
    """The bench that ``tool`` asks for; ``few_shot`` where a very small model writes the cells.

    Raises `BadRequest`, `NotFound`.
    """
    if (request.n or 1) > 1:
        raise BadRequest("n must be 1 with a code interpreter.", param="n")
    runs = min(settings.interpreter_runs, request.max_tool_calls or settings.interpreter_runs)
    if few_shot:
        runs = 1  # a very small model goes on writing cells, whatever came out of the first
    container, made = _container(interpreter, settings, client, request, tool)
    return InterpreterSession(interpreter, container, runs, settings.interpreter_fixes, files, made)


def _container(
    interpreter: AnyInterpreter,
    settings: Settings,
    client: str,
    request: ChatCompletionRequest,
    tool: Mapping[str, Any],
) -> tuple[Container, bool]:
    """The container, and whether it was made just now."""
    asked = tool.get("container") or {"type": "auto"}
    containers = interpreter.containers
    if isinstance(asked, str):
        return containers.get(client, asked), False
    place = f"tools[{_place(request, tool)}].container"
    if not isinstance(asked, Mapping) or asked.get("type") != "auto":
        raise BadRequest(
            f"Invalid value for {place!r}: expected the id of a container or type auto.", place
        )
    try:
        auto = AutoContainer.model_validate(asked)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        at = ".".join([place, *map(str, first["loc"])])
        raise BadRequest(f"Invalid value for {at!r}: {first['msg']}.", at) from error
    waiting = interpreter.waiting_cell(request.messages[-1].tool_call_id or "")
    called = [waiting.container_id] if waiting else []
    for known in reversed([*_linked(request.messages), *auto.reuse, *called]):
        try:
            return containers.get(client, known), False
        except NotFound:
            continue
    approval = (
        settings.interpreter_approval if auto.approval is None else auto.approval == "required"
    )
    made = containers.create(
        client,
        memory_limit=auto.memory_limit or "1g",
        file_ids=auto.file_ids,
        stateful=auto.stateful,
        approval=approval,
    )
    return made, True


def _place(request: ChatCompletionRequest, tool: Mapping[str, Any]) -> int:
    tools = request.tools or []
    return next((n for n, one in enumerate(tools) if one is tool), 0)


def _linked(messages: Sequence[Message]) -> list[str]:
    """Containers whose files earlier answers have linked to: where a conversation over chat goes on."""
    return [
        found
        for message in messages
        if message.role == "assistant"
        for found in _LINK.findall(message.text)
    ]
