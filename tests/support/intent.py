"""The cases of tests/intent/cases.md: what a model replies, and whether that runs, is shown, or is doubtful.

A case is `## a sentence`, settings, and the reply between two rows of `%%%%`. ``expected`` is "runs", "shown"
(the reply is the answer, unchanged, after one model turn) or "asked" (the model is asked once;
nothing has run).
``request`` are the user's words. ``shown as python``: the label of the block leaves as `python`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools import function, strings

PATH = Path(__file__).parents[1] / "intent" / "cases.md"
_CASE = re.compile(
    r"^## (?P<title>[^\n]+)\n(?P<settings>(?:[a-z ]+: [^\n]*\n)*)%%%%\n(?P<reply>.*?)\n%%%%$",
    re.MULTILINE | re.DOTALL,
)

READING = ("get_weather", "list_files", "read_file")
TOOLS = [
    function("get_weather", strings("city"), "Get the weather of a city."),
    function("list_files", strings("path"), "List the files of a folder."),
    function("read_file", strings("path"), "Read a file."),
    function("write_file", strings("path", "content"), "Write a file."),
    function("delete_file", strings("path"), "Delete a file."),
    function("send_email", strings("to", "body"), "Send a mail."),
    function("bash", strings("command"), "Run a command."),
]


@dataclass(frozen=True)
class IntentCase:
    kind: str
    title: str
    reply: str
    expected: str
    request: str
    leaves_as_python: bool

    @property
    def content(self) -> str:
        """What the user reads of a reply that is shown."""
        if not self.leaves_as_python:
            return self.reply
        return re.sub(r"```[^\n]*[Ee]xample\}?", "```python", self.reply)


def cases() -> list[IntentCase]:
    text = PATH.read_text(encoding="utf-8")
    found = []
    for section in re.split(r"(?:\A|(?<=%%%%\n\n))# ", text)[1:]:
        kind = section.partition("\n")[0]
        for match in _CASE.finditer(section):
            settings = dict(line.split(": ", 1) for line in match["settings"].splitlines())
            found.append(
                IntentCase(
                    kind,
                    match["title"],
                    match["reply"],
                    settings["expected"],
                    settings.get("request", "Please."),
                    "shown as python" in settings,
                )
            )
    assert len(found) == len(re.findall(r"^## ", text, re.MULTILINE))
    return found
