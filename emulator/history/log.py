"""The log: recall what the model saw of a history, and append an answer.

* A row has what the client lacks; the rest of a prompt is rendered from the client's messages, each time to
  the same bytes. Whole prompts would be five to nine times as large (20 turns with results of 4 KB: 93 KB for
  11), and clients without a row would need the renderer anyway.
* A stored answer never changes. The same answer may be stored again by a repeated request.
* If two conversations differ only in what their client cannot see, neither is recalled.
* A store that fails means the history as the client has it. But it is an error if the answer may make hosted
  calls that it has made already: with another program they would have other keys in the journal.

Knows nothing of prompts, tools or fronts.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from emulator.core import json_codec
from emulator.core.errors import StoreUnavailable
from emulator.core.events import IMAGE, ToolCall
from emulator.core.protocol import PARAGRAPH, ChatCompletionRequest, Message
from emulator.database import MAX_VALUE_BYTES, Database, DatabaseFailed, Documents
from emulator.history.keys import Keys, Walk
from emulator.history.model_view import ModelView, model_view_of
from emulator.hosted.hosted_tool import HostedResult
from emulator.programs.call_history import last_result
from emulator.programs.saved import SavedProgram

log = structlog.get_logger()

_FORMAT = b"2"
"""Another number for rows that an older version cannot read, or this one not the older."""
_REASONING = "reasoning_content"
_TOO_LARGE = "The result of this call was too large to be stored for this request."
_RESULTS = TypeAdapter(dict[str, HostedResult])


def history_documents(database: Database, seconds: float) -> Documents[bytes]:
    """Where answers are stored, for ``seconds``."""
    return Documents(database, "history", seconds=seconds)


@dataclass
class History:
    """One request's history; without a store nothing is remembered."""

    store: Documents[bytes] | None = None
    keys: Keys = field(default_factory=lambda: Keys(""))
    walk: Walk = field(default_factory=lambda: Walk(Keys("")))
    """Over ``messages``."""
    messages: Sequence[Message] = ()
    """As the client sent them."""
    recalled: Sequence[Message] = ()
    """With the messages that the client lacks; each answer carries what the model saw of it."""
    find_turn: Callable[[], str] = str
    """Returns the name of the request's turn, "" if the client does not say that it repeats requests."""
    former_results: Mapping[str, HostedResult] = field(default_factory=dict)
    """By call id: what the version before, which had no journal, has stored of this answer's hosted calls."""
    _turn: str | None = None
    """The name, once it was asked for."""
    _act_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often the answer has made each call (`Keys.act_of_turn`)."""

    def act_key(self, call: ToolCall) -> str | None:
        """The journal's key of the answer's next hosted call; None if no request is known to repeat it."""
        if after := _last_id(self.messages):
            return self.keys.act(after, call)
        if self._turn is None:
            self._turn = self.find_turn()
        return self.keys.act_of_turn(self._turn, call, self._act_counts) if self._turn else None

    def asked_key(self, call: ToolCall) -> str:
        """The journal's key of a call that this proxy asks a person about."""
        return self.keys.act(call.id, call)

    def client_made_key(self, call: ToolCall) -> str:
        """The journal's key of an approved call whose id the client may have chosen: two conversations may
        have the same id."""
        return self.keys.act(self.walk.digest, call)

    def append(self, messages: Sequence[Message], visible: Sequence[Message]) -> None:
        """Store an answer before its last event.

        ``messages`` are what the model's history has of it, with what the model saw; the last one that is the
        assistant's is the answer. ``visible`` are what the client's history will have.
        """
        if self.store is None:
            return
        answer = messages[_last_of_assistant(messages)]
        walk = copy(self.walk)
        *_, (key, is_ambiguous) = filter(None, map(walk.pass_on, visible))
        own = {call.id for message in visible for call in message.tool_calls or ()}
        value = _sealed(key, _dump(messages, own))
        if len(value) > MAX_VALUE_BYTES:
            log.warning("results of hosted calls are too large to be stored", bytes=len(value))
            value = _sealed(key, _dump(messages, own, with_results=False))
        rows: dict[str, bytes] = {}
        if is_ambiguous:
            _put_unless_ambiguous(self.store, key, value)
        elif len(messages) > 1 or model_view_of(answer).dump():
            rows[key] = value
        sent = [call.id for call in visible[_last_of_assistant(visible)].tool_calls or ()]
        if sent and (program := model_view_of(answer).program) is not None:
            name = self.keys.open_program(sent[0])
            rows[name] = _sealed(name, program.dump())
        _put(self.store, rows)


