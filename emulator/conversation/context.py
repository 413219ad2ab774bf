"""What a model reads of a long conversation: one operation on the recalled messages, for every front.

    recalled messages ──► without what the last summary replaces ──► edits ──► the prompt

* A *summary* is a message of its own. Of what precedes it, only messages that are not the model's remain.
* *Edits* clear old results and old reasoning. The model reads a remark instead of a result. Quotations,
  programs and keys read the message itself (`Message.shown` is what the model reads).

Law: what is cleared depends on the history alone, and prompts grow by their ends until an edit is worth it.
So the rules are applied to the history as it was when each of its answers was asked for, the earliest first:
what was cleared stays cleared, and nothing else is until a rule's trigger is reached again. A result that the
model has not read yet is never cleared. When to make a summary is `answering.summary`'s part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emulator.core.protocol import CLEARED, Message
from emulator.upstream.metering import estimate_tokens, tokens_of

FULL = 0.8
"""The part of a model's context that a prompt may take, unless the client says it."""


@dataclass(frozen=True)
class ClearResults:
    """Clears old results, with ``inputs`` the arguments of their calls, too."""

    tokens: int | None = None
    """Of a prompt, beyond which results are cleared."""
    uses: int | None = None
    """Results in a prompt, beyond which some are cleared. With neither a default by the context applies."""
    latest: int = 3
    """The latest results, which stay."""
    at_least: int = 0
    """Tokens that must become free: it costs the server's cached prefix."""
    excluded: frozenset[str] = frozenset()
    """Tools whose results stay."""
    inputs: bool | frozenset[str] = False
    """Of all tools, or of these."""

    def is_due(self, tokens: int, uses: int, context_length: int) -> bool:
        if self.uses is not None:
            return uses > self.uses
        most = within_context(_MOST_TOKENS, context_length) if self.tokens is None else self.tokens
        return tokens > most


@dataclass(frozen=True)
class ClearReasoning:
    latest: int | None = 1
    """The latest turns, whose reasoning stays; None: all."""


@dataclass(frozen=True)
class Summarize:
    """A prompt that is longer is summarized before the answer."""

    threshold: int | None
    """Tokens of a prompt."""
    default: int = 0
    """The threshold without one, unless the context is shorter; 0: none."""
    instructions: str = ""
    """The client's own words for the question."""
    pauses: bool = False
    """The answer is the summary alone."""


@dataclass(frozen=True)
class ContextRules:
    edits: Sequence[ClearResults | ClearReasoning] = ()
    summary: Summarize | None = None


@dataclass(frozen=True)
class AppliedEdit:
    rule: ClearResults | ClearReasoning
    tokens: int
    """Estimated, that became free."""
    count: int
    """Results, or turns, that are cleared."""


_MOST_TOKENS = 100_000
"""Anthropic's default trigger."""


def within_context(tokens: int, context_length: int) -> int:
    """``tokens``, or less in a known context that is shorter; 0 if neither is known."""
    known = int(FULL * context_length)
    return min(tokens, known) if tokens and known else tokens or known


def without_replaced(messages: Sequence[Message]) -> Sequence[Message]:
    """Remove what the last summary replaces: everything before it except messages that are not the model's.

    Clients need not remove these messages, and a stored conversation still has them.
    """
    last = max((at for at, one in enumerate(messages) if one.is_summary), default=0)
    others = [one for one in messages[:last] if not (one.is_summary or is_replaced(one))]
    return [*others, *messages[last:]] if last else messages


def is_replaced(message: Message) -> bool:
    """Whether a summary replaces the message: it is the model's, or a result."""
    return message.role in ("assistant", "tool", "function") or message.is_output


def edited(
    messages: Sequence[Message], rules: ContextRules, tools: int, context_length: int
) -> tuple[Sequence[Message], list[AppliedEdit]]:
    """Apply the edits. ``tools`` are the tokens of the tools; ``context_length`` is 0 if it is not known."""
    applied: list[AppliedEdit] = []
    for rule in rules.edits:
        if isinstance(rule, ClearReasoning):
            changes, tokens, count = _old_reasoning(messages, rule)
        else:
            changes, tokens, count = _ResultClearing(messages, rule, tools, context_length).found()
        if count:
            applied.append(AppliedEdit(rule, tokens, count))
            messages = [changes.get(at, one) for at, one in enumerate(messages)]
    return messages, applied


