"""The output of a cell while it runs, except its value. Knows nothing of Jupyter.

All of it is untrusted data: text may contain ANSI codes, HTML may contain scripts. Code that shows it
must escape it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Printed:
    """Text written to stdout or stderr, in the pieces in which it arrived."""

    text: str
    stream: Literal["stdout", "stderr"] = "stdout"


@dataclass(frozen=True)
class Displayed:
    """One object in several formats: MIME type -> text, or base64 for pictures other than SVG.

    `is_result` is True for the value of the cell's last expression.
    """

    shapes: Mapping[str, str]
    is_result: bool = False


@dataclass(frozen=True)
class Truncated:
    """Output of the kind `what` (`text` or `pictures`) is dropped from here on."""

    what: str


Output: TypeAlias = Printed | Displayed | Truncated