def _put_unless_ambiguous(store: Documents[bytes], key: str, value: bytes) -> None:
    """Every such answer is stored, also one with nothing to recall: it may be another user's."""
    if len(value) > MAX_VALUE_BYTES:
        value = b""
    try:
        store.change(key, lambda old: value if old in (None, value) else b"")
    except DatabaseFailed as error:
        log.warning("not stored for later requests", reason=str(error))


def _put(store: Documents[bytes], rows: dict[str, bytes]) -> None:
    for key, value in [*rows.items()]:
        if len(value) > MAX_VALUE_BYTES:
            log.warning("not stored for later requests: too large", bytes=len(value))
            del rows[key]
    try:
        store.put(rows)
    except DatabaseFailed as error:
        log.warning("not stored for later requests", reason=str(error))


def recall(
    store: Documents[bytes] | None,
    client: str,
    chat: ChatCompletionRequest,
    *,
    may_repeat_calls: bool = False,
) -> History:
    """The history of a request. ``may_repeat_calls``: the answer may make hosted calls.

    Raises `StoreUnavailable` if these may have been made already.
    """
    kinds = sorted({str(tool.get("type")) for tool in chat.tools or ()})
    keys = Keys(client, (chat.model, *kinds))
    messages = chat.messages
    places: dict[str, int] = {}
    walk = Walk(keys)
    for at, message in enumerate(messages):
        if found := walk.pass_on(message):
            places.setdefault(found[0], at)
    if store is None:
        return History(None, keys, walk, messages, messages)
    programs = {
        keys.open_program(call.id): at
        for at in _of_last_question(messages)
        for call in messages[at].tool_calls or ()
    }
    last_id = _last_id(messages) if may_repeat_calls else ""
    former = keys.of("results", last_id)
    names = [*places, *programs, *([former] if last_id else [])]
    try:
        rows = store.get_many(names) if names else {}
    except DatabaseFailed as error:
        if last_id:
            problem = "The program that makes hosted calls cannot be read at the moment"
            raise StoreUnavailable(f"{problem}: {error}") from error
        log.warning("the history is shown as the client has it", reason=str(error))
        return History(store, keys, walk, messages, messages)
    opened = {key: _opened(key, row) for key, row in rows.items() if row}
    unreadable = {key for key, value in opened.items() if value is None}
    if unreadable:
        log.warning("the history lacks what the model saw", reason="records are damaged")
    values = {key: value for key, value in opened.items() if value is not None}
    answers = {at: _load(values[key]) for key, at in places.items() if key in values}
    # The last one has all that the earlier ones have.
    last = max(((at, key) for key, at in programs.items() if key in values), default=None)
    waiting = {} if last is None else {last[0]: SavedProgram.load(values[last[1]])}
    recalled = _recalled(messages, answers, waiting)
    results = _former_results(values.get(former, b"{}"))
    return History(store, keys, walk, messages, recalled, former_results=results)


def _former_results(value: bytes) -> Mapping[str, HostedResult]:
    try:
        return _RESULTS.validate_json(value)
    except ValidationError:  # a row of another kind
        return {}


def _last_id(messages: Sequence[Message]) -> str:
    """The id of the result or approval that ends a history, whose answer may resume a program, or ""."""
    last = last_result(messages)
    decided = [message.tool_call_id for message in messages if message.approval is not None]
    return (last.tool_call_id if last.role == "tool" else next(reversed(decided), None)) or ""


def _of_last_question(messages: Sequence[Message]) -> range:
    """The places from the last user message that has an answer."""
    last = len(messages) - 1
    while last > 0 and messages[last].role != "assistant":
        last -= 1
    start = last
    while start > 0 and not messages[start].asks:
        start -= 1
    return range(start, last + 1)


def _recalled(
    messages: Sequence[Message],
    answers: Mapping[int, Sequence[Message]],
    waiting: Mapping[int, SavedProgram],
) -> list[Message]:
    recalled: list[Message] = []
    last_results: dict[str | None, int] = {}
    """The ids of the calls whose results end the last stored answer -> their places in ``recalled``."""
    for at, message in enumerate(messages):
        if message.role == "tool" and (place := last_results.get(message.tool_call_id)) is not None:
            if not _same_text(recalled[place], message):
                recalled[place] = message  # the client has edited it
            continue
        recalled.append(message)
        if answer := answers.get(at):
            _insert(answer, recalled)
            after = range(_last_of_assistant(recalled) + 1, len(recalled))
            last_results = {recalled[place].tool_call_id: place for place in after}
        if (program := waiting.get(at)) is not None:
            view = replace(model_view_of(recalled[-1]), program=program)
            recalled[-1] = recalled[-1].model_copy(update={"model_view": view})
    return recalled


