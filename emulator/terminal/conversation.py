"""One conversation: ask, show and run the calls, go on until the model answers in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import openai
from openai.types.chat import ChatCompletionChunk

from emulator.terminal.screen import Screen
from emulator.terminal.toolboxes import Definition, Toolbox, ToolboxError

DECLINED = "error: the user declined this call"
MAX_ROUNDS = 50
"""Rounds of calls in one answer, after which the user is asked what to do."""

Approval = Literal["yes", "no", "always"]
_ANSWERS: Mapping[str, Approval] = {"": "yes", "y": "yes", "n": "no", "a": "always"}


@dataclass
class Conversation:
    """What was said so far. ``approved`` are the tools that run without a question, all if it is None."""

    client: openai.OpenAI
    model: str
    toolboxes: Iterable[Toolbox]
    screen: Screen
    approved: set[str] | None = field(default_factory=set)
    messages: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._homes: dict[str, Toolbox] = {}
        self._tools: list[Definition] = []
        for toolbox in self.toolboxes:
            for tool in toolbox.definitions():
                name = tool["function"]["name"]
                if name in self._homes:
                    raise ToolboxError(f"{name}: two tools have this name")
                self._homes[name] = toolbox
                self._tools.append(tool)

    @property
    def tools(self) -> list[Definition]:
        return self._tools

    def say(self, words: str) -> None:
        """The user says ``words``; returns once the model has answered in words.

        Raises an error of the SDK (``APIError``); then, and when it is interrupted, the conversation is
        as it was before.
        """
        before = len(self.messages)
        self.messages.append({"role": "user", "content": words})
        try:
            for _ in range(MAX_ROUNDS):
                message = self._answer()
                self.messages.append(message)
                if not message.get("tool_calls"):
                    return
                self.messages += [self._result(call) for call in message["tool_calls"]]
            self.screen.warn(f"{MAX_ROUNDS} rounds of calls and no answer yet. Say how to go on.")
        except BaseException:
            del self.messages[before:]
            raise
        finally:
            self.screen.end()

    def _answer(self) -> dict[str, Any]:
        """The model's next message, shown while it comes."""
        text, saved = "", False
        calls: dict[int, dict[str, Any]] = {}
        with self._ask() as stream:
            saved = stream.response.headers.get("x-emulator-turns-saved") == "1"
            for chunk in stream:
                for choice in chunk.choices:
                    delta = choice.delta
                    if reasoning := getattr(delta, "reasoning_content", None):
                        self.screen.words(reasoning, reasoning=True)
                    if delta.content:
                        text += delta.content
                        self.screen.words(delta.content)
                    for piece in delta.tool_calls or ():
                        call = calls.setdefault(
                            piece.index,
                            {
                                "id": "",
                                "type": "function",
                                "function": {"name": "", "arguments": ""},
                            },
                        )
                        call["id"] += piece.id or ""
                        if piece.function is not None:
                            call["function"]["name"] += piece.function.name or ""
                            call["function"]["arguments"] += piece.function.arguments or ""
        self.screen.end()
        if saved:
            self.screen.note("(the program went on, without a turn of the model)")
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        return message | ({"tool_calls": [*calls.values()]} if calls else {})

    def _ask(self) -> openai.Stream[ChatCompletionChunk]:
        tools: Any = self._tools or openai.omit
        return self.client.chat.completions.create(
            model=self.model, messages=self.messages, tools=tools, stream=True
        )

    def _result(self, call: dict[str, Any]) -> dict[str, Any]:
        """The message that answers ``call``, which is run if the user agrees."""
        name = call["function"]["name"]
        try:
            arguments = json.loads(call["function"]["arguments"] or "{}")
        except ValueError:
            arguments = None
        if name not in self._homes or not isinstance(arguments, dict):
            result = f"error: there is no function {name}, or its arguments are no JSON object"
        else:
            self.screen.call(name, arguments)
            agreed = self._approve(name)
            result = self._homes[name].run(name, arguments) if agreed else DECLINED
            self.screen.result(result)
        return {"role": "tool", "tool_call_id": call["id"], "content": result}

    def _approve(self, name: str) -> bool:
        if self.approved is None or name in self.approved:
            return True
        answer = None
        while answer is None:
            answer = _ANSWERS.get(self.screen.ask("Run it? [Y]es, no, always: ").lower()[:1])
        if answer == "always":
            self.approved.add(name)
        return answer != "no"
