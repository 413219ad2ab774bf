"""Answer requests: choose an upstream and a mode, and try another upstream if that one fails.

The modes: *relayed* (no tools: the upstream's answer is passed on), *native* (the upstream makes tool calls)
and *emulated* (this proxy turns the model's text into tool calls; see `answerer`). Every front gets its
answers here, streaming or not. Knows nothing of chunks, items or Flask.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from emulator import traces
from emulator.answering.answerer import Answerer
from emulator.answering.first_turn import first_turn
from emulator.answering.hosted_calls import HostedCalls
from emulator.answering.hosted_round import Round, visible_messages
from emulator.answering.model_habits import ModelHabits
from emulator.answering.native.answer import may_be_native, native_answer, native_tokens
from emulator.answering.native.probe import ToolProbe
from emulator.answering.relay import relay, relayed_messages
from emulator.answering.request_trace import record_question, record_way, report_unsupported
from emulator.answering.ways.way import PromptInputs
from emulator.conversation.answer_request import AnswerRequest, read_request
from emulator.conversation.billing_line import without_billing_lines
from emulator.conversation.call_results import matched_results
from emulator.conversation.context import AppliedEdit, edited, without_replaced
from emulator.conversation.deferred_tools import DeferredTools, defer_tools, tool_tokens
from emulator.conversation.hosted_offer import (
    is_hosted,
    offer_hosted_tools,
    with_notice,
    with_offered_names,
)
from emulator.core import metrics
from emulator.core.errors import BadRequest, UpstreamFailed
from emulator.core.events import (
    AnswerEvent,
    Finish,
    FinishReason,
    ModelViewReport,
    ProgramFinished,
    RelayedChunk,
    UpstreamAccepted,
)
from emulator.core.part_cache import PartCache
from emulator.core.protocol import ChatCompletionRequest
from emulator.database import Documents, Journal
from emulator.history import History, Turns, current_turn, recall
from emulator.hosted.hosted_tool import NO_HOSTED_TOOLS, HostedTools, ToolResolver
from emulator.interpreter.approvals import Approvals
from emulator.interpreter.attachments import with_file_contents
from emulator.interpreter.interpreter import Interpreter
from emulator.interpreter.interpreter_session import (
    InterpreterSession,
    linked_containers,
    open_session,
)
from emulator.programs.fingerprints import Fingerprints
from emulator.programs.open_run import OpenRun
from emulator.settings.settings import Order, Settings
from emulator.storage.files import Files
from emulator.upstream.metering import estimate_tokens
from emulator.upstream.retries import may_succeed_at
from emulator.upstream.routes import Route
from emulator.upstream.upstreams import Upstreams
from sandbox.programs.server import ProgramServer

log = structlog.get_logger()

chosen_profile: ContextVar[str] = ContextVar("chosen_profile", default="")
"""The name of the profile for the current request, instead of the one that the model's name chooses."""

