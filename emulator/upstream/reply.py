"""An open answer of an upstream: for who reads its chunks, and for those who are told what came of it.

The latter stand beside the chunks, and not between them: each chunk of a stream would pass through all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from emulator.errors import UpstreamFailed

Chunk = dict[str, Any]


@dataclass
class Heard:
    """What a reply has brought so far."""

    chunks: int = 0
    """Those with choices."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """As it was told last."""
    says: bool = False
    """There was more than the role."""
    finishes: bool = False
    """A choice has ended."""
    error: UpstreamFailed | None = None
    """What ended it in the middle."""


class Reply(ABC):
    """Iterate it for chunks, leave it to close the connection.

    A client that leaves (`emulator.client_disconnect`) breaks it at once.
    """

    headers: Mapping[str, str] = {}
    """Those of the answer that its client is to see: how much more may be asked."""
    more = False
    """Whether the next chunk has come already: it takes no waiting."""

    def __init__(self) -> None:
        self.heard = Heard()
        self._begun: Callable[[], None] | None = None
        self._left: list[Callable[[Heard], None]] = []

    @abstractmethod
    def __iter__(self) -> Iterator[Chunk]:
        """The chunks, of which `heard` is told. Raises `UpstreamFailed`."""

    @abstractmethod
    def close(self) -> None:
        """Leave the connection; safe to call twice."""

    def on_begun(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` when the first chunk has come that says something."""
        self._begun = tell

    def on_left(self, tell: Callable[[Heard], None]) -> None:
        """Call ``tell`` when the reply has been left, however that went; the last of all such first."""
        self._left.append(tell)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _place: object) -> None:
        if isinstance(error, UpstreamFailed):
            self.heard.error = error
        try:
            self.close()
        finally:
            self._tell_left()

    def _tell_begun(self) -> None:
        tell, self._begun = self._begun, None
        if tell is not None:
            tell()

    def _tell_left(self) -> None:
        if self._left:
            tell = self._left.pop()
            try:
                tell(self.heard)
            finally:
                self._tell_left()
