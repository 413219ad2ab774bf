"""What came of running a cell, for the model and for whoever asked for it.

Knows nothing of kernels or containers. Everything in an `Execution` came out of a sandbox: it is data.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from emulator.events import CreatedFile, Image, Logs
from sandbox.outputs import Displayed, Output, Printed, Truncated

MAX_TOLD = 12_000
"""Characters of an output that a model is told; the middle of a longer one is left out."""

PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg"}
"""Shapes that count as pictures, the first that a display has is taken -> the ending of a file's name."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")

Status = Literal["completed", "failed", "declined"]


@dataclass(frozen=True)
class Execution:
    """One cell that has run to its end, or was not allowed to."""

    id: str
    """``exec_...``"""
    container_id: str
    code: str
    status: Status
    stdout: str = ""
    stderr: str = ""
    """What was printed there, and the traceback in lines of the cell."""
    result: str | None = None
    """The repr of the last expression's value, if it has one."""
    displays: tuple[Mapping[str, str], ...] = ()
    """What was displayed, each in all its shapes: MIME type -> text or base64."""
    files: tuple[CreatedFile, ...] = ()
    notes: tuple[str, ...] = ()
    """What the host has to say: a limit that was met, a session that was begun anew."""
    milliseconds: int = 0
    outputs: tuple[Logs | Image, ...] = ()
    """The same as it came, in order."""

    def report(self) -> dict[str, Any]:
        """As ``POST /containers/{id}/execute`` answers: the fields of Azure's dynamic sessions, and
        ours.
        """
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
        """The last picture in Azure's shape, where there is no other result."""
        for display in reversed(self.displays):
            for kind, ending in PICTURES.items():
                if kind in display and kind != "image/svg+xml":
                    return {"type": "image", "format": ending, "base64_data": display[kind]}
        return None

    def model_text(self) -> str:
        """As the model reads it: no ANSI codes, progress lines as a terminal would leave them, bounded."""
        parts = [_settled(logs.text) for logs in self.outputs if isinstance(logs, Logs)]
        text = "".join(parts).rstrip("\n")
        pictures = sum(isinstance(output, Image) for output in self.outputs)
        remarks = [*self.notes]
        if pictures:
            remarks.insert(0, f"{pictures} picture{'s' * (pictures > 1)} shown to the user")
        if self.files:
            written = ", ".join(f"{file.path} ({file.bytes} bytes)" for file in self.files)
            remarks.insert(0, f"files written: {written}")
        shortened = shorten(text, MAX_TOLD)
        return "\n".join([*([shortened] if shortened else []), *(f"[{line}]" for line in remarks)])


@dataclass
class Transcript:
    """Collects what a cell puts out, in order."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    displays: list[Mapping[str, str]] = field(default_factory=list)
    outputs: list[Logs | Image] = field(default_factory=list)
    truncated: set[str] = field(default_factory=set)

    def take(self, output: Output) -> Sequence[Logs | Image]:
        """Add an output; returns what it is to the client."""
        match output:
            case Printed(text, stream):
                (self.stdout if stream == "stdout" else self.stderr).append(text)
                return self._add(Logs(text))
            case Displayed(shapes, is_result):
                self.displays.append(shapes)
                picture = image(shapes)
                # The text of a figure says no more than that it is one.
                text = shapes.get("text/plain", "")
                told = [] if picture and not is_result else [Logs(f"{text}\n")] if text else []
                return self._add(*told, *([picture] if picture else []))
            case Truncated(what):
                if what in self.truncated:
                    return ()
                self.truncated.add(what)
                mark = f"\n[... more {what} left out]\n"
                self.stdout.append(mark)
                return self._add(Logs(mark))

    def fail(self, traceback: str) -> Sequence[Logs | Image]:
        """The cell has raised."""
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
    """The picture among the shapes of a display, if one can be decoded."""
    for kind in PICTURES:
        if kind in shapes:
            if kind == "image/svg+xml":
                return Image(kind, shapes[kind].encode())
            try:
                return Image(kind, base64.b64decode(shapes[kind].replace("\n", ""), validate=True))
            except binascii.Error:
                continue
    return None


def shorten(text: str, most: int) -> str:
    """``text``, its middle left out where it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    left_out = len(text) - most
    return f"{text[: most // 2]}\n[... {left_out} characters left out ...]\n{text[-(most // 2) :]}"


def _settled(text: str) -> str:
    """Text as a terminal shows it in the end: a carriage return goes back to the line's beginning."""
    lines = _ANSI.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
