"""Answer one task in one way, as a client of the ordinary pipeline would see it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

from emulator import traces
from emulator.answering.native.probe import ToolProbe
from emulator.answering.pipeline import Pipeline, chosen_profile
from emulator.cli.fit.outcomes import TaskOutcome
from emulator.cli.fit.ways import MeasuredWay
from emulator.core import json_codec
from emulator.core.errors import EmulatorError, UpstreamFailed
from emulator.core.protocol import parse_chat
from emulator.core.tasks import Call, Task
from emulator.database import Journal, Leases, open_database
from emulator.database.sqlite import MEMORY
from emulator.fronts.chat.chunks import collect
from emulator.fronts.chat.front import complete
from emulator.history import Turns
from emulator.history.log import history_documents
from emulator.interpreter.engines import open_programs
from emulator.reading.openings import MARK
from emulator.settings.settings import Settings
from emulator.traces import Trace
from emulator.upstream.upstreams import Upstreams

_AWAY = (401, 403, 408, 429, 503)
_BROKEN = 502
"""From this status on the request was accepted, or never arrived."""
_TIMEOUT = 504


class UpstreamAway(Exception):
    """The upstream cannot be reached, is busy or refuses the key: another way would fare no better."""


class WayRefused(Exception):
    """The server refused a request because of how it asks for calls."""


@contextmanager
def open_pipelines(
    settings: Settings, ways: Sequence[MeasuredWay], seconds: float
) -> Iterator[Callable[[], Pipeline]]:
    """Yield what opens a pipeline for a way; all share the upstreams and the program server. ``seconds``:
    limit of one answer."""
    alone = {"fallbacks": (), "breaker_failures": 0}  # another model's answers would not count
    rows = tuple(row.model_copy(update=alone) for row in settings.upstreams)
    profiles = (*(way.row() for way in ways), *settings.profiles)
    limits = {"answer_seconds": seconds, "upstream_seconds": seconds}
    settings = settings.model_copy(
        update={**alone, **limits, "upstreams": rows, "profiles": profiles}
    )
    with ExitStack() as opening:
        upstreams = Upstreams(settings)
        opening.callback(upstreams.close)
        programs = opening.enter_context(closing(open_programs(settings)))
        database = open_database(MEMORY)
        opening.callback(database.close)
        leases = Leases(database)
        opening.callback(leases.close)
        yield partial(
            Pipeline,
            settings=settings,
            upstreams=upstreams,
            programs=programs,
            store=history_documents(database, settings.store_seconds),
            journal=Journal(database, leases, settings.store_seconds),
            turns=Turns(database),
            probe=ToolProbe(database),
        )


def play(
    pipeline: Pipeline, way: MeasuredWay, task: Task, fields: Mapping[str, Any], *, first: bool
) -> TaskOutcome:
    """Ask for the task until the model has made its calls or answers in words.

    ``fields`` are the request's other fields, ``model`` among them. Raises `UpstreamAway`, and `WayRefused`
    if the server refuses the ``first`` task in this way.
    """
    trace = Trace("fit", "", "", records_wire=False)
    token, profile = traces.current.set(trace), chosen_profile.set(way.row().name)
    calls: list[Call] = []
    has_words, is_cut_off, is_upstreams_fault, problem = False, False, False, ""
    began = time.monotonic()
    try:
        for choice in answers(pipeline, task, fields):
            calls += map(_call, choice["message"].get("tool_calls") or ())
            has_words = bool(choice["message"]["content"])
            is_cut_off = choice["finish_reason"] == "length"
    except UpstreamFailed as error:
        if error.status in _AWAY or error.code == "upstream_down":
            raise UpstreamAway(error.message) from error
        if first and error.status < _BROKEN:
            raise WayRefused(error.message) from error
        problem = error.message
        is_upstreams_fault = error.status >= 500 and error.status != _TIMEOUT
    except EmulatorError as error:
        problem = error.message
    finally:
        traces.current.reset(token)
        chosen_profile.reset(profile)
    verdict = task.judge(calls)
    answered = not problem and (has_words or bool(calls))
    if is_cut_off and not (verdict.arguments and answered):
        problem = f"cut off at {fields['max_tokens']} tokens (--max-tokens)"
    return TaskOutcome(
        way=way.name,
        task=task.id,
        function=verdict.function and answered,
        arguments=verdict.arguments and answered,
        needless=verdict.needless,
        harmful=verdict.harmful,
        prompt_tokens=sum(turn.prompt_tokens for turn in trace.turns),
        completion_tokens=sum(turn.completion_tokens for turn in trace.turns),
        seconds=round(time.monotonic() - began, 2),
        calls=tuple(calls),
        labelled=any(
            block.source.lstrip("`~ ").startswith(MARK)
            for turn in trace.turns
            for block in turn.blocks
        ),
        problem=problem,
        is_upstreams_fault=is_upstreams_fault,
    )


def answers(
    pipeline: Pipeline, task: Task, fields: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Yield the model's answers. After each call, send the task's result. Raises `EmulatorError`."""
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": task.ask}]
    call_count = 0
    while True:
        body = {**fields, "messages": messages, "tools": task.tools, "stream": True}
        request = pipeline.read(parse_chat(json_codec.dumps(body)))
        choice = collect(complete(pipeline, request))["choices"][0]
        yield choice
        message = choice["message"]
        calls = message.get("tool_calls") or ()
        call_count += len(calls)
        if not calls or call_count >= len(task.calls):
            return
        messages += [message, *(_result(task, call) for call in calls)]


def _result(task: Task, call: Mapping[str, Any]) -> Mapping[str, Any]:
    result = task.results.get(call["function"]["name"], {"ok": True})
    return {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}


def _call(call: Mapping[str, Any]) -> Call:
    """A call of the answer; its arguments were bound by the toolset."""
    return call["function"]["name"], json_codec.loads(call["function"]["arguments"])
