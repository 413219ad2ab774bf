"""Errors by whose fault they are, and how each looks in OpenAI's error JSON. Knows nothing of Flask.

The shape is that of OpenAI's API reference ("Error codes"): ``{"error": {message, type, param, code}}``.
Exceptions carry facts; they do not log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class EmulatorError(Exception):
    """Base of all errors that a client is told about."""

    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    status = 500
    type = "server_error"

    def __post_init__(self) -> None:
        super().__init__(self.message)

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


class BadRequest(EmulatorError):
    """The caller sent something that cannot be used; ``param`` points at the place."""

    status = 400
    type = "invalid_request_error"


class Unauthorized(EmulatorError):
    """The caller's key is missing or unknown."""

    status = 401
    type = "invalid_request_error"


class Forbidden(EmulatorError):
    """The request comes from where none should: a setting says from where."""

    status = 403
    type = "invalid_request_error"


class NotFound(EmulatorError):
    status = 404
    type = "invalid_request_error"


class MethodNotAllowed(EmulatorError):
    status = 405
    type = "invalid_request_error"


class TooLarge(EmulatorError):
    status = 413
    type = "invalid_request_error"


class UnsupportedMediaType(EmulatorError):
    """The body is not declared as what it must be."""

    status = 415
    type = "invalid_request_error"


class ClientDisconnected(EmulatorError):
    """Nobody reads this answer; nginx counts such requests under the same status."""

    status = 499
    type = "invalid_request_error"


class RateLimited(EmulatorError):
    """The caller asks too much in too short a time; ``retry-after`` says when to come again."""

    status = 429
    type = "requests"


class InsufficientQuota(RateLimited):
    """The caller has had all that it may have for now. OpenAI's clients would try again at once."""

    type = "insufficient_quota"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.headers = {"x-should-retry": "false", **self.headers}


class Overloaded(EmulatorError):
    """All callers together ask more than can be served at once."""

    status = 503


class LoopDetected(EmulatorError):
    """The request has been here before: an upstream leads back to this proxy (RFC 5842, 7.2)."""

    status = 508

    def __post_init__(self) -> None:
        super().__post_init__()
        self.headers = {"x-should-retry": "false", **self.headers}


class StorageFailed(EmulatorError):
    """The host's disk is full or failed. The client is told not to retry at once."""

    status = 507

    def __post_init__(self) -> None:
        super().__post_init__()
        self.headers = {"x-should-retry": "false", **self.headers}


class FileStoreUnavailable(StorageFailed):
    """What all replicas keep files in cannot be reached just now; the next try may find it."""

    status = 503

    def __post_init__(self) -> None:
        super().__post_init__()
        self.headers = {"retry-after": "1"}


class StoreUnavailable(EmulatorError):
    """What was kept cannot be read just now; the next try may find it."""

    status = 503


class ModelFailed(EmulatorError):
    """The model answered, but not with anything usable, also after every repair.

    The proxy has already retried, so the client is told not to (``x-should-retry`` is what
    openai-python and openai-node look at first).
    """

    status = 502
    type = "model_error"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.headers = {"x-should-retry": "false", **self.headers}


class ExecutionFailed(EmulatorError):
    """The sandbox, not the model's code, is at fault: it is missing, full or it died."""

    status = 503
    type = "sandbox_error"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.code = self.code or "sandbox_failed"


@dataclass(eq=False)
class UpstreamFailed(EmulatorError):
    """The upstream refused, failed or could not be reached; its status and message are kept."""

    status: int = 502
    type: str = "upstream_error"
