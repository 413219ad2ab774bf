"""A response body with a callback that runs after it is closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


class ClosingBody:
    """Like werkzeug's ClosingIterator, but the server iterates the inner body directly.

    So the chunks of a stream do not pass through each middleware.
    """

    def __init__(self, body: Iterable[bytes], on_close: Callable[[], None]) -> None:
        self._body = body
        self._on_close = on_close

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """Close the inner body, then call ``on_close``. Must be called exactly once."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._on_close()