_ANOTHER_MODEL = "start the proxy in front of another model, --base-url URL."


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Answers requests."""

    settings: Settings
    upstreams: Upstreams
    programs: ProgramServer
    """Runs the programs of models; None where they cannot run."""
    store: Documents[bytes] | None
    """Stores what models saw and programs that wait; None if nothing is remembered."""
    journal: Journal
    """The acts of hosted calls."""
    turns: Turns
    probe: ToolProbe
    hosted: ToolResolver | None = None
    """Finds the tools that the proxy runs itself."""
    approvals: Approvals | None = None
    """Where people approve hosted calls of clients that cannot be asked; None if nobody can."""
    interpreter: Interpreter | None = None
    files: Files | None = None
    habits: ModelHabits = field(default_factory=ModelHabits)
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    part_cache: PartCache = field(default_factory=PartCache)
    """The parts of conversations that clients sent before."""

    def read(
        self,
        chat: ChatCompletionRequest,
        client: str = "",
        *,
        interpreter_by_default: bool = False,
        order: Order | None = None,
        asks_approval: bool = False,
    ) -> AnswerRequest:
        """Parse ``chat``. The request may use ``client``'s containers and files; ``order`` is from a header.
        With ``asks_approval`` the client is asked about hosted calls that need it.

        Raises `BadRequest` naming the place, `NotFound` for an unknown file or model, `Forbidden` for a model
        that the client's key does not allow.
        """
        chat = without_billing_lines(chat)
        record_question(chat)
        route = self.upstreams.route(chat.model, client, chat.model_extra)
        if chat.shows_programs and not self.settings.programs_wait:
            chat = chat.model_copy(update={"shows_programs": False})
        if profile := chosen_profile.get():
            route = route.with_profile(profile)
        chat, history, hosted, deferred, edits = self._with_hosted_tools(chat, client, route)
        request = read_request(
            chat,
            client,
            route,
            interpreter_by_default=interpreter_by_default and not self._is_embedded(route),
            order=order,
            hosted=hosted,
            deferred=deferred,
        )
        history = replace(history, find_turn=self._turn_finder(client))
        request = replace(
            request, history=history, asks_approval=asks_approval, applied_edits=edits
        )
        if request.order == "auto" and not self.settings.programs_wait:
            # Withheld calls would be lost, and the model would have to write them again.
            request = replace(request, order="dataflow")
        report_unsupported(request.unsupported_tools)
        if request.interpreter is not None:
            if self.interpreter is None or self.files is None:
                raise BadRequest("The code interpreter is off here.", "tools", "interpreter_off")
            if self._is_embedded(route):
                message = (
                    "The embedded model of 135 million parameters cannot write programs for the code "
                    f"interpreter: {_ANOTHER_MODEL}"
                )
                raise BadRequest(message, "tools", "model_too_small")
            _check_container(self.interpreter, request)
        elif self.files is not None:  # no upstream knows files uploaded to the proxy
            messages = with_file_contents(chat.messages, self.files, client)
            if any(map(operator.is_not, messages, chat.messages)):
                request = request.with_messages(messages)
        if self._is_embedded(route) and any(
            each.role != "assistant" and each.other_parts for each in chat.messages
        ):
            message = f"The embedded model reads text only: {_ANOTHER_MODEL}"
            raise BadRequest(message, "messages", "model_too_small")
        return replace(
            request,
            call_policy=replace(request.call_policy, programs=self.settings.programs_wait),
        )

    def _turn_finder(self, client: str) -> Callable[[], str]:
        """The turn of the current request. Raises `Unprocessable`, `StoreUnavailable`."""
        turn_request = current_turn.get()
        if turn_request is None:
            return str
        if turn_request.idempotency_key:
            name = self.turns.find(client, turn_request).name
            return lambda: name
        # A write, which few answers need.
        return lambda: self.turns.find(client, turn_request).name

    def _with_hosted_tools(
        self, chat: ChatCompletionRequest, client: str, route: Route
    ) -> tuple[
        ChatCompletionRequest, History, HostedTools, DeferredTools | None, Sequence[AppliedEdit]
    ]:
        """Add the hosted tools, and what the history lacks; apply the client's rules for its length."""
        hosted = NO_HOSTED_TOOLS
        if self.hosted is not None and not chat.is_legacy:
            hosted = self.hosted.resolve(chat, client)
        if hosted.tools and (chat.n or 1) > 1:
            if any(is_hosted(tool, hosted) for tool in chat.tools or ()):
                raise BadRequest("n must be 1 with tools that the proxy runs.", "n")
            hosted = NO_HOSTED_TOOLS
        history = recall(self.store, client, chat, may_repeat_calls=bool(hosted.tools))
        messages, edits = without_replaced(history.recalled), list[AppliedEdit]()
        messages = matched_results(messages)
        if (rules := chat.context_rules) is not None:
            tools = estimate_tokens((), chat.tools or ())
            messages, edits = edited(messages, rules, tools, route.context_length)
        chat = chat.with_messages(messages)
        if chat.is_legacy:
            return chat, history, hosted, None, edits
        chat, hosted = offer_hosted_tools(chat, hosted)
        deferred = None
        if (chat.n or 1) == 1:
            chat, hosted, deferred = defer_tools(chat, hosted, tool_tokens(route))
        if deferred:
            chat = chat.with_messages(deferred.with_results(chat.messages))
        if hosted.tools:
            chat = chat.with_messages(with_offered_names(chat.messages, hosted))
        if hosted.notice:
            chat = chat.with_messages(with_notice(chat.messages, hosted.notice))
        return chat, history, hosted, deferred, edits

    def answer(self, request: AnswerRequest) -> Iterator[AnswerEvent]:
        """Yield the events of one answer; `UpstreamAccepted` comes before the events of each reply.

        Raises `EmulatorError`, before the first event or after any.
        """
        trace = traces.current.get()
        events = self._events(request)
        return events if trace is None else traces.record_answer(trace, events)

    def _events(self, request: AnswerRequest) -> Generator[AnswerEvent, None, None]:
        until = self.upstreams.deadline()
        hides_cells = request.interpreter is not None and not request.shows_hosted
        if not (request.hosted.tools or request.hosted.listings or hides_cells):
            return self._with_fallbacks(request, until)
        open_run = OpenRun(frozenset(tool.function_name for tool in request.hosted.tools))
        answer = partial(self._with_fallbacks, until=until, open_run=open_run)
        calls = HostedCalls(request, self.approvals, self.journal, answer, until, open_run.close)
        return calls.events()

    def _with_fallbacks(
        self, request: AnswerRequest, until: float, open_run: OpenRun | None = None
    ) -> Generator[AnswerEvent, None, None]:
        route, *others = [request.route, *self._fallbacks(request)]
        while others:
            has_output = False
            events_before_output: list[AnswerEvent] = []
            try:
                for event in self._answer(
                    request.with_route(route), until, open_run, has_fallback=True
                ):
                    if has_output or isinstance(event, UpstreamAccepted):
                        yield event
                        continue
                    events_before_output.append(event)
                    if has_output := _is_output(event):
                        yield from events_before_output
            except UpstreamFailed as error:
                others = [other for other in others if may_succeed_at(other, error, route)]
                # Output that was sent is final: another model would continue it differently.
                if has_output or not others:
                    raise
                metrics.FALLBACKS.inc()
                log.warning("asking another upstream", failed=route.target.name, why=error.message)
                route, *others = others
            else:
                yield from events_before_output if not has_output else ()
                return
        yield from self._answer(request.with_route(route), until, open_run)

    def _is_embedded(self, route: Route) -> bool:
        """Return True for the model that the proxy starts if no upstream is configured."""
        return self.settings.local_model and route.settings.base_url == self.settings.base_url

    def _is_native(self, request: AnswerRequest, until: float) -> bool:
        """Return True if the upstream calls the tools itself."""
        known = self._calls_tools(request)
        if known is not None:
            return known
        with traces.without_trace():
            return self.probe.calls_tools(
                request.route,
                lambda: self.upstreams.for_answer(request.route, request.client, until),
            )

    def _calls_tools(self, request: AnswerRequest) -> bool | None:
        """None if the model must be asked."""
        tools = request.profile.tools or request.settings.tools
        if tools == "emulate" or not may_be_native(request):
            return False
        return True if tools == "native" else self.probe.remembered(request.route)

    def _fallbacks(self, request: AnswerRequest) -> list[Route]:
        """Return the other upstreams for this request that make the same number of choices per answer."""
        fallbacks = self.upstreams.routes.fallbacks(request.route)
        return [
            route
            for route in fallbacks
            if request.with_route(route).choice_count == request.choice_count
        ]

    def _answer(
        self,
        request: AnswerRequest,
        until: float,
        open_run: OpenRun | None,
        *,
        has_fallback: bool = False,
    ) -> Iterator[AnswerEvent]:
        upstream = self.upstreams.for_answer(
            request.route, request.client, until, has_fallback=has_fallback
        )
        if request.relayed:
            record_way(request, "relayed")
            return relay(request, upstream)
        if self._is_native(request, until):
            record_way(request, "native")
            return native_answer(request, upstream, self.programs)
        record_way(request, "emulated")
        answerer = Answerer(
            upstream=upstream,
            programs=self.programs,
            habits=self.habits,
            fingerprints=self.fingerprints,
            request=request,
            open_run=open_run,
            open_session=self._session_opener(request),
        )
        # `HostedCalls` remembers the whole of several answers.
        return answerer.events() if open_run else _remembered(request, answerer.events())

    def prompt_tokens(self, request: AnswerRequest) -> int:
        """Estimate the length of the prompt without the model's tokenizer and without asking the model."""
        if request.relayed:
            return estimate_tokens(relayed_messages(request))
        if self._calls_tools(request):
            return native_tokens(request)
        return estimate_tokens(first_turn(PromptInputs(request=request, habit="python")).messages)

    def _session_opener(self, request: AnswerRequest) -> Callable[[], InterpreterSession] | None:
        if request.interpreter is None or self.interpreter is None or self.files is None:
            return None
        return partial(
            open_session,
            self.interpreter,
            self.files,
            self.settings,
            request.client,
            request.chat,
            request.interpreter,
            linked=linked_containers(request.history.messages),
            few_shot=request.profile.few_shot,
        )


