"""`tool-emulator explain`: show what a model sees of the tools, and how the proxy would read a reply.

Takes the same steps as a request, without a model: request -> toolset -> prompt; reply from a file -> blocks
and statements -> calls and diagnostics. Knows nothing of HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from emulator import traces
from emulator.answering.first_turn import first_turn
from emulator.answering.new_reply import new_reply
from emulator.answering.turn_state import TurnState
from emulator.answering.ways.way import PromptInputs
from emulator.conversation.answer_request import AnswerRequest, read_request
from emulator.core import json_codec
from emulator.core.errors import BadRequest
from emulator.core.events import AnswerEvent, ContentDelta, ToolCall
from emulator.core.protocol import ChatCompletionRequest, parse_chat
from emulator.interpreter.engines import open_programs
from emulator.programs.driver import Driver
from emulator.reading.diagnostics import render
from emulator.reading.events import BlockDelta, BlockEnd, BlockStart, Reasoning, Text
from emulator.reading.readers import Unreadable, read
from emulator.reading.splitter import split
from emulator.reply.mentions import note_mention
from emulator.reply.quotations import Quotations
from emulator.reply.verdicts import UnusableReply
from emulator.settings.settings import Settings
from emulator.traces import Trace, Turn
from emulator.upstream.routes import Routes
from sandbox.programs.server import ProgramServer

QUESTION = "What the user asks."
"""The user message if the given JSON contains only tools."""


@dataclass(frozen=True)
class Section:
    """A heading and the text below it."""

    title: str
    text: str

    def __str__(self) -> str:
        return f"## {self.title}\n\n{self.text.strip()}\n"


@dataclass(frozen=True)
class Explanation:
    sections: tuple[Section, ...]
    usable: bool = True
    """False if the proxy would reject the reply and ask the model again."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.sections))


def read_tools(text: bytes) -> ChatCompletionRequest:
    """Read a request body, a ``tools`` array, or one tool. Raises `BadRequest`, which names the place."""
    try:
        parsed: Any = json_codec.loads(text)
    except json_codec.NotJSON as error:
        raise BadRequest(f"the file is not JSON: {error}") from error
    if isinstance(parsed, Mapping) and not ({"tools", "functions", "messages"} & set(parsed)):
        parsed = [parsed]
    if not isinstance(parsed, list | dict):
        raise BadRequest("the file contains neither a request nor tools.")
    body = {"tools": parsed} if isinstance(parsed, list) else parsed
    question = {"messages": [{"role": "user", "content": QUESTION}]}
    return parse_chat(json_codec.dumps({"model": "model", **question, **body}))


def explain(
    settings: Settings,
    request: ChatCompletionRequest,
    reply: str | None = None,
    programs: ProgramServer | None = None,
) -> Explanation:
    """Show the model's prompt and, with ``reply``, how the proxy would read it. Raises `EmulatorError`.

    ``programs`` runs the reply's program; by default, a server is started for this reply.
    """
    answer_request = read_request(request, "", Routes(settings).of(request.model))
    if answer_request.interpreter is not None:
        raise BadRequest("explain covers function tools, not code_interpreter.", "tools")
    if answer_request.relayed:
        return Explanation((Section("Relayed", "No tool may be called, so nothing is emulated."),))
    messages, fields, way = first_turn(PromptInputs(request=answer_request, habit="python"))
    profile = answer_request.profile
    shown = [
        Section("Tools as Python", answer_request.toolset.stubs or "none"),
        Section(f"Prompt (profile {profile.name})", "\n\n".join(map(_message, messages))),
    ]
    if "response_format" in fields:
        schema = json.dumps(fields["response_format"], indent=1, ensure_ascii=False)
        shown.append(Section("Constraint (response_format)", schema))
    if reply is None:
        return Explanation(tuple(shown))
    with ExitStack() as running:
        programs = programs or running.enter_context(closing(open_programs(settings)))
        driver = Driver(
            programs,
            answer_request.toolset,
            order=answer_request.order,
            one_at_a_time=answer_request.call_policy.one_at_a_time,
        )
        state = TurnState(
            messages,
            fields,
            answer_request.call_policy,
            None,
            Quotations(request.messages, answer_request.toolset),
            way=way,
        )
        judged = _judged(answer_request, driver, state, reply)
    return Explanation((*shown, *judged.sections), judged.usable)


