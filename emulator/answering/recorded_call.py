"""A hosted call with a row in the journal, so that a repeated request does not make it again.

    act:     begin ── mine ──► call ──► finish, before anything reads the result
               │                └─ a task: note it ──► wait ──► finish
               │                                         └─ the server has cancelled it: withdraw
               ├─ done: the stored result
               ├─ running: another request makes it; wait for its result until the answer's deadline
               └─ unknown: it may have been made; it is never made again, but its task is asked for the result
    reader:  the stored result, else call, and store what it returned

A reader is a tool that says itself that its calls may be made again (`HostedTool.is_repeatable`); every other
tool acts. Each call has a thread, which stores the result whether the client is there or not. The future of
an act that has begun cannot be cancelled, but its task is cancelled when its answer ends; only when the
server confirms it may a repeated request make the act.

An act whose outcome is unknown has a result that ends the program (`failures.OUTCOME_UNKNOWN`): with an
exception, a retry loop of the program would make it again.

Knows nothing of replies or servers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog

from emulator.core import json_codec
from emulator.core.protocol import Message
from emulator.database import DatabaseFailed, Journal, JournalEntry, database_failures
from emulator.hosted.hosted_tool import AwaitedTask, HostedCall, HostedResult, HostedTool
from emulator.programs.call_history import parsed_call
from emulator.programs.failures import OUTCOME_UNKNOWN

log = structlog.get_logger()

_TASK_MARGIN = 2.0
"""Seconds before the answer's deadline, at which a task that has not ended is cancelled."""
_LOOK_SECONDS = 0.1
"""How often a request looks for the result of an act that another request makes."""
_STORE_SECONDS = 2.0
_STORE_ATTEMPTS = 300
_PROBLEM = "This call is not made, because the journal of calls cannot be used"


def unknown_outcome(reason: str) -> HostedResult:
    return HostedResult(f"{OUTCOME_UNKNOWN}: {reason}", is_error=True, outcome="unknown")


def recorded(tool: HostedTool, journal: Journal, key: str | None, until: float) -> HostedTool:
    """The tool, whose calls are recorded under ``key``, and wait for another request's ``until`` (monotonic).

    Without a key no request is known to repeat the call.
    """
    call = _RecordedCall(tool, journal if key else None, key or "", until)
    return replace(tool, start=call.start)


def is_recorded(journal: Journal, key: str | None) -> bool:
    """Return True if there is a row. Raises `StoreUnavailable`."""
    return _found(journal, key) is not None


def has_begun(journal: Journal, key: str | None) -> bool:
    """Return True if a request has begun the call. Raises `StoreUnavailable`."""
    found = _found(journal, key)
    return found is not None and found.state != "asked"


def _found(journal: Journal, key: str | None) -> JournalEntry | None:
    if key is None:
        return None
    with database_failures(_PROBLEM):
        return journal.find(key)


def unknown_acts(messages: Sequence[Message]) -> frozenset[tuple[str, bytes]]:
    """The calls of a conversation whose outcome is unknown, as `act_digest` writes them."""
    unknown = {
        message.tool_call_id
        for message in messages
        if message.role == "tool" and message.text.startswith(OUTCOME_UNKNOWN)
    }
    if not unknown:
        return frozenset()
    calls = (call for message in messages for call in message.tool_calls or ())
    return frozenset(
        act_digest(*parsed_call(call.as_function)) for call in calls if call.id in unknown
    )


def act_digest(name: str, arguments: Any) -> tuple[str, bytes]:
    """Equal for calls of the same tool with the same arguments."""
    return name, json_codec.dumps(arguments, option=json_codec.SORTED)


