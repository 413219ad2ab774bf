"""What a cell puts out while it runs, beyond its value. Knows nothing of Jupyter or of who reads it.

All of it is data: text may hold ANSI codes, HTML may hold scripts. Whoever shows it escapes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Printed:
    """Text written to stdout or stderr, in the pieces in which it came."""

    text: str
    stream: Literal["stdout", "stderr"] = "stdout"


@dataclass(frozen=True)
class Displayed:
    """One thing in several shapes: MIME type -> text, or base64 for pictures but SVG.

    `is_result`: it is the value of the cell's last expression.
    """

    shapes: Mapping[str, str]
    is_result: bool = False


@dataclass(frozen=True)
class Truncated:
    """Some of `what` (`text` or `pictures`) was dropped, here and from here on."""

    what: str


Output: TypeAlias = Printed | Displayed | Truncated
