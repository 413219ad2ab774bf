"""Writers of output items: the events of each item, from its ``output_item.added`` to its ``.done``.

A writer joins the deltas that it sends into the finished item, so the two cannot disagree. Knows nothing of
the response around the item; events have no sequence numbers yet.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from emulator.core.events import (
    CallStarted,
    CodeFinished,
    HostedCallStarted,
    Image,
    Logs,
    ToolCall,
    ToolKind,
    pieces,
)
from emulator.fronts.responses.callers import caller_fields
from emulator.fronts.responses.compaction import compaction_item
from emulator.fronts.responses.items import Json
from emulator.fronts.responses.tools import CallForm, ClientTool

Events = Iterator[Json]


class ItemWriter:
    """Writes one item. Call `start` first. ``self.item`` is the item in its latest state."""

    def __init__(self, index: int, item: Json) -> None:
        self.index = index
        self.item = item
        self._texts: list[str] = []
        """The deltas that were sent."""

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def start(self) -> Events:
        yield {
            "type": "response.output_item.added",
            "output_index": self.index,
            "item": dict(self.item),
        }

    def _event(self, kind: str, /, **fields: object) -> Json:
        place = {"item_id": self.item["id"], "output_index": self.index}
        return {"type": f"response.{kind}", **place, **fields}

    def _done(self, **changes: object) -> Json:
        self.item = {**self.item, **changes}
        return {
            "type": "response.output_item.done",
            "output_index": self.index,
            "item": self.item,
        }


class MessageItemWriter(ItemWriter):
    def __init__(self, index: int, key: str) -> None:
        item = {"id": key, "type": "message", "role": "assistant"}
        super().__init__(index, {**item, "status": "in_progress", "content": []})
        self._logprobs: list[Json] = []

    def start(self) -> Events:
        yield from super().start()
        yield self._event("content_part.added", content_index=0, part=_output_text(""))

    def feed(self, text: str, logprobs: Sequence[Json] = ()) -> Events:
        self._texts.append(text)
        self._logprobs += map(_logprob, logprobs)
        event = self._event("output_text.delta", content_index=0, delta=text)
        yield {**event, "logprobs": [*map(_logprob, logprobs)]}

    def close(self, status: str, annotations: Sequence[Json]) -> Events:
        text, logprobs = self.text, self._logprobs
        # Before the end of the text, as OpenAI sends them: PydanticAI reads them there.
        for n, annotation in enumerate(annotations):
            yield self._event(
                "output_text.annotation.added",
                content_index=0,
                annotation_index=n,
                annotation=annotation,
            )
        yield self._event("output_text.done", content_index=0, text=text, logprobs=logprobs)
        part = _output_text(text, annotations, logprobs)
        yield self._event("content_part.done", content_index=0, part=part)
        yield self._done(status=status, content=[part])


def _output_text(
    text: str, annotations: Sequence[Json] = (), logprobs: Sequence[Json] = ()
) -> Json:
    part = {"type": "output_text", "text": text, "annotations": [*annotations]}
    return {**part, "logprobs": [*logprobs]}


def _logprob(token: Json) -> Json:
    """The log probability of a token and of its alternatives, which some servers send without bytes."""
    whole = {"token": token["token"], "logprob": token["logprob"]}
    whole["bytes"] = token.get("bytes") or [*token["token"].encode(errors="replace")]
    if alternatives := token.get("top_logprobs"):
        return {**whole, "top_logprobs": [*map(_logprob, alternatives)]}
    return {**whole, "top_logprobs": []}


class RefusalItemWriter(ItemWriter):
    """A message whose only part is a refusal."""

    def __init__(self, index: int, key: str) -> None:
        item = {"id": key, "type": "message", "role": "assistant"}
        super().__init__(index, {**item, "status": "in_progress", "content": []})

    def start(self) -> Events:
        yield from super().start()
        yield self._event("content_part.added", content_index=0, part=_refusal(""))

    def feed(self, text: str, _logprobs: Sequence[Json] = ()) -> Events:
        self._texts.append(text)
        yield self._event("refusal.delta", content_index=0, delta=text)

    def close(self, status: str) -> Events:
        part = _refusal(self.text)
        yield self._event("refusal.done", content_index=0, refusal=self.text)
        yield self._event("content_part.done", content_index=0, part=part)
        yield self._done(status=status, content=[part])


def _refusal(text: str) -> Json:
    return {"type": "refusal", "refusal": text}


class ReasoningItemWriter(ItemWriter):
    """Writes the whole reasoning as its summary: LangChain, the Agents SDK and PydanticAI show summaries, and
    LangChain drops ``reasoning_text``."""

    def __init__(self, index: int, key: str) -> None:
        super().__init__(index, {"id": key, "type": "reasoning", "summary": []})

    def start(self) -> Events:
        yield from super().start()
        part = {"type": "summary_text", "text": ""}
        yield self._event("reasoning_summary_part.added", summary_index=0, part=part)

    def feed(self, text: str) -> Events:
        self._texts.append(text)
        yield self._event("reasoning_summary_text.delta", summary_index=0, delta=text)

    def close(self) -> Events:
        part = {"type": "summary_text", "text": self.text}
        yield self._event("reasoning_summary_text.done", summary_index=0, text=self.text)
        yield self._event("reasoning_summary_part.done", summary_index=0, part=part)
        yield self._done(summary=[part])


@dataclass(frozen=True)
class _CallShape:
    type: str
    field: str
    """The field of the arguments."""
    events: str


_SHAPES: Mapping[ToolKind, _CallShape] = {
    "function": _CallShape("function_call", "arguments", "function_call_arguments"),
    "custom": _CallShape("custom_tool_call", "input", "custom_tool_call_input"),
}


class CallItemWriter(ItemWriter):
    """Writes a call of a function or of a custom tool."""

    def __init__(
        self, index: int, key: Callable[[str], str], call: CallStarted, form: CallForm
    ) -> None:
        """``key`` makes the id of an item of a type."""
        shape = self._shape = _SHAPES[call.kind]
        item = {"id": key(shape.type), "call_id": call.id, "name": form.name, shape.field: ""}
        if form.namespace is not None:
            item["namespace"] = form.namespace
        item["type"] = shape.type
        item |= caller_fields(call.caller)
        self._is_function = call.kind == "function"
        if self._is_function:  # the items of custom tools have no status
            item["status"] = "in_progress"
        super().__init__(index, item)

    def feed(self, text: str) -> Events:
        self._texts.append(text)
        yield self._event(f"{self._shape.events}.delta", delta=text)

    def close(self, status: str = "completed") -> Events:
        arguments = {self._shape.field: self.text}
        if status == "completed":
            name = {"name": self.item["name"]} if self._is_function else {}
            yield self._event(f"{self._shape.events}.done", **name, **arguments)
        yield self._done(**arguments, **({"status": status} if self._is_function else {}))


class ClientToolCallWriter(ItemWriter):
    """Writes a call of a tool with its own item type, such as ``shell_call``."""

    def __init__(
        self, index: int, key: str, call: ToolCall | HostedCallStarted, tool: ClientTool
    ) -> None:
        item = {"id": key, "type": tool.call_type, "call_id": call.id, "status": "in_progress"}
        fields = tool.fields(call.arguments) | caller_fields(call.caller)
        super().__init__(index, {**item, **fields})

    def all_events(self) -> Events:
        yield from self.start()
        if self.item["type"] == "shell_call":
            for n, command in enumerate(self.item["action"]["commands"]):
                yield self._command(n, "added", command="")
                for piece in pieces(command):
                    yield self._command(n, "delta", delta=piece)
                yield self._command(n, "done", command=command)
        yield self._done(status="completed")

    def _command(self, n: int, kind: str, **fields: object) -> Json:
        place = {"output_index": self.index, "command_index": n}
        return {"type": f"response.shell_call_command.{kind}", **place, **fields}


class CompactionWriter(ItemWriter):
    """Writes the summary that replaces a conversation."""

    def __init__(self, index: int, key: str, summary: str) -> None:
        super().__init__(index, compaction_item(key, summary))

    def all_events(self) -> Events:
        yield from self.start()
        yield self._done()


class CodeCallWriter(ItemWriter):
    """Writes a cell of the code interpreter."""

    def __init__(self, index: int, key: str, container_id: str) -> None:
        item = {"id": key, "type": "code_interpreter_call", "status": "in_progress"}
        super().__init__(index, {**item, "code": "", "container_id": container_id, "outputs": None})
        self._code_complete = False

    def start(self) -> Events:
        yield from super().start()
        yield self._event("code_interpreter_call.in_progress")

    def feed(self, text: str) -> Events:
        self._texts.append(text)
        yield self._event("code_interpreter_call_code.delta", delta=text)

    def run(self, code: str) -> Events:
        yield from self._complete_code(code)
        yield self._event("code_interpreter_call.interpreting")

    def close(self, result: CodeFinished) -> Events:
        if not self._code_complete:
            yield from self._complete_code(self.text)
        if result.status != "incomplete":
            yield self._event("code_interpreter_call.completed")
        yield self._done(status=result.status, outputs=[_output(one) for one in result.outputs])

    def _complete_code(self, code: str) -> Events:
        self._code_complete = True
        self.item = {**self.item, "code": code}
        yield self._event("code_interpreter_call_code.done", code=code)


def _output(output: Logs | Image) -> Json:
    if isinstance(output, Logs):
        return {"type": "logs", "logs": output.text}
    data = base64.b64encode(output.data).decode()
    return {"type": "image", "url": f"data:{output.media_type};base64,{data}"}
