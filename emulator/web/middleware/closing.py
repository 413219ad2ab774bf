"""A response's body with something to be done behind it. Knows nothing of what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


class Closing:
    """Unlike with werkzeug's iterator for that, the server iterates the body itself.

    So the pieces of a stream do not pass through each middleware.
    """

    def __init__(self, body: Iterable[bytes], then: Callable[[], None]) -> None:
        self._body = body
        self._then = then

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """To be called once."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._then()
