"""Output items while they are written: the events of each, from its ``output_item.added`` to its ``.done``.

Each item is one event source: what it tells in deltas is what it holds at the end. Knows nothing of the
response around it; events come without their sequence numbers.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import orjson

from emulator.events import CodeRan, Image, Logs, ToolCall
from emulator.responses.items import Json

Events = Iterator[Json]


class OutputItem:
    """Begins with `begin`; ``self.item`` is the item as it has become."""

    def __init__(self, index: int, item: Json) -> None:
        self.index = index
        self.item = item

    def begin(self) -> Events:
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


class MessageItem(OutputItem):
    def __init__(self, index: int, key: str) -> None:
        item = {"id": key, "type": "message", "role": "assistant"}
        super().__init__(index, {**item, "status": "in_progress", "content": []})
        self._told: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._told)

    def begin(self) -> Events:
        yield from super().begin()
        yield self._event("content_part.added", content_index=0, part=_output_text(""))

    def feed(self, text: str) -> Events:
        self._told.append(text)
        yield self._event("output_text.delta", content_index=0, delta=text, logprobs=[])

    def close(self, status: str, annotations: Sequence[Json]) -> Events:
        text = self.text
        # In front of the text's own end, as with OpenAI: PydanticAI looks at them there.
        for n, annotation in enumerate(annotations):
            yield self._event(
                "output_text.annotation.added",
                content_index=0,
                annotation_index=n,
                annotation=annotation,
            )
        yield self._event("output_text.done", content_index=0, text=text, logprobs=[])
        part = _output_text(text, annotations)
        yield self._event("content_part.done", content_index=0, part=part)
        yield self._done(status=status, content=[part])


def _output_text(text: str, annotations: Sequence[Json] = ()) -> Json:
    return {"type": "output_text", "text": text, "annotations": [*annotations], "logprobs": []}


class ReasoningItem(OutputItem):
    """All of the reasoning, told as its summary: LangChain, the Agents SDK and PydanticAI show that, and
    LangChain would drop ``reasoning_text``."""

    def __init__(self, index: int, key: str) -> None:
        super().__init__(index, {"id": key, "type": "reasoning", "summary": []})
        self._told: list[str] = []

    def begin(self) -> Events:
        yield from super().begin()
        part = {"type": "summary_text", "text": ""}
        yield self._event("reasoning_summary_part.added", summary_index=0, part=part)

    def feed(self, text: str) -> Events:
        self._told.append(text)
        yield self._event("reasoning_summary_text.delta", summary_index=0, delta=text)

    def close(self) -> Events:
        text = "".join(self._told)
        part = {"type": "summary_text", "text": text}
        yield self._event("reasoning_summary_text.done", summary_index=0, text=text)
        yield self._event("reasoning_summary_part.done", summary_index=0, part=part)
        yield self._done(summary=[part])


class CallItem(OutputItem):
    """A call, whole from the start: one delta."""

    def __init__(self, index: int, key: str, call: ToolCall) -> None:
        named = {"id": key, "call_id": call.id, "name": call.name}
        self._custom = call.kind == "custom"
        if self._custom:
            super().__init__(index, {**named, "type": "custom_tool_call", "input": ""})
            self._text = str(call.arguments.get("input", ""))
        else:
            item = {**named, "type": "function_call", "arguments": "", "status": "in_progress"}
            super().__init__(index, item)
            self._text = orjson.dumps(call.arguments).decode()

    def whole(self) -> Events:
        yield from self.begin()
        if self._custom:
            yield self._event("custom_tool_call_input.delta", delta=self._text)
            yield self._event("custom_tool_call_input.done", input=self._text)
            yield self._done(input=self._text)
        else:
            name = self.item["name"]
            yield self._event("function_call_arguments.delta", delta=self._text)
            yield self._event("function_call_arguments.done", name=name, arguments=self._text)
            yield self._done(arguments=self._text, status="completed")


class CodeItem(OutputItem):
    """A cell of the code interpreter."""

    def __init__(self, index: int, key: str, container_id: str) -> None:
        item = {"id": key, "type": "code_interpreter_call", "status": "in_progress"}
        super().__init__(index, {**item, "code": "", "container_id": container_id, "outputs": None})
        self._told: list[str] = []
        self._closed = False

    def begin(self) -> Events:
        yield from super().begin()
        yield self._event("code_interpreter_call.in_progress")

    def feed(self, text: str) -> Events:
        self._told.append(text)
        yield self._event("code_interpreter_call_code.delta", delta=text)

    def run(self, code: str) -> Events:
        yield from self._whole(code)
        yield self._event("code_interpreter_call.interpreting")

    def close(self, ran: CodeRan) -> Events:
        if not self._closed:
            yield from self._whole("".join(self._told))
        if ran.status != "incomplete":
            yield self._event("code_interpreter_call.completed")
        yield self._done(status=ran.status, outputs=[_output(one) for one in ran.outputs])

    def _whole(self, code: str) -> Events:
        self._closed = True
        self.item = {**self.item, "code": code}
        yield self._event("code_interpreter_call_code.done", code=code)


def _output(output: Logs | Image) -> Json:
    if isinstance(output, Logs):
        return {"type": "logs", "logs": output.text}
    data = base64.b64encode(output.data).decode()
    return {"type": "image", "url": f"data:{output.media_type};base64,{data}"}
