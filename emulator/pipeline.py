"""The line, in order: request -> toolset -> messages -> reply -> calls -> answer events.

Streaming or not, with tools or without, every answer is made here. Knows nothing of Flask.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from emulator import metrics
from emulator.choice import NO_TOOLS, offered
from emulator.diagnostics import render
from emulator.draft import Draft
from emulator.errors import ExecutionFailed, ModelFailed, UpstreamFailed
from emulator.formats import AnswerFormat
from emulator.grammar import gbnf
from emulator.habits import Habits
from emulator.history import barren_calls
from emulator.meter import Meter
from emulator.profiles import choose
from emulator.programs import Driver
from emulator.prompt import Choice, ModelMessage, instruct, repair, transcript
from emulator.prose import Prose
from emulator.protocol import ChatCompletionRequest
from emulator.respond import AnswerEvent, Chunk, ChunkWriter, Finish, FinishReason, Opened, Usage
from emulator.resume import Continued, Ended, resume, save
from emulator.settings import Settings
from emulator.stops import StopFilter
from emulator.store import Store
from emulator.tiny import DEFAULTS as TINY_DEFAULTS
from emulator.tiny import tiny_turn
from emulator.tools import Toolset
from emulator.turn import Answered, Refused, Turn
from emulator.upstream import Upstream
from sandbox.engine import Engine, fresh_seed
from sandbox.errors import SandboxBusy, SandboxError

# Fields that would spoil a turn in which the model is to write Python.
NOT_IN_TOOL_TURNS = ("n", "stop", "response_format", "logprobs", "top_logprobs")

_CUT_OFF: dict[str | None, FinishReason] = {
    "length": "length",
    "content_filter": "content_filter",
}


@dataclass(frozen=True)
class Pipeline:
    """Answers requests with one upstream and the engines in the order in which they are tried."""

    settings: Settings
    upstream: Upstream
    engines: Sequence[Engine]
    store: Store | None = None
    habits: Habits = field(default_factory=Habits)

    def complete(self, request: ChatCompletionRequest) -> Iterator[Chunk | Opened]:
        """The chunks of the answer, `Opened` before those of each reply of the upstream.

        Raises `BadRequest` before the first item, `EmulatorError` at any.
        """
        toolset, choice = offered(request)
        choice = replace(choice, programs=self.store is not None)
        answer_format = AnswerFormat.parse(request.response_format)
        # A non-streaming answer always tells its usage.
        include_usage = request.include_usage or not request.stream
        passed_on = answer_format is None or self.settings.response_format == "pass"
        if not toolset.tools and passed_on:
            return self._relay(request, include_usage=include_usage)
        answers = (
            self._answer(request, toolset, choice, answer_format) for _ in range(request.n or 1)
        )
        writer = ChunkWriter(request.model, legacy=request.is_legacy)
        return writer.write(answers, include_usage=include_usage)

    def _relay(
        self, request: ChatCompletionRequest, *, include_usage: bool
    ) -> Iterator[Chunk | Opened]:
        """A request without tools: the upstream's own chunks, as they come."""
        messages = _plain_messages(request)
        fields = {**request.passed_on(), "stream_options": {"include_usage": True}}
        usage, base = None, {}
        with self.upstream.open(messages, fields) as reply:
            yield Opened(reply.abort)
            for chunk in reply:
                told = chunk.pop("usage", None)
                usage = told or usage
                if chunk.get("choices"):
                    yield {**chunk, "object": "chat.completion.chunk", "model": request.model}
                base = {name: value for name, value in chunk.items() if name != "choices"}
            if usage and include_usage:
                yield {**base, "choices": [], "usage": usage}

    def _answer(
        self,
        request: ChatCompletionRequest,
        toolset: Toolset,
        choice: Choice,
        answer_format: AnswerFormat | None,
    ) -> Iterator[AnswerEvent]:
        """One choice: turns until one is of use, or the repair attempts are used up."""
        driver = Driver(
            self.engines,
            toolset,
            max_calls=self.settings.program_calls,
            one_at_a_time=choice.one_at_a_time,
        )
        ended: Ended | None = None
        if self.store is not None:
            with _sandbox_at_fault():
                went_on = resume(self.store, driver, request.messages)
            if isinstance(went_on, Continued):
                if went_on.saved is not None:
                    save(self.store, went_on.saved)
                metrics.TURNS_SAVED.inc()
                yield Opened(lambda: None, turns_saved=1)
                yield from went_on.calls
                yield Finish("tool_calls", Usage())
                return
            ended = went_on
        messages, fields = self._prompted(request, toolset, choice, answer_format, ended)
        seed = fresh_seed()
        barren = barren_calls(request.messages)
        meter = Meter()
        verdict: Answered | Refused = Answered()
        told = ""
        for attempt in range(self.settings.repair_attempts + 1):
            draft = Draft(
                driver,
                required=choice.required,
                by_statement=self.settings.stream_calls == "statement",
                seed=seed,
                barren=barren,
            )
            hold = attempt > 0 or choice.required or answer_format is not None
            prose = Prose(StopFilter(request.stop), hold=hold, lead="\n\n" if told else "")
            turn = Turn(
                draft,
                prose,
                choice,
                answer_format=answer_format,
                recover_reasoning=self.settings.recover_reasoning,
            )
            try:
                finish_reason = yield from self._turn(turn, messages, fields, meter)
            except UpstreamFailed as error:
                # The repair request did not fit the model's context: the first fault is the one to tell.
                if attempt and error.status == 400 and isinstance(verdict, Refused):
                    raise _gave_up(verdict, attempt) from error
                raise
            told += prose.told
            verdict = turn.verdict
            if draft.calls:
                self.habits.told(request.model, draft.dialects)
                if self.store is not None and (saved := draft.saved()) is not None:
                    save(self.store, saved)
                yield Finish("tool_calls", meter.usage(messages))
                return
            # A reply that the upstream cut off is not the model's fault: asking again would not help.
            # A promise is asked for once; whoever promises again may just talk like that.
            kept = isinstance(verdict, Refused) and verdict.kind == "promised" and attempt > 0
            if isinstance(verdict, Answered) or kept or finish_reason in _CUT_OFF:
                yield Finish(_CUT_OFF.get(finish_reason, "stop"), meter.usage(messages))
                return
            metrics.REPAIRS.labels(verdict.kind).inc()
            messages = [*messages, *repair(turn.text, kind=verdict.kind, **_facts(verdict))]
            fields = {**fields, **self._retry_fields(verdict, toolset, choice)}
        assert isinstance(verdict, Refused)
        if verdict.kind == "promised":
            yield Finish("stop", meter.usage(messages))
            return
        raise _gave_up(verdict, self.settings.repair_attempts)

    def _retry_fields(self, verdict: Refused, toolset: Toolset, choice: Choice) -> dict[str, Any]:
        """A grammar of valid calls, where the operator says that the upstream takes one."""
        field = self.settings.retry_grammar
        if field == "off" or not toolset.tools or verdict.kind not in ("invalid", "required"):
            return {}
        one = choice.one_at_a_time
        return {field: gbnf(toolset.tools, required=True, only=choice.name, parallel=not one)}

    def _turn(
        self,
        turn: Turn,
        messages: list[dict[str, Any]],
        fields: Mapping[str, Any],
        meter: Meter,
    ) -> Generator[AnswerEvent, None, str | None]:
        """Read one reply; returns the upstream's finish_reason, or None when we closed it."""
        finish_reason: str | None = None
        meter.begin()
        metrics.MODEL_TURNS.inc()
        with _sandbox_at_fault():
            with self.upstream.open(messages, fields) as reply:
                yield Opened(reply.abort)
                for chunk in reply:
                    meter.count(chunk)
                    for choice in chunk.get("choices") or ():
                        delta = choice.get("delta") or {}
                        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
                        yield from turn.feed(delta.get("content") or "", reasoning)
                        finish_reason = choice.get("finish_reason") or finish_reason
                    if turn.done:
                        break
                    if len(turn.text) > self.settings.max_reply_chars:
                        finish_reason = "length"
                        break
            yield from turn.close(cut_off=finish_reason == "length")
        return finish_reason

    def _prompted(
        self,
        request: ChatCompletionRequest,
        toolset: Toolset,
        choice: Choice,
        answer_format: AnswerFormat | None,
        ended: Ended | None,
    ) -> tuple[list[ModelMessage], dict[str, Any]]:
        """What the model is told, and the other fields of the upstream request."""
        profile = choose(self.settings.profile, request.model)
        told_format = answer_format.instructions if answer_format else ""
        passed = request.passed_on()
        fields = {name: value for name, value in passed.items() if name not in NOT_IN_TOOL_TURNS}
        fields["stream_options"] = {"include_usage": True}
        if not (profile.few_shot and toolset.tools):
            messages = instruct(
                request.messages,
                toolset,
                choice,
                profile,
                told_format,
                ended=ended,
                habit=self.habits.of(request.model),
            )
            return messages, fields
        turn = tiny_turn(request.messages, toolset, choice)
        if turn.grammar is not None and self.settings.grammar:
            fields["grammar"] = turn.grammar
        told = turn.messages
        if told_format and turn.grammar is None:
            told = [*told[:-1], {**told[-1], "content": f"{told[-1]['content']}\n\n{told_format}"}]
        limited = "max_completion_tokens" in fields
        defaults = {k: v for k, v in TINY_DEFAULTS.items() if not (limited and k == "max_tokens")}
        return told, defaults | fields


