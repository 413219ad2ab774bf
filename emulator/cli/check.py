"""`tool-emulator check`: what the model servers are and can do, tried with one call, and what to set.

A server's report has these lines, of which the first that fails for good is the last:

    server        the kind, or why it does not answer
    models        the models that it lists, with their windows
    call          one call of a tool, made as the settings say
    native tools  whether the model makes calls itself (`emulator.answering.native.probe`)
    window        the tokens of the model's window; servers load a model, and choose this, at its first call
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from emulator.answering.native.probe import ToolProbe
from emulator.cli.fit.playing import answers, open_pipelines
from emulator.core import addresses, json_codec
from emulator.core.controls import printable
from emulator.core.errors import EmulatorError, UpstreamFailed
from emulator.core.tasks import Call, tasks
from emulator.database import open_database
from emulator.database.sqlite import MEMORY
from emulator.settings.settings import Settings
from emulator.upstream.interface import ModelRow
from emulator.upstream.model_list import chats
from emulator.upstream.reachability import Reachability
from emulator.upstream.routes import Route, Target
from emulator.upstream.servers import SERVERS, UNKNOWN, ServerKind, loaded_lengths
from emulator.upstream.upstreams import Upstreams
from sandbox.report import Check, render

SMALL_WINDOW = 16_384
"""Tokens. Less holds a chat, but not the prompt and the files of a coding agent (docs/agents.md)."""
_ANSWER_SECONDS = 120.0
"""A server may load the model first."""
_PROBE_SECONDS = 60.0
_SEARCH_SECONDS = 2.0
"""How long a usual port on this machine may be silent."""
_SHOWN_MODELS = 8
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class UpstreamReport:
    """What one upstream is and can do."""

    name: str
    checks: Sequence[Check]

    @property
    def is_usable(self) -> bool:
        return all(check.ok for check in self.checks if check.needed)

    def __str__(self) -> str:
        # A server chooses the names of its models and its errors, which must not look like lines of ours.
        lines = [replace(check, detail=" ".join(check.detail.split())) for check in self.checks]
        return printable(render(lines))


def examine(settings: Settings, model: str = "") -> Iterator[UpstreamReport]:
    """Yield a report of each configured upstream, or of the one of ``model``, the client's name of the model
    to call; "" for one of each server. Raises `NotFound` for a model that no upstream serves.
    """
    upstreams = Upstreams(settings)
    try:
        targets = upstreams.routes.targets
        if model:
            targets = (upstreams.routes.of(model).target,)
        reachability = Reachability(upstreams)
        reachability.check()
        for target in targets:
            checks = [*_checks(settings, upstreams, reachability, target, model)]
            yield UpstreamReport(target.name, checks)
    finally:
        upstreams.close()


def usual_places(settings: Settings) -> Mapping[str, str]:
    """The base URLs at which `serve` and the makers of servers expect one by default, and its name."""
    places = {addresses.shown_url(settings.base_url): "the default"}
    return places | {
        f"http://127.0.0.1:{kind.port}/v1": kind.name for kind in reversed(SERVERS) if kind.port
    }


def find_servers(settings: Settings, places: Iterable[str]) -> Iterator[str]:
    """Yield those of the base URLs ``places`` that list a model."""
    for url in places:
        limits = {"base_url": url, "upstream_seconds": _SEARCH_SECONDS}
        upstreams = Upstreams(settings.model_copy(update=limits))
        with closing(upstreams), suppress(UpstreamFailed):
            if upstreams.of(upstreams.routes.default()).upstream.models(None):
                yield url


def _checks(
    settings: Settings,
    upstreams: Upstreams,
    reachability: Reachability,
    target: Target,
    model: str,
) -> Iterator[Check]:
    line, is_usable = reachability.describe(target)
    yield Check("server", is_usable, line)
    if not is_usable:
        return
    server = reachability.servers.get(addresses.shown_url(target.settings.base_url), UNKNOWN)
    rows = _models(upstreams, target)
    routes = upstreams.routes
    windows = routes.context_lengths.get(target.name, {})
    loaded = partial(loaded_lengths, server, upstreams.of(target).upstream.at_root)
    name = model or _first_chat_model(target, rows, loaded())
    yield Check("models", bool(rows), _listed(rows, windows), needed=False)
    if not name:
        yield Check("call", False, "no model is known to ask", "name one: check --model MODEL")
        return
    route = routes.of(name)
    call = _call(settings, route)
    yield call
    if not call.ok:
        return
    if not settings.local_model:
        yield _native_tools(upstreams, route)
    routes.loaded_lengths[target.name] = loaded()
    yield _window(routes.of(name), server, is_embedded=settings.local_model)


def _models(upstreams: Upstreams, target: Target) -> list[ModelRow]:
    try:
        return upstreams.of(target).upstream.models(None)
    except UpstreamFailed:
        return []


def _first_chat_model(target: Target, rows: list[ModelRow], loaded: Mapping[str, int]) -> str:
    """Return the client's name of a model in memory, else of the first that chats; "" if there is none."""
    served = [row for row in rows if chats(row) and target.serves(target.client_name(row["id"]))]
    served.sort(key=lambda row: row["id"] not in loaded)
    return target.client_name(served[0]["id"]) if served else ""