def _old_reasoning(
    messages: Sequence[Message], rule: ClearReasoning
) -> tuple[dict[int, Message], int, int]:
    """A turn lasts from one question of the user to the next."""
    turns: list[list[int]] = [[]]
    for at, message in enumerate(messages):
        if message.asks:
            turns.append([])
        elif message.role == "assistant" and message.reasoning:
            turns[-1].append(at)
    turns = [turn for turn in turns if turn]
    old = turns if rule.latest == 0 else turns[: -rule.latest] if rule.latest else []
    places = [at for turn in old for at in turn]
    freed = tokens_of(sum(len(messages[at].reasoning) for at in places))
    return {at: messages[at].model_copy(update={"reasoning": ""}) for at in places}, freed, len(old)


@dataclass(frozen=True)
class _Result:
    at: int
    call: tuple[int, str] | None
    """The place of its call's message, and the id, if its arguments are cleared with it."""
    freed: int
    """Tokens; 0 if the result is never cleared."""


class _ResultClearing:
    """One walk over a history."""

    def __init__(
        self, messages: Sequence[Message], rule: ClearResults, tools: int, context_length: int
    ) -> None:
        self._messages = messages
        self._rule = rule
        self._tokens = tools
        self._context_length = context_length
        self._calls: dict[str, tuple[int, str]] = {}
        """Call id -> the place of the last message with it, and the tool. Some upstreams repeat ids."""
        self._results: list[_Result] = []
        """Those in the prompt so far."""
        self._unread = 0
        """The last of them, to which the model has not answered yet."""

    def found(self) -> tuple[dict[int, Message], int, int]:
        """The changed messages by their places, the tokens that become free, and the number of results."""
        cleared: list[_Result] = []
        before = ""
        for at, message in enumerate(self._messages):
            if message.role == "assistant":
                if before != "assistant":
                    cleared += self._clear()
                self._unread = 0
            self._add(at, message)
            before = message.role
        cleared += self._clear()
        places: dict[int, set[str]] = {}
        for one in cleared:
            places.setdefault(one.at, set()).add(self._messages[one.at].tool_call_id or "")
            if one.call is not None:
                places.setdefault(one.call[0], set()).add(one.call[1])
        changes = {
            at: self._messages[at].model_copy(update={"cleared": frozenset(ids)})
            for at, ids in places.items()
        }
        return changes, sum(one.freed for one in cleared), len(cleared)

    def _add(self, at: int, message: Message) -> None:
        self._tokens += _tokens(message)
        for call in message.tool_calls or ():
            if (function := call.as_function) is not None:
                self._calls[call.id] = (at, function.name)
        if message.role != "tool":
            return
        self._unread += 1
        call_at, name = self._calls.get(message.tool_call_id or "", (0, ""))
        freed, owner = _tokens(message) - _CLEARED_TOKENS, None
        inputs = self._rule.inputs
        if name and (inputs is True or (inputs and name in inputs)):
            owner = call_at, message.tool_call_id or ""
            freed += _arguments_tokens(self._messages[call_at], owner[1])
        if name in self._rule.excluded or message.found_tools is not None or message.approval:
            freed = 0
        self._results.append(_Result(at, owner, max(freed, 0)))

    def _clear(self) -> Iterator[_Result]:
        """Clear results if the rule's trigger is reached and enough becomes free."""
        if not self._rule.is_due(self._tokens, len(self._results), self._context_length):
            return
        last = len(self._results) - max(self._rule.latest, self._unread)
        old = [one for one in self._results[: max(last, 0)] if one.freed]
        freed = sum(one.freed for one in old)
        if old and freed >= self._rule.at_least:
            self._results = self._results[last:]
            self._tokens -= freed
            yield from old


_CLEARED_TOKENS = tokens_of(len(CLEARED))


def _tokens(message: Message) -> int:
    def estimate() -> int:
        return estimate_tokens([message.model_dump(include={"content", "tool_calls"})])

    return message.memo("tokens", None, estimate)


def _arguments_tokens(message: Message, call_id: str) -> int:
    functions = (one.as_function for one in message.tool_calls or () if one.id == call_id)
    return tokens_of(sum(len(one.arguments) for one in functions if one))