@contextmanager
def _sandbox_at_fault() -> Iterator[None]:
    """A sandbox that fails, unlike a program that does, is told to the client."""
    try:
        yield
    except SandboxBusy as error:
        message = f"The model's program could not be run now: {error}"
        raise ExecutionFailed(message, code="overloaded", headers={"retry-after": "1"}) from error
    except SandboxError as error:
        raise ExecutionFailed(f"The model's program could not be run: {error}") from error


def _plain_messages(request: ChatCompletionRequest) -> list[dict[str, Any]]:
    """The client's messages untouched, unless they hold what a model without tools cannot read."""
    if any(
        m.tool_calls or m.function_call or m.role in ("tool", "function") for m in request.messages
    ):
        return transcript(request.messages, NO_TOOLS)
    return [message.model_dump(exclude_unset=True) for message in request.messages]


def _facts(verdict: Refused) -> dict[str, Any]:
    facts = {
        "diagnostics": "",
        "names": [],
        "example": "function_name(argument=value)",
        **verdict.facts,
    }
    if not isinstance(facts["diagnostics"], str):
        facts["diagnostics"] = render(facts["diagnostics"])
    return facts


def _gave_up(verdict: Refused, attempts: int) -> ModelFailed:
    reasons = {
        "invalid": "wrote code that cannot be used",
        "required": "did not call a function although tool_choice requires it",
        "empty": "gave an empty answer",
        "output": "wrote code that calls no function",
        "promised": "promised a call and made none",
        "format": "did not answer in the form that response_format asks for",
    }
    details = _facts(verdict)["diagnostics"]
    message = f"The model {reasons[verdict.kind]}, also after {attempts} repair attempts."
    return ModelFailed(f"{message}\n{details}".rstrip(), code=f"model_{verdict.kind}")
