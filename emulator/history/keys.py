"""Keys of answers: when two answers are the same.

An answer with calls is identified by the id of its first call, which cannot be guessed. An answer that
follows results is identified by the id of the last result and its own words. Any other is identified by the
whole conversation up to and including it, as the client shows it: model, kinds of tools, and each message
without ids and white space, which clients rewrite, and without the places where an answer is cut into
messages. Two users behind one client key may have the same such conversation: then neither is recalled
(`log`).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from emulator.core import json_codec
from emulator.core.events import ToolCall
from emulator.core.protocol import Message
from emulator.programs.call_history import parsed_call

_FILE_LINK = re.compile(r"!?\[[\w ._-]*\]\([^\s()]*/v1/containers/\w+/files/\w+/content\)")
"""A link to a file of a cell, which the chat front adds to the words of an answer (`CodeAsText.links`)."""


@dataclass(frozen=True)
class Keys:
    """Makes the keys of one client's conversations."""

    client: str
    start: Sequence[str] = ()
    """What is the same in all requests of a conversation: the model, the kinds of tools."""

    def open_program(self, call: str) -> str:
        """The key of the program that waits for the result of ``call``, and of calls made with it."""
        return self.of("open", call[:-4])  # as `events.call_id` makes them

    def act(self, after: str, call: ToolCall) -> str:
        """The key of a hosted call that was made after the result or approval with the id ``after``.

        A repeated request has the same: a resumed program gives its calls the same ids.
        """
        return self.of("act", after, call.id, *_written(call))

    def act_of_turn(self, turn: str, call: ToolCall, counts: Counter[tuple[str, str]]) -> str:
        """The key of the next call of its kind in a turn; ``counts`` has how many were made."""
        counts[written := _written(call)] += 1
        return self.of("turn", turn, *written, str(counts[written]))

    def of(self, kind: str, *names: str) -> str:
        # Call ids are no secret (clients show, log and share conversations): the client is part of the key.
        text = json_codec.dumps([self.client, *names])
        return f"{kind}:{hashlib.sha256(text).hexdigest()}"


def _written(call: ToolCall) -> tuple[str, str]:
    return call.name, json_codec.dumps(call.arguments, option=json_codec.SORTED).decode()


class Walk:
    """A walk over the messages of a conversation; a copy continues it with others."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._digest = hashlib.sha256(json_codec.dumps([keys.client, *keys.start]))
        self._role = self._result = ""

    def __copy__(self) -> Walk:
        other = Walk(self._keys)
        vars(other).update(vars(self), _digest=self._digest.copy())
        return other

    @property
    def digest(self) -> str:
        """Of the conversation so far."""
        return self._digest.hexdigest()

    def pass_on(self, message: Message) -> tuple[str, bool] | None:
        """The key of an answer, and whether it has no key but the conversation; None for other messages."""
        if message.role != "assistant" or self._role != "assistant":
            self._digest.update(f"\n{message.role}\n".encode())
        self._digest.update(message.memo("canonical", None, partial(canonical, message)))
        self._role = message.role
        if message.role == "tool":
            self._result = message.tool_call_id or ""
        elif self._result and message.asks:
            self._result = ""
        elif message.role == "assistant":
            return self._key_of(message)
        return None

    def _key_of(self, answer: Message) -> tuple[str, bool]:
        if answer.tool_calls and answer.tool_calls[0].id:
            return self._keys.of("answer", answer.tool_calls[0].id), False
        if self._result:
            words = answer.memo("words", None, lambda: _squeezed(answer.text))
            return self._keys.of("answer", self._result, words), False
        return f"answer:{self.digest}", True


def canonical(message: Message) -> bytes:
    """The content of a message that clients send back unchanged."""
    if message.is_output:  # the client's copy has no notes
        return b""
    if isinstance(message.content, str) and not (message.tool_calls or message.function_call):
        return _squeezed(message.content).encode(errors="replace")
    calls = [parsed_call(call.as_function) for call in message.tool_calls or ()]
    if message.function_call is not None:
        calls.append(parsed_call(message.function_call))
    rest = [part for part in (message.other_parts, calls) if part]
    dumped = json_codec.dumps(rest, default=repr, option=json_codec.SORTED) if rest else b""
    return _squeezed(message.text).encode(errors="replace") + dumped


def _squeezed(text: str) -> str:
    if "/v1/containers/" in text:
        text = _FILE_LINK.sub("", text)
    return "".join(text.split())
