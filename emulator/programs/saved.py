"""A suspended program as it is stored: each turn of a program stores a `SavedProgram` of its own.

The record is JSON and is checked when it is loaded: a damaged record counts as no program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import structlog

from emulator.core import json_codec, metrics
from emulator.core.events import ToolCall
from emulator.programs.failures import Failure
from emulator.programs.program import Call, CallRecord, Program
from emulator.reading.readers import Statement

log = structlog.get_logger()


@dataclass(frozen=True)
class SavedProgram:
    """A program and all calls that it has made, with the results received so far."""

    program: Program
    recorded: tuple[CallRecord, ...]
    ids: tuple[str, ...]
    """The call ids that the client knows, in the order of ``recorded``."""
    seed: int
    question: str = ""
    """The digest of the client and of the user message that the program answers (`question_digest`)."""
    failure: str = ""
    """Why the rest of the model's program is unusable. The calls before it were sent; nothing after them
    runs."""
    original_source: str = ""
    """The program as the model wrote it; "" if unknown."""
    is_shown: bool = False
    """The client sees the program."""

    @property
    def code(self) -> str:
        """The program as the model and the client see it."""
        return self.original_source.strip("\n") or self.program.source

    def pending(self) -> list[ToolCall]:
        """The calls that have no result yet."""
        return [
            ToolCall(key, record.call.name, record.call.arguments, record.call.kind)
            for key, record in zip(self.ids, self.recorded, strict=True)
            if not record.known
        ]

    def dump(self) -> bytes:
        return json_codec.dumps(
            {
                "program": [(one.source, one.line) for one in self.program.statements],
                "recorded": [
                    (
                        *(one.call.name, one.call.arguments, one.call.kind, one.call.key),
                        one.result_text,
                        one.failure and one.failure.value,
                    )
                    for one in self.recorded
                ],
                "ids": self.ids,
                "seed": self.seed,
                "question": self.question,
                "failure": self.failure,
                "written": self.original_source,
                "shown": self.is_shown,
            }
        )

    @classmethod
    def load(cls, value: bytes) -> SavedProgram:
        """Raises ValueError, TypeError, or KeyError if `dump` did not write ``value``."""
        fields = json_codec.loads(value)
        return cls(
            Program(tuple(Statement(source, line) for source, line in fields["program"])),
            tuple(
                _loaded(Call(name, arguments, kind, str(key)), text, failure)
                for name, arguments, kind, key, text, failure in fields["recorded"]
            ),
            tuple(fields["ids"]),
            int(fields["seed"]),
            str(fields["question"]),
            str(fields.get("failure", "")),
            str(fields.get("written", "")),
            fields.get("shown") is True,
        )


def with_result(record: CallRecord, text: str, failure: Failure | None = None) -> CallRecord:
    """The record, completed with the result that the client sent as ``text``."""
    value = parse_result(text)
    same = isinstance(value, str) and value == text
    text_if_other = None if same else text
    return replace(record, result=value, known=True, text=text_if_other, failure=failure)


def _loaded(call: Call, text: Any, failure: str | None) -> CallRecord:
    if not isinstance(text, str):
        return CallRecord(call)
    return with_result(CallRecord(call), text, None if failure is None else Failure(failure))


def parse_result(text: str) -> Any:
    """A tool's result as a program gets it: the JSON value that ``text`` spells, else the text itself."""
    try:
        return json_codec.loads(text)
    except json_codec.NotJSON:
        return text


def report_dropped(reason: str, error: Exception) -> None:
    """Log and count that a program is not resumed, so that the model is asked instead."""
    log.warning("program dropped: the model is asked instead", reason=reason, error=str(error))
    metrics.PROGRAMS_DROPPED.labels(reason).inc()
