"""One conversation: send a question, show and run the calls, repeat until the model answers in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import openai
from openai.types.chat import ChatCompletionChunk

from emulator.terminal.screen import Screen
from emulator.terminal.toolboxes import Definition, Toolbox, ToolboxError
from emulator.tools.effects import Effect, effect_of

DECLINED = "error: the user declined this call"
MAX_ROUNDS = 50
"""The maximum number of rounds of calls in one answer; then the user decides what to do."""

Approval = Literal["yes", "no", "always"]
_ANSWERS: Mapping[str, Approval] = {"y": "yes", "n": "no", "a": "always"}


@dataclass
class ChatSession:
    """The messages so far. The tools in ``approved`` run without asking; None means all tools."""

    client: openai.OpenAI
    model: str
    toolboxes: Iterable[Toolbox]
    screen: Screen
    approved: set[str] | None = field(default_factory=set)
    messages: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._toolbox_by_name: dict[str, Toolbox] = {}
        self._tools: list[Definition] = []
        for toolbox in self.toolboxes:
            for tool in toolbox.definitions():
                name = tool["function"]["name"]
                if name in self._toolbox_by_name:
                    raise ToolboxError(f"{name}: two tools have this name")
                self._toolbox_by_name[name] = toolbox
                self._tools.append(tool)

    @property
    def tools(self) -> list[Definition]:
        return self._tools

    def send(self, words: str) -> bool:
        """Send the user's ``words``. Returns True after an answer in words, False after `MAX_ROUNDS`.

        Raises the SDK's ``APIError``. After an error or an interrupt, the conversation is unchanged.
        """
        before = len(self.messages)
        self.messages.append({"role": "user", "content": words})
        try:
            for _ in range(MAX_ROUNDS):
                message = self._answer()
                self.messages.append(message)
                if not message.get("tool_calls"):
                    return True
                self.messages += [self._result(call) for call in message["tool_calls"]]
            self.screen.warn(
                f"No answer after {MAX_ROUNDS} rounds of calls. Write how to continue."
            )
            return False
        except BaseException:
            del self.messages[before:]
            raise
        finally:
            self.screen.end()

    def _answer(self) -> dict[str, Any]:
        """The model's next message, printed while it streams."""
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
            self.screen.note("(the program resumed without a model turn)")
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        return message | ({"tool_calls": [*calls.values()]} if calls else {})

    def _ask(self) -> openai.Stream[ChatCompletionChunk]:
        tools: Any = self._tools or openai.omit
        return self.client.chat.completions.create(
            model=self.model, messages=self.messages, tools=tools, stream=True
        )

    def _result(self, call: dict[str, Any]) -> dict[str, Any]:
        """The message that answers ``call``, which runs if the user agrees."""
        name = call["function"]["name"]
        try:
            arguments = json.loads(call["function"]["arguments"] or "{}")
        except ValueError:
            arguments = None
        if name not in self._toolbox_by_name or not isinstance(arguments, dict):
            result = f"error: there is no function {name}, or its arguments are not a JSON object"
        else:
            self.screen.call(name, arguments)
            toolbox = self._toolbox_by_name[name]
            approved = self._approve(name, set(arguments))
            result = toolbox.run(name, arguments) if approved else DECLINED
            self.screen.result(result)
        return {"role": "tool", "tool_call_id": call["id"], "content": result}

    def _approve(self, name: str, arguments: set[str]) -> bool:
        """Ask the user. The Enter key alone runs only a tool that reads."""
        if self.approved is None or name in self.approved:
            return True
        reads = effect_of(name, "", arguments) is Effect.READS
        question = f"Run it? {'[Y]es, no' if reads else 'yes, [N]o'}, always: "
        answer = None
        while answer is None:
            letter = self.screen.ask(question).lower()[:1]
            answer = _ANSWERS.get(letter or ("y" if reads else "n"))
        if answer == "always":
            self.approved.add(name)
        return answer != "no"
