"""Which requests are one turn: a client repeats a request whose answer it did not get.

A request that ends with results needs no such knowledge: a resumed program gives its calls the same ids. For
any other the model is asked again, and its calls have new ids. Two such requests are one turn only if the
client says so:

    Idempotency-Key: KEY          with an equal body; another body with the same key is an error
    x-stainless-retry-count: N    what the SDKs of OpenAI and Anthropic send: a request with N >= 1 repeats
                                  the latest one with N = 0 and an equal body

A turn is known while its requests run and for ten minutes after. In one turn the n-th call of a tool with the
same arguments is the same act (`History.act_key`). Knows nothing of HTTP.
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from dataclasses import dataclass, replace

import structlog

from emulator.core import json_codec
from emulator.core.errors import StoreUnavailable, Unprocessable
from emulator.core.events import new_id
from emulator.database import Database, DatabaseFailed, Documents

log = structlog.get_logger()

SECONDS = 600.0
_MAX_KEY = 256


@dataclass(frozen=True)
class TurnRequest:
    """What a request says about the turn to which it belongs."""

    idempotency_key: str
    digest: str
    """Of its whole body."""
    is_retry: bool


current_turn: ContextVar[TurnRequest | None] = ContextVar("current_turn", default=None)
"""What the headers of the current request say; None without them."""


def turn_request(key: str, count: str, body: bytes) -> TurnRequest | None:
    """``key`` and ``count`` are the values of the two headers, or ""."""
    if not key and not (count.isascii() and count.isdecimal()):
        return None
    digest = hashlib.sha256(body).hexdigest()
    return TurnRequest(key[:_MAX_KEY], digest, is_retry=count.strip("0") != "")


@dataclass(frozen=True)
class StoredTurn:
    digest: str
    name: str
    response: str = ""
    """The id of the stored response that ended it, if requests in a conversation are repeated."""


class Turns:
    """Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._stored: Documents[StoredTurn] = Documents(
            database, "turn", StoredTurn, seconds=SECONDS, max_bytes=16 * 2**20
        )

    def find(self, client: str, request: TurnRequest) -> StoredTurn:
        """The turn that the requests of one turn share, and no other request has.

        Raises `Unprocessable` for an idempotency key with another body, `StoreUnavailable` if a turn with an
        idempotency key cannot be looked up. Without one the request is then a turn of its own.
        """
        found = StoredTurn(request.digest, new_id("turn_"))

        def change(known: StoredTurn | None) -> StoredTurn:
            nonlocal found
            if known is not None and (request.idempotency_key or request.is_retry):
                if known.digest != request.digest:
                    raise Unprocessable(
                        "This Idempotency-Key was sent with another body.", "Idempotency-Key"
                    )
                found = known
            return found

        try:
            self._stored.change(_key(client, request), change)
        except DatabaseFailed as error:
            if request.idempotency_key:
                problem = "The turn of this Idempotency-Key cannot be looked up at the moment"
                raise StoreUnavailable(f"{problem}: {error}") from error
            log.warning("a repeated request cannot be recognized", reason=str(error))
        return found

    def note_response(self, client: str, request: TurnRequest, response: str) -> None:
        """The turn has ended with the stored response of that id. A failure is only logged."""

        def change(known: StoredTurn | None) -> StoredTurn:
            return replace(known or StoredTurn(request.digest, new_id("turn_")), response=response)

        try:
            self._stored.change(_key(client, request), change)
        except DatabaseFailed as error:
            log.warning("a repeated request will not be recognized", reason=str(error))


def _key(client: str, request: TurnRequest) -> str:
    text = json_codec.dumps([client, request.idempotency_key or request.digest])
    return hashlib.sha256(text).hexdigest()
