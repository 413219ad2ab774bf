"""The line, in order: request -> what it asks for -> messages -> reply -> calls -> answer events.

Every answer is made here, for every front, streaming or not, with tools or without; the turns of one in
which the model may write Python are in `answerer.py`. Knows nothing of chunks, items or Flask.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from emulator import metrics, traces
from emulator.answering.answerer import Answerer
from emulator.answering.asked import Asked, read_request
from emulator.answering.bench import Bench, open_bench
from emulator.answering.first_turn import first_turn
from emulator.answering.habits import Habits
from emulator.answering.native.answer import may_be_native, native_answer
from emulator.answering.native.probe import Probe
from emulator.answering.relay import relay, relayed_messages
from emulator.answering.usage import estimated_tokens
from emulator.errors import BadRequest, UpstreamFailed
from emulator.events import AnswerEvent, RelayedChunk, UpstreamAccepted
from emulator.interpreter.attachments import written_out
from emulator.interpreter.interface import Cells
from emulator.protocol import ChatCompletionRequest
from emulator.settings import Order, Settings
from emulator.storage.files import Files
from emulator.storage.key_value import KeyValueStore
from emulator.traces.trace import Mode
from emulator.upstream.retries import may_do_elsewhere
from emulator.upstream.routes import Route
from emulator.upstream.upstreams import Upstreams
from sandbox.engine import Engine

log = structlog.get_logger()

# What clients offer most; whatever else they name must not become a label.
_COUNTED = ("web_search", "file_search", "image_generation", "mcp", "computer", "tool_search")


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Answers requests with their models' upstreams, and the engines in the order in which they are tried."""

    settings: Settings
    upstreams: Upstreams
    engines: Sequence[Engine]
    store: KeyValueStore | None = None
    interpreter: Cells | None = None
    files: Files | None = None
    habits: Habits = field(default_factory=Habits)
    probe: Probe = field(default_factory=lambda: Probe(None))
    profile: str = ""
    """By which all requests are read, in place of those that their models' names choose."""

    def read(
        self,
        request: ChatCompletionRequest,
        client: str = "",
        *,
        interpreter_by_default: bool = False,
        order: Order | None = None,
    ) -> Asked:
        """What ``request`` asks for; ``client`` is whose containers and files may be used, ``order`` what a
        header says of which calls leave together.

        Raises `BadRequest` naming the place, `NotFound` for a file or a model of no upstream, `Forbidden` for
        one that the client's key is not for.
        """
        if (trace := traces.current.get()) is not None:
            trace.model, trace.streamed = request.model, bool(request.stream)
        route = self.upstreams.route(request.model, client, request.model_extra or ())
        asked = read_request(
            request,
            client,
            route.with_profile(self.profile) if self.profile else route,
            interpreter_by_default=interpreter_by_default,
            order=order,
        )
        if self.store is None and asked.order == "auto":
            # What is kept back could only be asked of the model again.
            asked = replace(asked, order="dataflow")
        _tell_dropped(asked.dropped)
        if asked.interpreter is not None:
            if self.interpreter is None or self.files is None:
                raise BadRequest("The code interpreter is off here.", "tools", "interpreter_off")
        elif self.files is not None:  # no upstream knows the files that were uploaded here
            messages = written_out(request.messages, self.files, client)
            if any(map(operator.is_not, messages, request.messages)):
                asked = replace(asked, request=request.model_copy(update={"messages": messages}))
        return replace(asked, choice=replace(asked.choice, programs=self.store is not None))

    def answer(self, asked: Asked) -> Iterator[AnswerEvent]:
        """One answer as it comes, `UpstreamAccepted` before the events of each reply of the upstream.

        Raises `EmulatorError`, before the first event or after any.
        """
        trace = traces.current.get()
        events = self._answered(asked)
        return events if trace is None else traces.watched(trace, events)

    def _answered(self, asked: Asked) -> Generator[AnswerEvent, None, None]:
        until = self.upstreams.deadline()
        routes = [asked.route, *self._fallbacks(asked)]
        for route in routes[:-1]:
            said = False
            silent: list[AnswerEvent] = []
            try:
                for event in self._answer(asked.instead(route), until):
                    if said or isinstance(event, UpstreamAccepted):
                        yield event
                        continue
                    silent.append(event)
                    if said := _says_something(event):
                        yield from silent
            except UpstreamFailed as error:
                # What has been said cannot be taken back, and another model would say it otherwise.
                if said or not may_do_elsewhere(error):
                    raise
                metrics.FALLBACKS.inc()
                log.warning("asking another upstream", failed=route.target.name, why=error.message)
            else:
                yield from silent if not said else ()
                return
        yield from self._answer(asked.instead(routes[-1]), until)

    def _is_native(self, asked: Asked, until: float) -> bool:
        """Whether the upstream is to call the tools itself."""
        tools = asked.settings.tools
        if tools == "emulate" or not may_be_native(asked):
            return False
        if tools == "native":
            return True
        with traces.unrecorded():
            return self.probe.calls_tools(
                asked.route, lambda: self.upstreams.turns(asked.route, asked.client, until)
            )

    def _fallbacks(self, asked: Asked) -> list[Route]:
        """Where to ask instead; only where as many choices come of one answer."""
        fallbacks = self.upstreams.routes.fallbacks(asked.route)
        return [route for route in fallbacks if asked.instead(route).answers == asked.answers]

    def _answer(self, asked: Asked, until: float) -> Iterator[AnswerEvent]:
        upstream = self.upstreams.turns(asked.route, asked.client, until)
        if asked.relayed:
            _record(asked, "relayed")
            return relay(asked, upstream, self.store)
        if self._is_native(asked, until):
            _record(asked, "native")
            return native_answer(asked, upstream, self.engines)
        _record(asked, "emulated")
        answerer = Answerer(
            upstream=upstream,
            engines=self.engines,
            store=self.store,
            habits=self.habits,
            asked=asked,
            open_bench=self._bench(asked),
        )
        return answerer.events()

    def prompt_tokens(self, asked: Asked) -> int:
        """How long the prompt for an answer is, as near as can be told without the model's tokenizer."""
        if asked.relayed:
            return estimated_tokens(relayed_messages(asked))
        messages, _ = first_turn(asked, habit="python", engines=[e.name for e in self.engines])
        return estimated_tokens(messages)

    def _bench(self, asked: Asked) -> Callable[[], Bench] | None:
        if asked.interpreter is None or self.interpreter is None or self.files is None:
            return None
        return partial(
            open_bench,
            self.interpreter,
            self.files,
            self.settings,
            asked.client,
            asked.request,
            asked.interpreter,
            few_shot=asked.profile.few_shot,
        )


def _record(asked: Asked, mode: Mode) -> None:
    """What the trace is to know of the request and of where it goes."""
    trace = traces.current.get()
    if trace is None:
        return
    trace.mode, trace.upstream, trace.profile = mode, asked.route.target.name, asked.profile.name
    toolset = asked.toolset
    trace.tools = toolset.wire_names
    # Of the toolset, which is there once for all requests: a request with its messages is not kept.
    trace.stubs = lambda: toolset.stubs


def _says_something(event: AnswerEvent) -> bool:
    """Whether ``event`` is more than the role with which an upstream's stream begins."""
    if not isinstance(event, RelayedChunk):
        return True
    choices = event.chunk.get("choices") or [{}]
    return any(
        choice.get("finish_reason") or any(v for k, v in delta.items() if k != "role")
        for choice in choices
        for delta in [choice.get("delta") or {}]
    )


def _tell_dropped(kinds: Sequence[str]) -> None:
    if not kinds:
        return
    log.info("tools left out", types=[kind[:64] for kind in kinds[:16]])
    for kind in kinds:
        label = next((name for name in _COUNTED if kind.startswith(name)), "other")
        metrics.TOOLS_DROPPED.labels(label).inc()
