"""The line, in order: request -> toolset -> messages -> reply -> calls -> chunks.

Streaming or not, with tools or without, every answer is made here; the turns of one in which the model may
write Python are in `answer.py`. Knows nothing of Flask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from emulator.answering.answer_format import AnswerFormat
from emulator.answering.answerer import CUT_OFF, Answerer
from emulator.answering.bench import Bench, open_bench
from emulator.answering.habits import Habits
from emulator.answering.profiles import choose
from emulator.answering.prompt import transcript
from emulator.answering.tool_choice import INTERPRETER, NO_TOOLS, interpreter_tool, offered
from emulator.answering.usage import Meter
from emulator.chat.chunks import Chunk, ChunkWriter
from emulator.errors import BadRequest
from emulator.events import AnswerEvent, ContentDelta, Finish, FinishReason, Opened, ReasoningDelta
from emulator.interpreter.attachments import written_out
from emulator.interpreter.interpreter import Interpreter
from emulator.protocol import ChatCompletionRequest
from emulator.settings import Settings
from emulator.storage.files import Files
from emulator.storage.key_value import Store
from emulator.upstream.client import Upstream
from sandbox.engine import Engine


@dataclass(frozen=True)
class Pipeline:
    """Answers requests with one upstream and the engines in the order in which they are tried."""

    settings: Settings
    upstream: Upstream
    engines: Sequence[Engine]
    store: Store | None = None
    interpreter: Interpreter | None = None
    files: Files | None = None
    habits: Habits = field(default_factory=Habits)

    def complete(
        self, request: ChatCompletionRequest, client: str = "", host: str = ""
    ) -> Iterator[Chunk | Opened]:
        """The chunks of the answer, `Opened` before those of each reply of the upstream.

        Raises `BadRequest` before the first item, `EmulatorError` at any.
        """
        toolset, _ = offered(request)
        # A non-streaming answer always tells its usage.
        include_usage = request.include_usage or not request.stream
        tool = interpreter_tool(request)
        if tool is None and self.settings.interpreter == "on" and _leaves_open(request):
            tool = {"type": INTERPRETER}
        if tool is None:
            request = self._with_files(request, client)
        if not toolset.tools and tool is None and self._passes_format(request):
            return self._relay(request, include_usage=include_usage)
        answers = (self.events(request, client, tool) for _ in range(request.n or 1))
        writer = ChunkWriter(request.model, legacy=request.is_legacy, host=host)
        return writer.write(answers, include_usage=include_usage)

    def events(
        self,
        request: ChatCompletionRequest,
        client: str = "",
        tool: Mapping[str, Any] | None = None,
    ) -> Iterator[AnswerEvent]:
        """One answer as it comes, `Opened` before the events of each reply of the upstream.

        ``client`` is whose containers may be used, ``tool`` the code interpreter that is offered.
        Raises `BadRequest` at once, `EmulatorError` from the iterator.
        """
        toolset, choice = offered(request)
        if tool is None:
            request = self._with_files(request, client)
        if not toolset.tools and tool is None and self._passes_format(request):
            return self._plain_events(request)
        answerer = Answerer(
            self.settings,
            self.upstream,
            self.engines,
            self.store,
            self.habits,
            request,
            toolset,
            replace(choice, programs=self.store is not None),
            AnswerFormat.parse(request.response_format),
            None if tool is None else self._bench(request, client, tool),
        )
        return answerer.events()

    def _bench(
        self, request: ChatCompletionRequest, client: str, tool: Mapping[str, Any]
    ) -> Callable[[], Bench]:
        if self.interpreter is None or self.files is None:
            raise BadRequest("The code interpreter is off here.", "tools", "interpreter_off")
        return partial(
            open_bench, self.interpreter, self.files, self.settings, client, request, tool
        )

    def _with_files(self, request: ChatCompletionRequest, client: str) -> ChatCompletionRequest:
        """The request with the contents of uploaded files, which no upstream knows."""
        if self.files is None:
            return request
        messages = written_out(request.messages, self.files, client)
        return request.model_copy(update={"messages": messages})

    def _passes_format(self, request: ChatCompletionRequest) -> bool:
        """Whether an answer's form is free, or the upstream's business."""
        answer_format = AnswerFormat.parse(request.response_format)
        return answer_format is None or self.settings.response_format == "pass"

    def _plain_events(self, request: ChatCompletionRequest) -> Iterator[AnswerEvent]:
        """The upstream's own words: `_relay` as events."""
        finish_reason: FinishReason = "stop"
        meter = Meter()
        meter.begin()
        for chunk in self._relay(request, include_usage=True):
            if isinstance(chunk, Opened):
                yield chunk
                continue
            meter.count(chunk)
            for choice in chunk["choices"]:
                delta = choice.get("delta") or {}
                if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
                    yield ReasoningDelta(reasoning)
                if content := delta.get("content"):
                    yield ContentDelta(content)
                finish_reason = CUT_OFF.get(choice.get("finish_reason"), finish_reason)
        yield Finish(finish_reason, meter.usage(_plain_messages(request)))

    def _relay(
        self, request: ChatCompletionRequest, *, include_usage: bool
    ) -> Iterator[Chunk | Opened]:
        """A request without tools: the upstream's own chunks, as they come."""
        messages = _plain_messages(request)
        profile = choose(self.settings.profile, request.model)
        fields = request.passed_on(profile.drops | set(self.settings.drop_fields))
        fields["stream_options"] = {"include_usage": True}
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


def _leaves_open(request: ChatCompletionRequest) -> bool:
    """Whether the client leaves it to the model how to answer, once."""
    free = request.tool_choice in (None, "auto") and request.function_choice in (None, "auto")
    return free and not request.is_legacy and (request.n or 1) == 1


def _plain_messages(request: ChatCompletionRequest) -> list[dict[str, Any]]:
    """The client's messages untouched, unless they hold what a model without tools cannot read."""
    if any(
        m.tool_calls or m.function_call or m.role in ("tool", "function") for m in request.messages
    ):
        return transcript(request.messages, NO_TOOLS)
    return [message.model_dump(exclude_unset=True) for message in request.messages]
