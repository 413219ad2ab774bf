"""A hosted call that waits for a person in the inspector, as cells do: see `Approvals`. A person approves it
before it starts, or answers what its server asks meanwhile.

For fronts that cannot ask the client. The call's future exists from the beginning, so the answer waits for it
as for a running call: it may be cancelled until it is approved, and has the answer's deadline.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from emulator import traces
from emulator.core.events import new_id
from emulator.hosted.elicitation import Ask, Form, Question
from emulator.hosted.hosted_tool import HostedCall, HostedResult, HostedTool, ended_call
from emulator.hosted.sealed_values import PrivateKey
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.pending_approval import DISCONNECTED
from emulator.programs.failures import NOT_APPROVED


def approved_first(
    tool: HostedTool, approvals: Approvals, client: str, seconds: float
) -> HostedTool:
    """The tool, whose calls start when ``client`` approves them, and fail after ``seconds`` without it."""
    return replace(tool, start=partial(_start, tool, approvals, client, seconds))


def asked_person(approvals: Approvals, seconds: float) -> Ask:
    """How servers ask the person of a client; without an answer after ``seconds``, that is a refusal."""

    def ask(client: str, form: Form) -> Future[dict[str, Any] | None]:
        key = PrivateKey()
        question = Question(**form.model_dump(), public_key=key.public)
        pending = approvals.add(new_id("ask_"), client, question.model_dump_json())
        future: Future[dict[str, Any] | None] = Future()
        future.add_done_callback(lambda _: pending.refuse(DISCONNECTED))

        def run() -> None:
            try:
                decision = approvals.wait(pending, seconds)
            finally:
                approvals.remove(pending)
            values = key.opened(decision.code or "") if decision.approved else None
            with suppress(InvalidStateError):
                future.set_result(values)

        threading.Thread(target=run, name="question", daemon=True).start()
        return future

    return ask


def _start(
    tool: HostedTool,
    approvals: Approvals,
    client: str,
    seconds: float,
    arguments: dict[str, Any],
) -> Future[HostedResult]:
    shown = f"{tool.server}.{tool.name}\n{json.dumps(arguments, indent=2, ensure_ascii=False)}"
    pending = approvals.add(new_id("call_"), client, shown)
    future = HostedCall()
    future.add_done_callback(lambda _: pending.refuse(DISCONNECTED))  # no effect after a decision

    def run() -> None:
        try:
            with traces.record_time(f"approval of {tool.server}.{tool.name}"[:100]):
                decision = approvals.wait(pending, seconds)
        finally:
            approvals.remove(pending)
        if decision.approved:
            # As a running call, an act cannot be cancelled any more.
            if not tool.is_repeatable and not future.set_running_or_notify_cancel():
                return
            call = tool.start(arguments)
            future.left.add_done_callback(lambda _: call.cancel())  # no effect after its end
            call.add_done_callback(finish)
        else:
            reason = f": {decision.reason}" if decision.reason else "."
            finish(ended_call(HostedResult(f"{NOT_APPROVED}{reason}", is_error=True)))

    def finish(call: Future[HostedResult]) -> None:
        with suppress(InvalidStateError, CancelledError):
            if (error := call.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(call.result())

    threading.Thread(target=copy_context().run, args=(run,), name="approval", daemon=True).start()
    return future
