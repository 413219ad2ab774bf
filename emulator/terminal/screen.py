"""What is seen of a conversation. Text of models and tools is shown, never obeyed.

A terminal obeys control characters (move the cursor, set the title, paste), and text that runs right to left
can hide what a call says; here each of them is written as its escape.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

with suppress(ImportError):  # not everywhere
    import readline

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
MAX_RESULT = 2_000
"""Characters of a result that are shown; the model gets all of it."""


def harmless(text: str) -> str:
    """``text`` with every character that a terminal would obey spelt out, but for newlines and tabs."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Screen:
    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._open = ""

    def greet(self, url: str, model: str, tools: list[str]) -> None:
        self._print(f"{model} at {url}. Tools: {', '.join(tools) or 'none'}.", "dim")
        self._print("/tools lists them, /reset forgets the conversation, /quit ends it.", "dim")

    def ask(self, question: str, *, remember: bool = False) -> str:
        """A line of the user's, which the arrow keys bring back where it is to be remembered.

        Raises `EOFError`, `KeyboardInterrupt`.
        """
        try:
            if "readline" not in sys.modules or not (
                sys.stdin.isatty() and self._console.is_terminal
            ):
                return self._console.input(Text(question, "bold"))
            readline.set_auto_history(remember)
            # It writes the question itself: what it did not write, it would delete with the line.
            return input(question)
        except (EOFError, KeyboardInterrupt):
            self._console.print()
            raise

    def words(self, text: str, *, reasoning: bool = False) -> None:
        """The next piece of an answer."""
        style = "dim italic" if reasoning else ""
        if self._open not in ("", style or "words"):
            self.end()
        self._open = style or "words"
        self._console.print(Text(harmless(text), style), end="", soft_wrap=True)

    def end(self) -> None:
        """What `words` wrote is complete."""
        if self._open:
            self._console.print()
        self._open = ""

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        written = json.dumps(arguments, ensure_ascii=False, indent=2)
        title = Text(harmless(name), "bold")
        self._console.print(
            Panel(Text(harmless(written)), title=title, title_align="left", border_style="cyan")
        )

    def result(self, text: str) -> None:
        shown = harmless(text[:MAX_RESULT])
        if len(text) > MAX_RESULT:
            shown += f"\n... {len(text) - MAX_RESULT} characters more"
        self._console.print(Panel(Text(shown), border_style="dim"))

    def note(self, text: str) -> None:
        self._print(text, "dim")

    def warn(self, text: str) -> None:
        self._print(text, "yellow")

    def _print(self, text: str, style: str) -> None:
        self._console.print(Text(harmless(text), style), soft_wrap=True)
