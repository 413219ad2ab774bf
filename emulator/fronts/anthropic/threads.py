"""Threads: conversations that the proxy holds, so that a client sends only its new messages.

A thread is stored under the id of its latest reply. Each reply can be continued once: its record then only
says so, and the thread is stored under the next reply's id. A client that gets `thread_not_found`,
`thread_already_continued` or `thread_continue_in_flight` sends the whole conversation again, as Anthropic's
SDKs do by themselves.

The shapes follow the types of Anthropic's SDK (its thread parameters and error details).
Knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from emulator.core.errors import BadRequest, NotFound
from emulator.core.events import UpstreamAccepted
from emulator.database import (
    MAX_VALUE_BYTES,
    Database,
    DatabaseFailed,
    Documents,
    Leases,
    LeaseTaken,
    database_failures,
)
from emulator.fronts.anthropic.message import collect
from emulator.fronts.anthropic.request import InputMessage, Json, MessagesRequest

log = structlog.get_logger()

_MAX_ID = 128
_PLACE = "thread.previous_message_id"


@dataclass(frozen=True)
class StoredThread:
    """A conversation up to one reply, with the fields that it was created with."""

    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    messages: list[InputMessage] = field(default_factory=list)
    continued: bool = False
    """True if the conversation is stored under the id of a later reply."""


@dataclass(frozen=True)
class Threads:
    """Clients reach only their own threads. If none is kept, none can be created."""

    stored: Documents[StoredThread]
    leases: Leases

    def joined(self, client: str, request: MessagesRequest) -> MessagesRequest:
        """Return the request with the fields and messages of the thread that it continues, if any.

        Raises `BadRequest`, `NotFound`, `StoreUnavailable`.
        """
        thread = request.thread
        if thread is None:
            return request
        if not self.stored.is_kept:
            message = "thread: threads need a database: set database (docs/settings.md)."
            raise BadRequest(message, "thread", "thread_unsupported_request")
        if thread.type == "create":
            return request
        stored = self._find(client, thread.previous_message_id)
        for name in ("system", "tools"):
            if getattr(request, name) not in (None, getattr(stored, name)):
                message = f"{name}: a thread keeps the {name} that it was created with."
                raise BadRequest(message, name, "thread_fingerprint_mismatch")
        messages = [*stored.messages, *request.messages]
        fields = {"system": stored.system, "tools": stored.tools, "messages": messages}
        return request.model_copy(update=fields)

    def saved(
        self, client: str, joined: MessagesRequest, events: Iterator[Json | UpstreamAccepted]
    ) -> Iterator[Json | UpstreamAccepted]:
        """Pass on the events of a message; store the thread before its client receives the last one.

        Raises `BadRequest` first if another request continues the thread from the same reply, or has done so.
        """
        received: list[Json] = []
        with self._continuation(client, joined):
            for event in events:
                if not isinstance(event, UpstreamAccepted):
                    received.append(event)
                    if event["type"] == "message_stop":
                        self._save(client, joined, collect(received))
                yield event

    @contextmanager
    def _continuation(self, client: str, joined: MessagesRequest) -> Iterator[None]:
        previous = joined.thread.previous_message_id if joined.thread else None
        if not previous:
            yield
            return
        lease = f"thread {_name(client, previous)}"
        try:
            with database_failures("Threads cannot be used"), self.leases.holding(lease):
                self._find(client, previous)
                yield
        except LeaseTaken as error:
            message = f"{_PLACE}: another request continues the thread from this message."
            raise BadRequest(message, _PLACE, "thread_continue_in_flight") from error

    def _find(self, client: str, key: str) -> StoredThread:
        stored = None
        if len(key) <= _MAX_ID:
            with database_failures("Threads cannot be read"):
                stored = self.stored.get(_name(client, key))
        if stored is None:
            raise NotFound(f"{_PLACE}: no thread with this message.", _PLACE, "thread_not_found")
        if stored.continued:
            message = f"{_PLACE}: the thread has been continued from this message already."
            raise BadRequest(message, _PLACE, "thread_already_continued")
        return stored

    def _save(self, client: str, joined: MessagesRequest, reply: Json) -> None:
        """A failure is only logged, because the client gets its reply anyway."""
        assert joined.thread is not None
        answer = InputMessage(role="assistant", content=reply["content"])
        # A summary replaces the messages before it.
        before = [] if reply["stop_reason"] == "compaction" else joined.messages
        thread = StoredThread(joined.system, joined.tools, [*before, answer])
        if (size := len(self.stored.dump(thread))) > MAX_VALUE_BYTES:
            log.warning("thread not stored: it is too large", bytes=size)
            return
        values = {_name(client, reply["id"]): thread}
        if previous := joined.thread.previous_message_id:
            values[_name(client, previous)] = StoredThread(continued=True)
        try:
            self.stored.put(values)
        except DatabaseFailed as error:
            log.warning("thread not stored", reason=str(error))


def open_threads(database: Database, leases: Leases, seconds: float) -> Threads:
    return Threads(Documents(database, "thread", StoredThread, seconds=seconds), leases)


def _name(client: str, message_id: str) -> str:
    return f"{client}:{message_id}"