def _judged(
    answer_request: AnswerRequest, driver: Driver, state: TurnState, reply: str
) -> Explanation:
    """The sections that show how `answerer` would treat the reply."""
    reading = new_reply(answer_request, driver, state, seed=0)
    draft = reading.draft
    trace = Trace("explained", "", "")
    turn = trace.begin_turn("", state.messages, {})
    token = traces.current.set(trace)
    try:
        events = [*reading.feed(reply), *reading.close()]
        if not any(isinstance(event, ToolCall) for event in events):
            note_mention(reading.words, reading.reasoning, answer_request.toolset)
    finally:
        traces.current.reset(token)
    sections = [Section("Reply, as the proxy reads it", "\n\n".join(_parts(reply, draft.names)))]
    if turn.program:
        sections.append(Section("Program", _program(turn)))
    if calls := [event for event in events if isinstance(event, ToolCall)]:
        waits = "\n(the program waits here for results)" if draft.is_done else ""
        sections.append(Section("Calls", "\n".join(map(_call, calls)) + waits))
    elif draft.has_code and not draft.program.diagnostics:
        sections.append(Section("Calls", "none: the program ended without a call"))
    if draft.program.diagnostics:
        sections.append(Section("Diagnostics", render(draft.program.diagnostics)))
    if trace.notes:
        notes = (f"{one.words} {one.way_out}".rstrip() for one in trace.notes)
        sections.append(Section("Notes", "\n".join(notes)))
    verdict = reading.verdict
    if isinstance(verdict, UnusableReply):
        state.add_repair(reading, reading.text, verdict)
        asking = _message(state.messages[-1])
        sections.append(Section(f"Unusable ({verdict.kind}): the model is asked again", asking))
        return Explanation(tuple(sections), usable=False)
    if not calls:
        sections.append(Section("Answer", _content(events)))
    return Explanation(tuple(sections))


def _program(turn: Turn) -> str:
    """The program's numbered lines; lines whose calls are sent are marked."""
    sent = set(turn.lines.values())
    return "\n".join(
        f"{'sent' if number in sent else '':4} {number:3} | {line}".rstrip()
        for number, line in enumerate(turn.program.splitlines(), 1)
    )


def _parts(reply: str, names: Collection[str]) -> Iterator[str]:
    """The reply's reasoning, prose and blocks; each block with the statements found in it."""
    dialect, source = "", ""
    for event in split(reply, names):
        match event:
            case Reasoning(text) if text.strip():
                yield f"reasoning:\n{_indented(text)}"
            case Text(text) if text.strip():
                yield f"prose:\n{_indented(text)}"
            case BlockStart(dialect):
                source = ""
            case BlockDelta(text):
                source += text
            case BlockEnd(closed=closed):
                kind = f"block ({dialect}{'' if closed else ', not closed'})"
                yield f"{kind}:\n{_indented(source)}\n{_statements(dialect, source, names)}"


def _statements(dialect: str, text: str, names: Collection[str]) -> str:
    try:
        statements = read(dialect, text, names)
    except Unreadable as error:
        return f"unreadable:\n{_indented(render(error.diagnostics, text))}"
    source = "\n".join(f"line {one.line}: {one.source}" for one in statements)
    return f"read as:\n{_indented(source or 'nothing')}"


def _message(message: Mapping[str, Any]) -> str:
    content = message["content"]
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return f"[{message['role']}]\n{text}"


def _call(call: ToolCall) -> str:
    return f"{call.name} {json_codec.dumps(call.arguments).decode()}"


def _content(events: Sequence[AnswerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ContentDelta))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.strip("\n").splitlines())
