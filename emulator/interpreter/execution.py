"""The result of running a cell, as clients and models read it.

Knows nothing of kernels or containers. Everything in an `Execution` comes from a sandbox: it is data.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from emulator.core.events import CreatedFile, Image, Logs
from sandbox.outputs import Displayed, Output, Printed, Truncated

MAX_MODEL_CHARS = 12_000
"""Characters of output that a model reads. A longer output loses its middle."""

PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg"}
"""MIME type -> file name extension. Of a display with several of these, the first counts."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")

Status = Literal["completed", "failed", "declined"]


@dataclass(frozen=True)
class Execution:
    """A cell that has run to its end, or was declined."""

    id: str
    """``exec_...``"""
    container_id: str
    code: str
    status: Status
    stdout: str = ""
    stderr: str = ""
    """Also the traceback, with line numbers of the cell."""
    result: str | None = None
    """The repr of the last expression's value, unless that is None."""
    value: Any = None
    """The same value, if JSON can represent it."""
    displays: tuple[Mapping[str, str], ...] = ()
    """Each display in all its representations: MIME type -> text or base64."""
    files: tuple[CreatedFile, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks of the host: a limit was reached, the session was restarted."""
    milliseconds: int = 0
    outputs: tuple[Logs | Image, ...] = ()
    """All output in its original order."""

    def report(self) -> dict[str, Any]:
        """The answer of ``POST /containers/{id}/execute``: Azure's fields of dynamic sessions, and ours."""
        return {
            "id": self.id,
            "object": "container.execution",
            "container_id": self.container_id,
            "status": "Success" if self.status == "completed" else "Failure",
            "stdout": self.stdout,
            "stderr": self.stderr,
            "result": self.result if self.result is not None else self._picture(),
            "executionTimeInMilliseconds": self.milliseconds,
            "outputs": [dict(display) for display in self.displays],
            "files": [
                {"id": file.file_id, "path": file.path, "bytes": file.bytes} for file in self.files
            ],
            "notes": list(self.notes),
        }

    def _picture(self) -> dict[str, str] | None:
        """The last picture, in Azure's format: the result if there is no other."""
        for display in reversed(self.displays):
            for kind, ending in PICTURES.items():
                if kind in display and kind != "image/svg+xml":
                    return {"type": "image", "format": ending, "base64_data": display[kind]}
        return None

    def model_text(self) -> str:
        """The bounded text for the model: without ANSI codes, progress lines as finally shown."""
        parts = [_final_terminal_text(logs.text) for logs in self.outputs if isinstance(logs, Logs)]
        text = "".join(parts).rstrip("\n")
        pictures = sum(isinstance(output, Image) for output in self.outputs)
        remarks = [*self.notes]
        if pictures:
            remarks.insert(0, f"{pictures} picture{'s' * (pictures > 1)} shown to the user")
        if self.files:
            written = ", ".join(f"{file.path} ({file.bytes} bytes)" for file in self.files)
            remarks.insert(0, f"files written: {written}")
        shortened = shorten(text, MAX_MODEL_CHARS)
        return "\n".join([*([shortened] if shortened else []), *(f"[{line}]" for line in remarks)])


@dataclass
class Transcript:
    """Collects a cell's output in order."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    displays: list[Mapping[str, str]] = field(default_factory=list)
    outputs: list[Logs | Image] = field(default_factory=list)
    truncated: set[str] = field(default_factory=set)

    def add(self, output: Output) -> Sequence[Logs | Image]:
        """Add an output. Returns the parts of it that are sent to the client."""
        match output:
            case Printed(text, stream):
                (self.stdout if stream == "stdout" else self.stderr).append(text)
                return self._add(Logs(text))
            case Displayed(shapes, is_result):
                self.displays.append(shapes)
                picture = image(shapes)
                # The text of a figure only says that it is a figure.
                text = shapes.get("text/plain", "")
                logs = [] if picture and not is_result else [Logs(f"{text}\n")] if text else []
                return self._add(*logs, *([picture] if picture else []))
            case Truncated(what):
                if what in self.truncated:
                    return ()
                self.truncated.add(what)
                mark = f"\n[... more {what} left out]\n"
                self.stdout.append(mark)
                return self._add(Logs(mark))

    def fail(self, traceback: str) -> Sequence[Logs | Image]:
        """Add the traceback of an exception that ended the cell."""
        text = f"{traceback}\n"
        self.stderr.append(text)
        return self._add(Logs(text))

    def _add(self, *outputs: Logs | Image) -> Sequence[Logs | Image]:
        for output in outputs:
            last = self.outputs[-1] if self.outputs else None
            if isinstance(output, Logs) and isinstance(last, Logs):
                self.outputs[-1] = Logs(last.text + output.text)
            else:
                self.outputs.append(output)
        return outputs


def image(shapes: Mapping[str, str]) -> Image | None:
    """The picture among the representations of a display, if one can be decoded."""
    for kind in PICTURES:
        if kind in shapes:
            if kind == "image/svg+xml":
                return Image(kind, shapes[kind].encode())
            try:
                return Image(kind, base64.b64decode(shapes[kind].replace("\n", ""), validate=True))
            except binascii.Error:
                continue
    return None


def shorten(text: str, limit: int) -> str:
    """``text`` without its middle, if it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    omitted = len(text) - limit
    return f"{text[: limit // 2]}\n[... {omitted} characters left out ...]\n{text[-(limit // 2) :]}"


def _final_terminal_text(text: str) -> str:
    """Text as a terminal finally shows it: a carriage return overwrites the line."""
    lines = _ANSI.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