def _insert(answer: Sequence[Message], recalled: list[Message]) -> None:
    """Put a stored answer in the place of what the client has of it, which ends the history so far."""
    place = _last_of_assistant(answer)
    ids = {one.tool_call_id for one in answer if one.role == "tool"}
    start = len(recalled) - 1
    while start and _is_part(recalled[start - 1], ids):
        start -= 1
    if all(one.role == "assistant" for one in recalled[start:-1]):
        start = (
            len(recalled) - 1
        )  # the client has none of it; words before the answer may be another's
    if len(answer) == 1 or any(one.tool_call_id in ids for one in recalled[:start]):
        recalled[-1] = recalled[-1].model_copy(update={"model_view": answer[place].model_view})
        return
    shown, recalled[start:] = recalled[start:], []
    own = {call.id: call for one in shown for call in one.tool_calls or ()}
    results = {one.tool_call_id: one for one in shown if one.role == "tool"}
    for at, one in enumerate(answer):
        if (known := results.get(one.tool_call_id)) and not _same_text(one, known):
            recalled.append(known)  # the client has edited it
            continue
        changes: dict[str, Any] = {}
        if one.tool_calls:
            calls = [call if call.function else own.get(call.id) for call in one.tool_calls]
            changes["tool_calls"] = [call for call in calls if call]
        if at == place:
            changes |= {"content": one.content, "model_view": one.model_view}
            if _REASONING in (shown[-1].model_extra or {}):  # a chat's has the hosted calls as text
                changes[_REASONING] = (one.model_extra or {}).get(_REASONING, "")
        recalled.append((shown[-1] if at == place else one).model_copy(update=changes))


def _is_part(message: Message, results: Collection[str | None]) -> bool:
    """Return True if a message before an answer's last one belongs to the answer."""
    if message.role == "tool":
        return message.tool_call_id in results
    return message.role == "assistant" or message.is_output


def _same_text(stored: Message, shown: Message) -> bool:
    """Return True if ``shown`` is the stored result: the client may show its images as text."""
    parts = stored.content if isinstance(stored.content, list) else []
    texts = [str(part.get("text") or IMAGE) for part in parts]
    return shown.text in (stored.text, "\n".join(texts), PARAGRAPH.join(texts))


def _last_of_assistant(messages: Sequence[Message]) -> int:
    return max(at for at, one in enumerate(messages) if one.role == "assistant")


def _dump(messages: Sequence[Message], own: set[str], *, with_results: bool = True) -> bytes:
    """``own`` are the ids of the calls whose names and arguments the client's history has."""
    dumped = []
    for message in messages:
        fields = message.model_dump(exclude_unset=True)
        if message.role == "tool":
            fields["is_error"] = message.is_error or not with_results
            fields["content"] = message.content if with_results else _TOO_LARGE
        elif calls := fields.get("tool_calls"):
            fields["tool_calls"] = [{"id": c["id"]} if c["id"] in own else c for c in calls]
        if len(messages) == 1:  # the client has it
            fields = {"role": "assistant"}
        if message.is_output:
            fields["is_output"] = True
        if view := model_view_of(message).dump():
            fields["model_view"] = view
        dumped.append(fields)
    return json_codec.dumps(dumped)


def _load(value: bytes) -> list[Message]:
    messages = [Message.model_validate(one) for one in json_codec.loads(value)]
    return [
        one.model_copy(update={"model_view": ModelView.load(one.model_view)})
        if one.model_view
        else one
        for one in messages
    ]


def _sealed(key: str, value: bytes) -> bytes:
    """A row with a digest: only what this version has written under ``key`` can be opened."""
    return hashlib.sha256(_FORMAT + key.encode() + value).digest() + value


def _opened(key: str, row: bytes) -> bytes | None:
    value = row[hashlib.sha256().digest_size :]
    if row == _sealed(key, value):
        return value
    # Without a key: the version before, whose programs may be open. Then nothing says what the row is.
    is_list = value.startswith(b"[")
    is_ours = row == _sealed("", value) and is_list is key.startswith("answer:")
    return value if is_ours else None