@dataclass(frozen=True)
class _RecordedCall:
    tool: HostedTool
    journal: Journal | None
    """None if the call has no key."""
    key: str
    until: float

    def start(self, arguments: dict[str, Any]) -> Future[HostedResult]:
        """The future raises `StoreUnavailable` if the act was not made for want of a row."""
        future = HostedCall()
        make = self._read if self.tool.is_repeatable else self._act

        def run() -> None:
            try:
                result = make(arguments, future)
            except Exception as error:  # noqa: BLE001 - raised by the thread of the answer
                with suppress(InvalidStateError):
                    future.set_exception(error)
            else:
                with suppress(InvalidStateError):  # cancelled
                    future.set_result(result)

        name = f"call of {self.tool.name}"[:40]
        threading.Thread(target=copy_context().run, args=(run,), name=name, daemon=True).start()
        return future

    def _read(self, arguments: dict[str, Any], future: HostedCall) -> HostedResult:
        with suppress(DatabaseFailed):  # then it is read again
            if self.journal is not None and (known := self.journal.find(self.key)):
                return _loaded(known)
        result = _cancelled_with(future, self.tool.start(arguments)).result()
        if result.task:
            result = self._task_result(result.task, future)
        if self.journal is not None and result.outcome == "known":
            with suppress(DatabaseFailed):
                self.journal.finish(self.key, _dumped(result))
        return result

    def _act(self, arguments: dict[str, Any], future: HostedCall) -> HostedResult:
        if self.journal is not None and (known := self._begin(future)) is not None:
            return known
        if not future.set_running_or_notify_cancel():
            self._withdraw()
            raise CancelledError
        result = _ended(self.tool.start(arguments))
        if result.task:
            if self._has_noted(result.task):
                return self._resumed(result.task, future)
            result = replace(result, content="its task could not be stored.")
        if result.outcome == "not made":
            self._withdraw()
            return result
        if result.outcome == "unknown":
            result = unknown_outcome(result.text)
        self._store(result, future)
        return result

    def _has_noted(self, task: str) -> bool:
        """Return False if the task could not be stored. Then nobody asks for its result: a process that asked
        and was killed would leave an act whose outcome is unknown."""
        try:
            return self.journal is None or self.journal.note_task(self.key, task)
        except DatabaseFailed as error:
            log.warning("the task of a call is not stored", reason=str(error))
            return False

    def _task_result(self, task: str, future: HostedCall) -> HostedResult:
        awaited = AwaitedTask(task, self.until - _TASK_MARGIN, future.left)
        return _ended(self.tool.resume(awaited))

    def _resumed(self, task: str, future: HostedCall) -> HostedResult:
        """The result of an act that the server makes as a task. While it is unknown, a repeated request asks
        for it again."""
        result = self._task_result(task, future)
        match result.outcome:
            case "known":
                self._store(result, future)
            case "not made":
                self._withdraw()
            case "unknown":
                if self.journal is not None:
                    self.journal.abandon(self.key)
                return unknown_outcome(result.text)
        return result

    def _begin(self, future: HostedCall) -> HostedResult | None:
        """None if this request makes the act. Otherwise its result, as soon as it is known."""
        assert self.journal is not None
        while not future.cancelled():
            with database_failures(_PROBLEM):
                entry = self.journal.begin(self.key)
            if entry.state == "mine":
                return None
            if entry.state == "unknown" and entry.task:
                if not future.set_running_or_notify_cancel():
                    break
                return self._resumed(entry.task, future)
            if entry.state != "running":
                return _loaded(entry)
            if time.monotonic() > self.until:
                return unknown_outcome("another request still makes it.")
            time.sleep(_LOOK_SECONDS)
        raise CancelledError

    def _withdraw(self) -> None:
        if self.journal is not None:
            try:
                self.journal.withdraw(self.key)
            except DatabaseFailed as error:
                self.journal.abandon(self.key)
                log.warning("a call that was not made counts as unknown", reason=str(error))

    def _store(self, result: HostedResult, future: HostedCall) -> None:
        """Store the result of an act. If that fails, the answer has it now, and the journal later."""
        if self.journal is None:
            return
        for _ in range(_STORE_ATTEMPTS):
            try:
                self.journal.finish(self.key, _dumped(result))
            except DatabaseFailed as error:
                log.warning("the result of a call is not stored yet", reason=str(error))
                if not future.done():
                    future.set_result(result)
                time.sleep(_STORE_SECONDS)
            else:
                return
        self.journal.abandon(self.key)


def _cancelled_with(
    future: Future[HostedResult], call: Future[HostedResult]
) -> Future[HostedResult]:
    future.add_done_callback(lambda _: call.cancel())  # no effect after its end
    return call


def _ended(call: Future[HostedResult]) -> HostedResult:
    try:
        return call.result()
    except CancelledError:
        return HostedResult("the proxy has ended.", is_error=True, outcome="unknown")


def _dumped(result: HostedResult) -> bytes:
    return json_codec.dumps(asdict(result))


def _loaded(entry: JournalEntry) -> HostedResult:
    if entry.state == "unknown":
        return unknown_outcome("the process that made it has ended.")
    try:
        fields = json_codec.loads(entry.result or b"")
        return HostedResult(**{**fields, "found": tuple(fields["found"])})
    except (
        ValueError,
        TypeError,
        LookupError,
    ):  # no longer stored, or another program has written it
        return unknown_outcome("its result is no longer stored.")
