"""The errors that clients see, grouped by cause, in OpenAI's error JSON. Knows nothing of Flask.

The shape is that of OpenAI's API reference ("Error codes"): ``{"error": {message, type, param, code}}``.
Exceptions carry facts; they do not log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self


@dataclass(eq=False)
class EmulatorError(Exception):
    """The base class of all errors that a client receives."""

    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    status = 500
    type = "server_error"
    retryable = True
    """False adds ``x-should-retry: false``, which openai-python and openai-node check first."""

    def __post_init__(self) -> None:
        super().__init__(self.message)
        if not self.retryable:
            self.headers = {"x-should-retry": "false", **self.headers}

    def moved(self, places: Mapping[str, str]) -> Self:
        """The same error, with its place in the client's own request: see `moved_place`."""
        param = self.param and moved_place(self.param, places)
        if not self.param or not param or param == self.param:
            return self
        return replace(self, message=self.message.replace(self.param, param, 1), param=param)

    def body(self) -> dict[str, Any]:
        """The error as OpenAI's JSON object."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


def place_of(value: object, text: str) -> str | None:
    """Where ``text`` is a field, or in a list, of a request's JSON: ``input[0].content[1].file_id``."""
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        place, found = waiting.pop()
        if found == text:
            return place
        if isinstance(found, dict):
            inside = [(f"{place}.{name}" if place else name, one) for name, one in found.items()]
        else:
            listed = found if isinstance(found, list) else ()
            inside = [(f"{place}[{n}]", one) for n, one in enumerate(listed)]
        waiting += reversed(inside)
    return None


def moved_place(place: str, places: Mapping[str, str]) -> str:
    """Return the client's place for ``place`` in a converted request (``tools[1].function.name``).

    ``places`` maps places in the converted request to the client's; the longest one that contains ``place``
    counts.
    """
    ends = [at for at, character in enumerate(place) if character in ".["]
    for end in [len(place), *reversed(ends)]:
        if (moved := places.get(place[:end])) is not None:
            return moved + place[end:]
    return place


class BadRequest(EmulatorError):
    """The request is invalid; ``param`` names the place."""

    status = 400
    type = "invalid_request_error"


def unsupported_type(
    found: object, place: str, supported: str, code: str | None = None
) -> BadRequest:
    """The type ``found`` at ``place`` is none of the ``supported`` ones, as a message lists them."""
    written = "missing" if found is None else repr(str(found)[:64])
    return BadRequest(f"{place} is {written}; supported types are {supported}.", place, code)


class Unauthorized(EmulatorError):
    """The client's key is missing or unknown."""

    status = 401
    type = "invalid_request_error"


class Forbidden(EmulatorError):
    """The request's origin is not allowed; the message names the setting that allows it."""

    status = 403
    type = "invalid_request_error"


@dataclass(eq=False)
class NotFound(EmulatorError):
    subject: str = ""
    """The id that names nothing, by which `placed` finds it."""

    status = 404
    type = "invalid_request_error"

    def placed(self, request: object) -> Self:
        """The same error, with the place of the id in the ``request``'s JSON, if it is there."""
        place = place_of(request, self.subject) if self.subject else None
        return self if place is None else replace(self, param=place)


class MethodNotAllowed(EmulatorError):
    status = 405
    type = "invalid_request_error"


class TooLarge(EmulatorError):
    status = 413
    type = "invalid_request_error"


class UnsupportedMediaType(EmulatorError):
    """The request declares a media type that the endpoint does not accept."""

    status = 415
    type = "invalid_request_error"


class ClientDisconnected(EmulatorError):
    """The client disconnected before the answer; nginx logs such requests with the same status."""

    status = 499
    type = "invalid_request_error"


class FailedDependency(EmulatorError):
    """A server whose tools the request needs cannot be used.

    OpenAI's own pages have no such error. Its status, type and code, and Anthropic's (a 400), are quoted in
    https://plaid.com/docs/resources/mcp/#expired-tokens
    """

    status = 424
    type = "external_connector_error"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.code = self.code or "http_error"


class Unprocessable(EmulatorError):
    """The request contradicts an earlier one (draft-ietf-httpapi-idempotency-key-header, 2.7)."""

    status = 422
    type = "invalid_request_error"
    retryable = False


class RateLimited(EmulatorError):
    """The client sent too many requests; ``retry-after`` says when to retry."""

    status = 429
    type = "requests"


class InsufficientQuota(RateLimited):
    """The client's token budget is used up. OpenAI's clients would retry immediately."""

    type = "insufficient_quota"
    retryable = False


class Overloaded(EmulatorError):
    """The proxy is at its limit of concurrent requests."""

    status = 503


class LoopDetected(EmulatorError):
    """The request passed through this proxy before: an upstream leads back to it (RFC 5842, 7.2)."""

    status = 508
    retryable = False


class StorageFailed(EmulatorError):
    """The host's disk is full or failed. The client is asked not to retry immediately."""

    status = 507
    retryable = False


class FileStoreUnavailable(StorageFailed):
    """The file storage that all replicas share is temporarily unreachable; a retry may succeed."""

    status = 503
    retryable = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.headers = {"retry-after": "1", **self.headers}


class StoreUnavailable(EmulatorError):
    """The store is temporarily unreachable; a retry may succeed."""

    status = 503

    def __post_init__(self) -> None:
        super().__post_init__()
        self.headers = {"retry-after": "1", **self.headers}


class ModelFailed(EmulatorError):
    """The model's answer was unusable, even after all repair attempts. The client is asked not to retry."""

    status = 502
    type = "model_error"
    retryable = False


class ExecutionFailed(EmulatorError):
    """The sandbox, not the model's code, caused the failure: it is missing, full or has died."""

    status = 503
    type = "sandbox_error"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.code = self.code or "sandbox_failed"


class ExecutionDelayed(ExecutionFailed):
    """A second later it may succeed."""

    def __post_init__(self) -> None:
        self.code = self.code or "overloaded"
        self.headers = {"retry-after": "1", **self.headers}
        super().__post_init__()


@dataclass(eq=False)
class UpstreamFailed(EmulatorError):
    """The upstream refused, failed or was unreachable. The error keeps its status and message."""

    status: int = 502
    type: str = "upstream_error"
