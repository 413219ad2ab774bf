"""Join the parts of a conversation, as a front's client sends them, to the messages of a chat.

* Calls that left together are on one message, also if each is followed by its result: so a program that waits
  finds its calls.
* A program, or a cell that made calls, is on the message with its first call. Another cell is two messages of
  its own.
* Reasoning is on the words or calls that follow it.

Knows nothing of items or blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from emulator.core.events import calling_cell, from_same_answer
from emulator.core.protocol import HistoryCall, HistoryProgram, Message


class ClientHistory:
    """The messages so far. Parts are added in the order of the conversation."""

    def __init__(self, programs: Iterable[HistoryProgram] = ()) -> None:
        """``programs`` are known before their first calls."""
        self.messages: list[Message] = []
        self._programs = {program.id: program for program in programs}
        """Those without a call so far."""
        self._places: dict[str, int] = {}
        """The id of a program or cell -> the place of the message with its first call."""
        self._results: dict[str, int] = {}
        """Call id -> the place of its result, or of the client's decision about it."""
        self._hosted_calls: set[str] = set()
        self._thoughts: list[str] = []

    def add_message(self, message: Message) -> None:
        self.messages.append(message)
        if message.role == "assistant":
            self._add_thoughts(-1)
        self._thoughts = []

    def add_reasoning(self, text: str) -> None:
        self._thoughts += [text] if text else []

    def add_program(self, program: HistoryProgram) -> None:
        """Add a program to the message that will have its first call."""
        self._programs[program.id] = program

    def end_program(self, key: str, result: str, *, failed: bool) -> None:
        at = self._places.get(key)
        if at is not None and (program := self.messages[at].program):
            end = {"result": result, "failed": failed}
            self._change(at, program=program.model_copy(update=end))

    def has_called(self, program: str) -> bool:
        return program in self._places

    def add_cell(self, cell: Sequence[Message]) -> None:
        """Add a cell that made no calls, and its output, as the model saw them."""
        at = len(self.messages)
        self.messages += cell
        self._add_thoughts(at)

    def add_call(self, call: HistoryCall, caller: str | None = None) -> None:
        """Add a call to the message that holds the other calls of its answer; ``caller`` is its program.

        A hosted call may come twice: the approval request, and the call that ran.
        """
        cell = calling_cell(call.id)
        if caller is None and (cell in self._programs or cell in self._places):
            caller = cell
        call = call.model_copy(update={"caller": caller})
        if call.server_label is not None:
            if call.id in self._hosted_calls:
                return
            self._hosted_calls.add(call.id)
        at = self._place_for(call)
        self._change(at, tool_calls=[*(self.messages[at].tool_calls or ()), call])
        self._add_thoughts(at)
        if caller in self._programs:
            self._places[caller] = at
            self._change(at, program=self._programs.pop(caller))

    def add_result(self, result: Message) -> None:
        """Add a call's result, or the client's decision about a call, which its result replaces."""
        at = self._results.setdefault(result.tool_call_id or "", len(self.messages))
        if at == len(self.messages) or (
            result.approval is None and self.messages[at].approval is None
        ):
            self.messages.append(result)
        elif result.approval is None:
            self.messages[at] = result

    def _place_for(self, call: HistoryCall) -> int:
        last = self.messages[-1] if self.messages else None
        words = last if last and last.role == "assistant" and not last.tool_calls else None
        at = len(self.messages) - (2 if words else 1)
        has_results = at >= 0 and self.messages[at].role == "tool"
        while at >= 0 and self.messages[at].role == "tool":
            at -= 1
        others = self.messages[at].tool_calls or () if at >= 0 else ()
        # Calls without results between them belong to one answer, also if the upstream made their ids.
        if others and (
            not has_results or any(from_same_answer(call.id, other.id) for other in others)
        ):
            if words:  # between two calls of its answer
                self.messages.pop()
                self._change(at, content=f"{self.messages[at].text}{words.text}")
            return at
        if last is None or last.role != "assistant":
            self.messages.append(Message(role="assistant", content=None))
        return len(self.messages) - 1

    def _add_thoughts(self, at: int) -> None:
        if self._thoughts:
            reasoning = filter(None, [self.messages[at].reasoning, *self._thoughts])
            self._change(at, reasoning="\n".join(reasoning))
        self._thoughts = []

    def _change(self, at: int, **changes: Any) -> None:
        self.messages[at] = self.messages[at].model_copy(update=changes)