def _listed(rows: list[ModelRow], windows: Mapping[str, int]) -> str:
    shown = [
        f"{row['id']} ({windows[row['id']]:,} tokens)" if row["id"] in windows else row["id"]
        for row in rows[:_SHOWN_MODELS]
    ]
    if more := len(rows) - len(shown):
        shown.append(f"{more} more")
    return ", ".join(shown) or "the server lists none"


def _call(settings: Settings, route: Route) -> Check:
    """Ask the model for the call of `fit`'s first task, as a client does."""
    sys.stderr.write(f"asking {printable(route.client_model)} for a call ...\n")
    task = tasks()[0]
    calls: list[Call] = []
    words, problem = "", ""
    began = time.monotonic()
    try:
        with open_pipelines(settings, (), _ANSWER_SECONDS) as new_pipeline:
            # The answer to the call's result needs no check.
            choice = next(answers(new_pipeline(), task, {"model": route.client_model}))
        for call in choice["message"].get("tool_calls") or ():
            function = call["function"]
            calls.append((function["name"], json_codec.loads(function["arguments"])))
        words = choice["message"]["content"] or ""
    except EmulatorError as error:
        problem = error.message
    seconds = time.monotonic() - began
    shown_calls = "; ".join(f"{name}({_arguments(arguments)})" for name, arguments in calls)
    answer = shown_calls or problem or words.strip() or "an empty answer"
    detail = f"{route.client_model}: {answer}"
    right = task.judge(calls).arguments
    fix = "" if right else "check --model MODEL asks another; fit measures other ways to ask"
    return Check("call", right, f"{detail[:_SHOWN_CHARACTERS]}, after {seconds:.1f} s", fix)


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{n}={json.dumps(v, ensure_ascii=False)}" for n, v in arguments.items())


def _native_tools(upstreams: Upstreams, route: Route) -> Check:
    until = time.monotonic() + _PROBE_SECONDS
    with closing(open_database(MEMORY)) as database:
        probe = ToolProbe(database)
        probe.calls_tools(route, lambda: upstreams.for_answer(route, "", until))
        known, setting = probe.remembered(route), route.settings.tools
    if known:
        use = "" if setting != "emulate" else "; --tools auto uses them"
        return Check("native tools", True, f"the model makes calls itself{use}")
    detail = "the test failed" if known is None else "none: this proxy makes the calls"
    if setting == "native":
        return Check("native tools", False, detail, "set tools to auto or emulate", needed=False)
    return Check("native tools", True, detail)


def _window(route: Route, server: ServerKind, *, is_embedded: bool) -> Check:
    length = route.context_length
    if not length:
        return Check("window", True, "the server does not say how many tokens it has")
    is_small = length < SMALL_WINDOW and not is_embedded
    detail = f"{length:,} tokens" + ", too few for coding agents" * is_small
    fix = (server.longer_window() or "start the server with a longer context") if is_small else ""
    return Check("window", not is_small, detail, fix, needed=False)
