"""What the model saw of one answer beyond its message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import InstanceOf, TypeAdapter

from emulator.core.protocol import Message
from emulator.programs.basis import Basis
from emulator.programs.ended import EndedProgram
from emulator.programs.saved import SavedProgram


@dataclass(frozen=True)
class ModelView:
    ended: EndedProgram | None = None
    """The program that ended before the answer. The model saw its output, not its calls and results."""
    exchange: Sequence[dict[str, Any]] = ()
    """Unusable replies before the answer, each followed by the request for a better one."""
    files: Sequence[str] = ()
    """The interpreter's files that the prompt listed after the user's message."""
    dialect: str = "python"
    """The syntax of calls that the instructions mention."""
    labels: bool = False
    """The model has labelled a block in this conversation."""
    basis: Basis | None = None
    """Of an answer whose cell waits for results."""
    program: InstanceOf[SavedProgram] | None = None
    """The answer's program, if it waits for results."""

    def dump(self) -> dict[str, Any]:
        """Without the program, which is a row of its own."""
        stored = replace(self, program=None)
        return dict(_SEEN.dump_python(stored, exclude_defaults=True, mode="json"))

    @staticmethod
    def load(fields: Any) -> ModelView:
        return _SEEN.validate_python(fields)


_SEEN = TypeAdapter(ModelView)
_NOTHING = ModelView()


def model_view_of(message: Message) -> ModelView:
    return message.model_view if isinstance(message.model_view, ModelView) else _NOTHING


def dialect_of(messages: Sequence[Message], current: str) -> str:
    """The dialect with which this conversation started; ``current`` if it starts now."""
    for message in messages:
        if message.role == "assistant":
            return model_view_of(message).dialect
    return current


def uses_label(messages: Sequence[Message]) -> bool:
    """Return True if the model has labelled a block in this conversation."""
    return any(model_view_of(message).labels for message in messages if message.model_view)
