"""Run hosted calls inside an answer: the proxy is its own client.

    answer -> calls, all hosted: run them -> the history with these calls and their results -> answer -> ...
           -> calls, some of the client or for it to approve: run the others, and the answer ends

A hosted call leaves a program, a cell or a native reply as any call does. It starts as soon as it leaves, so
calls that leave together run at the same time; the front gets `HostedCallStarted` and `HostedCallFinished`
instead of the call. Then the answer is made again, with a history that has the calls and their results as if
a client had sent them: a program or cell resumes, and only its end is a model turn. So order, failures,
replay and transcripts are those of a client's calls.

What may never happen:

* An act is made twice: every later replay has its result in the history, if not from the client then
  from the journal (`recorded_call`).
* A call outlives its answer: one that ends early, or is left by its client, cancels its readers and waits
  for its acts.
* An answer goes on forever: calls are counted, and beyond the limit the model is asked without tools.

Knows nothing of servers, prompts or wire formats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace

from emulator.answering.call_approval import approved_first
from emulator.answering.hosted_round import Round, result_message, visible_messages
from emulator.answering.recorded_call import (
    act_digest,
    has_begun,
    is_recorded,
    recorded,
    unknown_acts,
)
from emulator.answering.relay import expand_relayed_chunks
from emulator.answering.running_calls import RunningCalls
from emulator.conversation.answer_request import AnswerRequest
from emulator.core.client_disconnect import stop_on_disconnect
from emulator.core.events import (
    AnswerEvent,
    ApprovalRequested,
    CodeComplete,
    CodeDelta,
    CodeFinished,
    CodeStarted,
    Finish,
    HostedError,
    ModelViewReport,
    ReasoningDelta,
    ToolCall,
    ToolsListed,
    UpstreamAccepted,
    Usage,
    new_id,
)
from emulator.core.protocol import HistoryCall, Message
from emulator.database import DatabaseFailed, Journal
from emulator.hosted.hosted_tool import HostedResult, HostedTool
from emulator.hosted.search_results import names_url
from emulator.hosted.url_sources import URLSources
from emulator.interpreter.approvals import Approvals
from emulator.programs.call_history import parsed_call
from emulator.programs.ended import with_finished_program
from emulator.programs.failures import NOT_APPROVED
from emulator.tools.toolset import BindError
from emulator.upstream.usage_counter import total_usage

_MAX_CALLS = 128
"""Of one answer."""

Answer = Callable[[AnswerRequest], Generator[AnswerEvent, None, None]]


class HostedCalls:
    """One answer with hosted tools; ``answer`` makes the events of one round, by the deadline ``until``."""

    def __init__(
        self,
        request: AnswerRequest,
        approvals: Approvals | None,
        journal: Journal,
        answer: Answer,
        until: float,
        close: Callable[[], None],
    ) -> None:
        """``close`` releases what ``answer`` holds between two rounds. Without ``approvals`` nobody can
        approve what the client does not."""
        self._request = request
        self._approvals = approvals
        self._journal = journal
        self._answer = answer
        self._close = close
        self._history = request.history
        self._until = until
        self._running = RunningCalls(until)
        self._messages: Sequence[Message] = ()
        """What the model has read before this round."""
        self._unknown: Collection[tuple[str, bytes]] = ()
        """The acts of the conversation whose outcome is unknown."""
        self._tools: dict[str, HostedTool] = {}
        """Of each call that was begun here, by the call's id."""
        self._limit = min(_MAX_CALLS, request.chat.max_tool_calls or _MAX_CALLS)
        self._call_count = 0
        self._has_listed = False
        self._suspended_cell: CodeFinished | None = None
        """The last event of a cell that waits for hosted calls. The client sees it as one cell, so the event
        is sent only if the cell does not resume in this answer."""
        self._repeats_code = False

    def events(self) -> Generator[AnswerEvent, None, None]:
        """Raises `EmulatorError`, before the first event or after any."""
        try:
            with stop_on_disconnect(self._running.cancel):
                yield from self._rounds()
        finally:
            self._running.close()
            self._close()

    def _rounds(self) -> Iterator[AnswerEvent]:
        request = yield from self._decided(self._request)
        answer: list[Message] = []
        words: list[str] = []
        usages: list[Usage] = []
        is_warned = False
        while True:
            done = yield from self._round(request)
            messages = done.messages(self._running.results)
            answer += messages
            words += done.words
            usages.append(done.finish.usage)
            if done.sent or not done.run_here or done.finish.reason != "tool_calls":
                break
            request = request.continued(messages)
            for end in done.ended:
                finished = with_finished_program(request.chat.messages, end)
                request = request.with_messages(finished)
            if self._call_count > self._limit:
                request = request.without_tools() if is_warned else request
                is_warned = True
        yield from self._end_suspended_cell()
        visible = visible_messages(self._request, answer, "".join(words), done.sent)
        self._history.append(answer, visible)
        reason = "tool_calls" if done.sent else done.finish.reason
        yield replace(done.finish, reason=reason, usage=total_usage(usages))

    def _round(self, request: AnswerRequest) -> Generator[AnswerEvent, None, Round]:
        done = Round()
        self._messages = request.chat.messages
        self._unknown = unknown_acts(self._messages)
        with closing(self._answer(request)) as events:
            for event in expand_relayed_chunks(request, events, unique_ids=True):
                yield from self._running.advance()
                yield from self._passed_on(event, done)
        if done.waits_for_approval:
            self._close()  # a program's kernel is not occupied while a person decides
        yield from self._running.wait()
        return done

    def _passed_on(self, event: AnswerEvent, done: Round) -> Iterator[AnswerEvent]:
        """What the front gets of an event."""
        match event:
            case UpstreamAccepted():
                yield event
                yield from self._listings()
                return
            case CodeStarted(resumes=earlier) if earlier and self._suspended_cell is not None:
                self._suspended_cell, self._repeats_code = None, True
                return
            case CodeDelta() | CodeComplete() if self._repeats_code:
                self._repeats_code = isinstance(event, CodeDelta)
                return
            case CodeFinished(waits=True):
                self._suspended_cell = event
                return
            case ToolCall(name=name) if tool := self._request.hosted.find(name):
                done.calls.append(event)
                yield from self._start(tool, event, done)
                return
            case Finish():
                done.finish = event
                return
        done.note(event)
        if isinstance(event, ModelViewReport):
            return
        yield from self._end_suspended_cell()
        yield event

    def _start(self, tool: HostedTool, call: ToolCall, done: Round) -> Iterator[AnswerEvent]:
        key = self._history.act_key(call)
        asks = tool.needs_approval or (
            not tool.is_repeatable and act_digest(call.name, call.arguments) in self._unknown
        )
        asks = asks and not has_begun(self._journal, key)
        if asks and self._request.asks_approval and tool.kind == "mcp":
            yield from self._end_suspended_cell()
            self._note_asked(call)
            parts = (call.id, tool.server, tool.name, call.arguments, call.caller)
            yield ApprovalRequested(*parts)
            return
        done.run_here.append(call.id)
        tool = recorded(tool, self._journal, key, self._until)
        if not asks:
            yield from self._run(tool, call)
        elif self._approvals is None:
            text = f"{NOT_APPROVED}: this API has no way to ask the user."
            yield from self._run(tool, call, HostedResult(text, is_error=True))
        else:
            client, seconds = self._request.client, self._request.settings.approval_seconds
            yield from self._run(approved_first(tool, self._approvals, client, seconds), call)
            if call.id not in self._running.results:
                done.waits_for_approval = True
                yield ReasoningDelta(f"{tool.name} waits for approval at /inspector/containers.\n")

    def _run(
        self,
        tool: HostedTool,
        call: ToolCall,
        known: HostedResult | None = None,
        approval_id: str | None = None,
    ) -> Iterator[AnswerEvent]:
        """Start a call, unless its result is ``known``."""
        known = known or self._history.former_results.get(call.id)
        self._call_count += 1
        if self._call_count > self._limit:
            text = f"Not called: an answer may have at most {self._limit} calls of such tools."
            known = known or HostedResult(text, is_error=True, error_code="max_uses_exceeded")
        self._tools[call.id] = tool
        if tool.kind == "web_fetch" and not self._is_named(call.arguments["url"], tool.url_sources):
            text = "This URL is neither in a message of the user nor in a result."
            code: HostedError = "url_not_in_prior_context"
            known = known or HostedResult(text, is_error=True, error_code=code)
        yield from self._running.add(tool, call, known, approval_id)

    def _is_named(self, url: str, sources: URLSources | None) -> bool:
        """Return True if a message or a result names the URL, of those that ``sources`` include. What only
        the model wrote could send what it knows to whoever wrote a page."""
        calls = (call for message in self._messages for call in message.tool_calls or ())
        names = {call.id: parsed_call(call.as_function)[0] for call in calls}
        names |= {key: tool.function_name for key, tool in self._tools.items()}
        texts = [
            (one.text, names.get(one.tool_call_id or "", "") if one.role == "tool" else None)
            for one in self._messages
            if not (one.role == "assistant" or one.is_output or one.is_summary)
        ]
        texts += [(one.text, names.get(key, "")) for key, one in self._running.results.items()]
        return any(names_url(text, url) for text, tool in texts if self._is_included(tool, sources))

    def _is_included(self, name: str | None, sources: URLSources | None) -> bool:
        """Whether URLs count that a result of the tool ``name`` has, or a message if it is None."""
        if sources is None:
            return True
        if name is None:
            return sources.include_messages
        hosted = self._request.hosted.find(name)
        of_client = hosted is None and self._request.toolset.find(name) is not None
        return sources.include_result(hosted.kind if hosted else name, of_client=of_client)

    def _note_asked(self, call: ToolCall) -> None:
        """Note that the id of an approval request is this proxy's own."""
        with suppress(DatabaseFailed):  # then the id counts as the client's
            self._journal.ask(self._history.asked_key(call))

    def _listings(self) -> Iterator[ToolsListed]:
        """After the first `UpstreamAccepted`: an earlier error has a status of its own."""
        if not self._has_listed:
            self._has_listed = True
            for one in self._request.hosted.listings:
                yield ToolsListed(new_id("mcpl_"), one.server, one.tools, one.error)

    def _end_suspended_cell(self) -> Iterator[CodeFinished]:
        if self._suspended_cell is not None:
            yield self._suspended_cell
            self._suspended_cell = None

    def _decided(self, request: AnswerRequest) -> Generator[AnswerEvent, None, AnswerRequest]:
        """Run the approved calls. Returns the request with results instead of decisions."""
        messages = request.chat.messages
        decisions = {m.tool_call_id: m for m in messages if m.approval is not None}
        if not decisions:
            return request
        answered = {m.tool_call_id for m in messages if m.role == "tool" and m.approval is None}
        calls = {call.id: call for m in messages for call in m.tool_calls or ()}
        yield UpstreamAccepted()
        yield from self._listings()
        for key, decision in decisions.items():
            if key is None or key in answered:
                continue
            if decision.approval and key in calls:
                yield from self._run_approved(calls[key])
            else:
                reason = f": {decision.text}" if decision.text else "."
                self._running.results[key] = HostedResult(f"{NOT_APPROVED}{reason}", is_error=True)
        yield from self._running.wait()
        results = self._running.results
        return request.with_messages(
            [
                message if message.approval is None else result_message(key, results[key])
                for message in messages
                if (key := message.tool_call_id or "") in results or message.approval is None
            ]
        )

    def _run_approved(self, call: HistoryCall) -> Iterator[AnswerEvent]:
        """The call is the client's: it is checked as a model's is."""
        name, arguments = parsed_call(call.as_function)
        tool = self._request.hosted.find(name)
        try:
            if tool is None or not isinstance(arguments, dict):
                raise LookupError(f"The tool {name[:64]!r} is not offered in this request.")
            bound = self._request.toolset.bind(name, [arguments], {})
        except (LookupError, BindError) as error:
            self._running.results[call.id] = HostedResult(str(error), is_error=True)
            return
        approved = ToolCall(call.id, name, bound, caller=call.caller or "")
        key = self._history.asked_key(approved)
        if not is_recorded(self._journal, key):
            key = self._history.client_made_key(approved)
        tool = recorded(tool, self._journal, key, self._until)
        yield from self._run(tool, approved, approval_id=call.id)
