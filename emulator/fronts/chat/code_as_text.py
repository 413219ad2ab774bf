"""Show what runs at the proxy in a chat completion, which has no fields for code, files and hosted calls.

Code, its output, calls and their results are fenced blocks in the reasoning; links to files end the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from emulator.core.events import (
    CodeComplete,
    CodeDelta,
    CodeFinished,
    CodeOutput,
    CodeStarted,
    CreatedFile,
    HostedCallFinished,
    HostedCallStarted,
    Logs,
    ProgramFinished,
    ProgramStarted,
)
from emulator.rendering.python_calls import fenced, literal

CodeEvent = (
    CodeStarted
    | CodeDelta
    | CodeComplete
    | CodeOutput
    | CodeFinished
    | HostedCallStarted
    | HostedCallFinished
    | ProgramStarted
    | ProgramFinished
)
"""A program that the client sees makes calls that chat shows: nothing else of it is written."""
_MAX_SHOWN = 2_000
"""Characters of a hosted call's arguments, and of its result."""
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".svg", ".gif", ".webp")


class CodeAsText:
    """Turns the events of cells into reasoning and content. Links start with ``origin``: ``http://...``."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._files: dict[str, CreatedFile] = {}
        self._code: str | None = None
        """The last delta of the cell that the model is writing; None outside of a cell."""
        self._in_output = False
        self._has_content = False
        self._after_code = False
        self._hosted_calls: dict[str, str] = {}
        """The running calls as they were shown, by id."""
        self._shown_call = ""
        """The id of the call that was shown last."""

    def as_reasoning(self, event: CodeEvent) -> Iterator[str]:
        match event:
            case CodeStarted():
                self._after_code, self._code = True, "\n"
                yield "\n```python\n"
            case CodeDelta(text):
                self._code = text or self._code
                yield text
            case CodeComplete(code):
                self._code = None
                yield _closing_fence(code)
            case CodeOutput(Logs(text)):
                if not self._in_output:
                    self._in_output = True
                    yield "\n```text\n"
                yield text
            case CodeFinished(files=files):
                if self._code is not None:  # the cell did not run
                    yield _closing_fence(self._code)
                    self._code = None
                self._files |= {file.file_id: file for file in files}
                yield from self._end_output()
            case HostedCallStarted(key, arguments=arguments):
                self._after_code = True
                yield from self._end_output()
                name = f"{event.server}.{event.name}" if event.server else event.name
                listed = ", ".join(f"{k}={literal(v, one_line=True)}" for k, v in arguments.items())
                self._hosted_calls[key] = _block("python", f"{name}({listed})")
                self._shown_call = key
                yield self._hosted_calls[key]
            case HostedCallFinished(key, content):
                yield from self._end_output()
                call = self._hosted_calls.pop(key, "")
                if key != self._shown_call:  # calls that started later are in between
                    yield call
                self._shown_call = ""
                yield _block("text", _text(content))

    def _end_output(self) -> Iterator[str]:
        if self._in_output:
            self._in_output = False
            yield "\n```\n"

    def separated(self, text: str) -> str:
        """Return ``text``, separated by a blank line from content that came before a cell."""
        separate = self._has_content and self._after_code
        self._has_content, self._after_code = True, False
        return "\n\n" + text.lstrip("\n") if separate else text

    def links(self) -> str:
        """The links to created files, one a line, for the end of the answer; "" if there are none."""
        separator = "\n\n" if self._files and self._has_content else ""
        return separator + "\n".join(_link(file, self._origin) for file in self._files.values())


def _block(label: str, text: str) -> str:
    """A fenced block that neither a server nor a model can end from inside."""
    shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
    return f"\n{fenced(shown, label)}\n"


def _text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)


def _closing_fence(code: str) -> str:
    return "```\n" if code.endswith("\n") else "\n```\n"


def _link(file: CreatedFile, origin: str) -> str:
    """Images are embedded, other files linked."""
    name = file.path.rpartition("/")[2]
    # The name comes from the sandbox: it must not end the link and inject other Markdown.
    label = "".join(c if c.isalnum() or c in " ._-" else "_" for c in name)
    url = f"{origin}/v1/containers/{quote(file.container_id)}/files/{quote(file.file_id)}/content"
    return f"{'!' if name.lower().endswith(_IMAGE_SUFFIXES) else ''}[{label}]({url})"