def _remembered(
    request: AnswerRequest, events: Iterator[AnswerEvent]
) -> Generator[AnswerEvent, None, None]:
    """Append the answer to the history before its last event."""
    done = Round()
    for event in events:
        done.note(event)
        if isinstance(event, Finish):
            messages = done.messages({})
            visible = visible_messages(request, messages, "".join(done.words), done.sent)
            request.history.append(messages, visible)
        if not isinstance(event, ModelViewReport):
            yield event


def without_output(events: Iterator[AnswerEvent], reason: FinishReason) -> Iterator[AnswerEvent]:
    """An answer of no tokens, which fills the server's prefix cache: the upstream is asked for one token,
    because many refuse to be asked for none."""
    for event in events:
        if isinstance(event, Finish):
            usage = replace(event.usage, completion_tokens=0)
            yield replace(event, reason=reason, usage=usage)
        elif isinstance(event, UpstreamAccepted):
            yield event


def _check_container(interpreter: Interpreter, request: AnswerRequest) -> None:
    """Raises `NotFound` if the client has no such container."""
    if isinstance(request.interpreter, str):
        interpreter.containers.get(request.client, request.interpreter)


def _is_output(event: AnswerEvent) -> bool:
    """Return True if ``event`` is the upstream's, and more than the role at the start of its stream."""
    if not isinstance(event, RelayedChunk):
        return not isinstance(event, ProgramFinished)
    choices = event.chunk.get("choices") or [{}]
    return any(
        choice.get("finish_reason") or any(v for k, v in delta.items() if k != "role")
        for choice in choices
        for delta in [choice.get("delta") or {}]
    )
