"""Print a conversation. Text from models and tools cannot control the terminal.

Terminals obey control characters (move the cursor, set the title, paste), and right-to-left text can disguise
a call's arguments. Each of these characters is printed as its escape.
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

with suppress(ImportError):  # not available on every platform
    import readline

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
MAX_RESULT = 2_000
"""The number of characters of a result that are printed; the model gets the whole result."""


def harmless(text: str) -> str:
    """Return ``text`` with control characters escaped, except newlines and tabs."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class Screen:
    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._errors = Console(stderr=True, highlight=False)
        self._open = ""

    def greet(self, url: str, model: str, tools: list[str]) -> None:
        self._print(f"{model} at {url}. Tools: {', '.join(tools) or 'none'}.", "dim")
        self._print("/tools lists the tools, /reset clears the conversation, /quit exits.", "dim")

    def ask(self, question: str, *, remember: bool = False) -> str:
        """Read a line from the user. With ``remember``, the arrow keys recall it later.

        Raises `EOFError`, `KeyboardInterrupt`.
        """
        try:
            if "readline" not in sys.modules or not (
                sys.stdin.isatty() and self._console.is_terminal
            ):
                return self._console.input(Text(question, "bold"))
            readline.set_auto_history(remember)
            # readline must print the question itself: it redraws, and so erases, the whole line.
            return input(question)
        except (EOFError, KeyboardInterrupt):
            self._console.print()
            raise

    def words(self, text: str, *, reasoning: bool = False) -> None:
        """Print the next piece of an answer."""
        style = "dim italic" if reasoning else ""
        if self._open not in ("", style or "words"):
            self.end()
        self._open = style or "words"
        self._console.print(Text(harmless(text), style), end="", soft_wrap=True)

    def end(self) -> None:
        """End the text that `words` printed."""
        if self._open:
            self._console.print()
        self._open = ""

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        text = json.dumps(arguments, ensure_ascii=False, indent=2)
        title = Text(harmless(name), "bold")
        self._console.print(
            Panel(Text(harmless(text)), title=title, title_align="left", border_style="cyan")
        )

    def result(self, text: str) -> None:
        shown = harmless(text[:MAX_RESULT])
        if len(text) > MAX_RESULT:
            shown += f"\n... {len(text) - MAX_RESULT} more characters"
        self._console.print(Panel(Text(shown), border_style="dim"))

    def note(self, text: str) -> None:
        self._print(text, "dim")

    def warn(self, text: str) -> None:
        self._errors.print(Text(harmless(text), "yellow"), soft_wrap=True)

    def _print(self, text: str, style: str) -> None:
        self._console.print(Text(harmless(text), style), soft_wrap=True)
