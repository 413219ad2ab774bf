"""The code interpreter of one answer: its container and the limits on its cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from emulator.core.errors import NotFound
from emulator.core.events import UpstreamAccepted
from emulator.core.protocol import ChatCompletionRequest, Message
from emulator.history import model_view_of
from emulator.interpreter.attachments import with_files_in_container
from emulator.interpreter.container_choice import AutoContainer, ContainerChoice
from emulator.interpreter.interpreter import Interpreter
from emulator.programs.call_history import last_result
from emulator.settings.settings import Settings
from emulator.storage.container_rows import Container
from emulator.storage.files import Files

_MAX_CELLS = 16
"""Of one answer."""
_MAX_FIXES = 3
"""How many cells in a row may fail after a first failed cell."""
_MAX_LISTED_FILES = 50
"""File names that a conversation lists."""

_LINK = re.compile(r"/containers/(cntr_[0-9a-f]+)/files/")


@dataclass(frozen=True)
class InterpreterSession:
    """Where the cells of one answer run, and how many may run."""

    interpreter: Interpreter
    container: Container
    max_cells: int
    """Cells per answer."""
    max_failures: int
    """Consecutive failures after the first that do not end the cells."""
    files: Files
    """Uploaded files, which messages may reference."""
    temporary: bool
    """The container was created for this answer."""

    def accepted(self) -> UpstreamAccepted:
        """The first event of an answer with this session."""
        container = self.container
        return UpstreamAccepted(
            container_id=container.id, container_expires_at=container.expires_at
        )

    def close(self) -> None:
        """Delete a container that was created for this answer and not used."""
        if self.temporary and not self.interpreter.has_been_used(self.container):
            with suppress(NotFound):
                self.interpreter.delete(self.container.client, self.container.id)

    def with_files(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages, with their files copied into the container."""
        return with_files_in_container(
            messages, self.files, self.interpreter.containers, self.container
        )

    @property
    def libraries(self) -> Mapping[str, str]:
        """The distributions that cells can import -> their versions."""
        return self.interpreter.libraries(self.container)

    def new_files(self, messages: Sequence[Message]) -> list[str]:
        """The container's files of which the model has not been told in this conversation."""
        known = {path for message in messages for path in model_view_of(message).files}
        files = (file.path for file in self.interpreter.containers.files(self.container.id))
        return [path for path in files if path not in known][: _MAX_LISTED_FILES - len(known)]


def open_session(
    interpreter: Interpreter,
    files: Files,
    settings: Settings,
    client: str,
    request: ChatCompletionRequest,
    choice: ContainerChoice,
    *,
    linked: Sequence[str] = (),
    few_shot: bool = False,
) -> InterpreterSession:
    """Open a session in the container of ``choice``; ``few_shot`` if a very small model writes the cells.
    The client's history has links to files of the ``linked`` containers.

    Raises `NotFound`.
    """
    max_cells = min(_MAX_CELLS, request.max_tool_calls or _MAX_CELLS)
    if few_shot:
        max_cells = 1  # a very small model keeps writing cells, whatever the first one printed
    if isinstance(choice, str):
        container, is_new = interpreter.containers.get(client, choice), False
    else:
        waiting = interpreter.waiting_cell(last_result(request.messages).tool_call_id or "")
        of_cell = [waiting.container_id] if waiting else []
        known = [*linked, *choice.reuse, *of_cell]
        container, is_new = reuse_or_create(interpreter, settings, client, choice, known)
    container = interpreter.containers.use(container)
    return InterpreterSession(interpreter, container, max_cells, _MAX_FIXES, files, is_new)


def reuse_or_create(
    interpreter: Interpreter,
    settings: Settings,
    client: str,
    auto: AutoContainer,
    known: Sequence[str],
) -> tuple[Container, bool]:
    """Return the latest of the ``known`` containers that still exists or a new one, and whether it is new."""
    containers = interpreter.containers
    for container_id in reversed(known):
        try:
            return containers.get(client, container_id), False
        except NotFound:
            continue
    approval = (
        settings.interpreter_approval if auto.approval is None else auto.approval == "required"
    )
    created = containers.create(
        client,
        memory_limit=auto.memory_limit or "1g",
        file_ids=auto.file_ids,
        stateful=auto.stateful,
        approval=approval,
    )
    return created, True


def linked_containers(messages: Sequence[Message]) -> list[str]:
    """Containers that earlier answers link to. Chat Completions has no other memory of a container."""
    answers = (message.text for message in messages if message.role == "assistant")
    return [container for text in answers for container in _LINK.findall(text)]
