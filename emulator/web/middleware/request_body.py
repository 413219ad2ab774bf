"""Read a request's body up to the limit, and close a connection on which more of it arrives.

For a chunked body beyond the limit, werkzeug returns the beginning as if it were the whole body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any, cast

from flask import Request, Response
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wsgi import LimitedStream

from emulator.core.cached_property import cached_property

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class BoundedRequest(Request):
    """Reading a longer body than ``max_content_length`` raises `RequestEntityTooLarge`."""

    @cached_property
    def stream(self) -> IO[bytes]:
        limit = self.max_content_length
        if limit is None or "wsgi.input_terminated" not in self.environ:
            return super().stream
        if (self.content_length or 0) > limit:
            raise _too_large(limit)
        return cast("IO[bytes]", _BoundedStream(self.input_stream, limit))


class _BoundedStream(LimitedStream):
    def __init__(self, stream: IO[bytes], limit: int) -> None:
        super().__init__(stream, limit, is_max=True)

    def on_exhausted(self) -> None:
        """Called when more is read after the last allowed byte, which may be the last one of the body."""
        if self._stream.read(1):
            raise _too_large(self.limit)

    def readall(self) -> bytes:
        data = super().readall()
        if self.is_exhausted:
            self.on_exhausted()
        return data


def _too_large(limit: int) -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"The body is larger than {limit} bytes.")


class LastResponse(Response):
    """The last response on its connection: what remains of the request's body is not read."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        close_connection(start_response)
        return super().__call__(environ, start_response)


def close_connection(start_response: StartResponse) -> None:
    """Let gunicorn close the connection after the response; it ignores the application's header for that."""
    server_response: Any = getattr(start_response, "__self__", None)
    if hasattr(server_response, "force_close"):
        server_response.force_close()
