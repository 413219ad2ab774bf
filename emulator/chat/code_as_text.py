"""The code interpreter as a chat tells it, which has no room of its own for code and files.

Code and its output stand in the reasoning, fenced; files are linked to at the end of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from emulator.events import (
    CodeComplete,
    CodeDelta,
    CodeFinished,
    CodeOutput,
    CodeStarted,
    ContentDelta,
    CreatedFile,
    Finish,
    Logs,
    ReasoningDelta,
)

CodeEvent = CodeStarted | CodeDelta | CodeComplete | CodeOutput | CodeFinished
_PICTURES = (".png", ".jpg", ".jpeg", ".svg", ".gif", ".webp")


class CodeAsText:
    """Turns the events of code into those that a chat can tell. ``host`` begins the links: ``http://...``."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._files: dict[str, CreatedFile] = {}
        self._code: str | None = None
        """The end of the code that is being written."""
        self._printing = False
        self._spoke = False
        self._ran = False

    def code(self, event: CodeEvent) -> Iterator[ReasoningDelta]:
        match event:
            case CodeStarted():
                self._ran, self._code = True, "\n"
                yield ReasoningDelta("\n```python\n")
            case CodeDelta(text):
                self._code = text or self._code
                yield ReasoningDelta(text)
            case CodeComplete(code):
                self._code = None
                yield _fence_behind(code)
            case CodeOutput(Logs(text)):
                if not self._printing:
                    self._printing = True
                    yield ReasoningDelta("\n```text\n")
                yield ReasoningDelta(text)
            case CodeFinished(files=files):
                if self._code is not None:  # it was not run
                    yield _fence_behind(self._code)
                    self._code = None
                self._files |= {file.file_id: file for file in files}
                if self._printing:
                    self._printing = False
                    yield ReasoningDelta("\n```\n")

    def words(self, event: ContentDelta) -> ContentDelta:
        """Words behind code are parted from those before it."""
        parted = self._spoke and self._ran
        self._spoke, self._ran = True, False
        return ContentDelta("\n\n" + event.text.lstrip("\n")) if parted else event

    def links(self, finish: Finish) -> Iterator[ContentDelta]:
        """What to say at the end of the answer."""
        if self._files and finish.reason != "tool_calls":
            lead = "\n\n" if self._spoke else ""
            yield ContentDelta(lead + markdown(tuple(self._files.values()), self._host))


def _fence_behind(code: str) -> ReasoningDelta:
    return ReasoningDelta("```\n" if code.endswith("\n") else "\n```\n")


def markdown(files: Sequence[CreatedFile], host: str) -> str:
    """A line for each file: pictures are shown, others linked to."""
    return "\n".join(_link(file, host) for file in files)


def _link(file: CreatedFile, host: str) -> str:
    name = file.path.rpartition("/")[2]
    # A name comes out of the sandbox: it must not end the link and begin something else.
    plain = "".join(c if c.isalnum() or c in " ._-" else "_" for c in name)
    url = f"{host}/v1/containers/{quote(file.container_id)}/files/{quote(file.file_id)}/content"
    return f"{'!' if name.lower().endswith(_PICTURES) else ''}[{plain}]({url})"
