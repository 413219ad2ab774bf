"""A request and its toolset -> the messages that the model reads.

Instructions, repairs and other texts stand in prompts/*.jinja; remarks of one line on files, cells and items
of the history stand where these are read (`attachments`, `execution`, `cell_draft`, `responses.history`).

The history is told as a Python transcript, since a model without tool calling knows neither the tool
role nor ``tool_calls``. Knows nothing of HTTP or engines.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from emulator.answering.profiles import Profile
from emulator.answering.tool_choice import Choice
from emulator.protocol import FunctionCall, Message
from emulator.tools.toolset import Toolset

# Inside the installed package, or at the top of the checkout.
_FOLDERS = [Path(__file__).parents[1] / "prompts", Path(__file__).parents[2] / "prompts"]
_PROMPTS = Environment(
    loader=FileSystemLoader(_FOLDERS),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701  (the reader is a model, not a browser)
    keep_trailing_newline=False,
)
_FORGOTTEN = "a call that is no longer part of this conversation"

ModelMessage = dict[str, Any]


class EndedProgram(Protocol):
    """What the prompt needs of `resume.ProgramEnded`."""

    @property
    def source(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def output(self) -> str: ...
    @property
    def diagnostics(self) -> str: ...


@dataclass(frozen=True)
class Workplace:
    """What a model is to know of the interpreter's sandbox."""

    libraries: Mapping[str, str]
    """Distributions that can be imported -> their versions."""
    files: Sequence[str]
    """Paths below /mnt/data."""


def instruct(
    messages: Sequence[Message],
    toolset: Toolset,
    choice: Choice,
    profile: Profile,
    answer_format: str = "",
    *,
    ended: EndedProgram | None = None,
    habit: str = "python",
    workplace: Workplace | None = None,
) -> list[ModelMessage]:
    """The messages for a turn in which the model may call ``toolset``'s functions.

    ``answer_format`` is what to tell of the form of a final answer; ``ended`` a program whose calls end
    the history; ``habit`` the dialect in which the model has been calling; ``workplace`` where its code
    runs, if there is an interpreter.
    """
    instructions = answer_format
    if workplace is not None:
        instructions = render(
            "interpreter.jinja",
            stubs=toolset.stubs if toolset.tools else "",
            choice=str(choice),
            libraries=", ".join(f"{name} {v}" for name, v in workplace.libraries.items()),
            files=workplace.files,
            answer_format=answer_format,
        )
    elif toolset.tools:
        instructions = render(
            "tools.jinja",
            stubs=toolset.stubs,
            tools=toolset.tools,
            choice=str(choice),
            one_at_a_time=choice.one_at_a_time,
            programs=choice.programs,
            example="result = function_name(argument=value)",
            answer_format=answer_format,
            habit=habit,
        )
    told = transcript(messages, toolset)
    if ended is not None and (ended.output or ended.diagnostics):
        # The program stands for its calls: what it made of their results is all that is needed.
        told = _merged(
            [
                *transcript(messages[: ended.start], toolset),
                *_told(ended, messages[ended.start].text),
            ]
        )
    if profile.system:
        return _merged([{"role": "system", "content": instructions}, *told], first_last=True)
    return _without_system([{"role": "system", "content": instructions}, *told])


def _told(ended: EndedProgram, words: str) -> list[ModelMessage]:
    """A program as one block and its output; ``words`` stood in front of it."""
    source = ended.source.splitlines()
    said = render("ended.jinja", output=ended.output, diagnostics=ended.diagnostics)
    return [
        {"role": "assistant", "content": render("calls.jinja", text=words, calls=source)},
        {"role": "user", "content": said},
    ]


def transcript(messages: Sequence[Message], toolset: Toolset) -> list[ModelMessage]:
    """The history without the tool role: calls as Python blocks, their results as user messages."""
    told: list[ModelMessage] = []
    written: dict[str, str] = {}
    results: list[dict[str, str]] = []
    attached: list[Any] = []

    def flush() -> None:
        if results:
            content = render("results.jinja", results=results, offered=bool(toolset.tools))
            told.append({"role": "user", "content": _joined(content, [*attached])})
            results.clear()
            attached.clear()

    for message in messages:
        if message.role in ("tool", "function"):
            call = written.get(message.tool_call_id or message.name or "", _FORGOTTEN)
            results.append({"call": call, "content": message.text})
            attached += message.other_parts
            continue
        flush()
        calls = [
            (call.id, function)
            for call in message.tool_calls or ()
            if (function := call.called) is not None
        ]
        if message.function_call is not None:
            calls.append((message.function_call.name, message.function_call))
        if message.role == "assistant" and calls:
            lines = [_write_call(function, toolset) for _, function in calls]
            written |= {key: line for (key, _), line in zip(calls, lines, strict=True)}
            content: Any = render("calls.jinja", text=message.text, calls=lines)
        else:
            content = message.content if message.content is not None else ""
        role = "system" if message.role == "developer" else message.role
        told.append({"role": role, "content": content})
    flush()
    return _merged(told)


def repair(reply: str, **facts: Any) -> list[ModelMessage]:
    """What to append when a reply was no use: the reply itself, and what is wrong with it."""
    return [
        {"role": "assistant", "content": reply or "..."},
        {"role": "user", "content": render("repair.jinja", **facts)},
    ]


def ran(words: str, code: str, output: str, *, failed: bool, last: bool) -> list[ModelMessage]:
    """A cell that was run, and what came of it; ``last`` if no other may be run."""
    block = render("calls.jinja", text=words, calls=code.splitlines())
    said = [
        render("ran.jinja", output=output, files=(), failed=failed),
        render("go_on.jinja", failed=failed, last=last),
    ]
    return [
        {"role": "assistant", "content": block},
        {"role": "user", "content": "\n\n".join(said)},
    ]


def render(template: str, **values: Any) -> str:
    return _PROMPTS.get_template(template).render(**values)


def _write_call(function: FunctionCall, toolset: Toolset) -> str:
    """A call of the history as the Python that a model would have written for it."""
    tool = toolset.find(function.name)
    name = tool.python_name if tool else function.name.replace("-", "_").replace(".", "_")
    spelt: dict[str, str] = {p.name: p.python_name for p in tool.arguments} if tool else {}
    try:
        arguments = orjson.loads(function.arguments or "{}")
    except orjson.JSONDecodeError:
        arguments = None
    if not isinstance(arguments, dict):
        return f"{name}({function.arguments})"
    named = {spelt.get(str(key), str(key)): value for key, value in arguments.items()}
    if all(key.isidentifier() and not keyword.iskeyword(key) for key in named):
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in named.items())})"
    return f"{name}(**{arguments!r})"


def _merged(messages: Sequence[ModelMessage], *, first_last: bool = False) -> list[ModelMessage]:
    """One message where neighbours have the same role: many chat templates insist on turns.

    With ``first_last`` the text of the first message, our instructions, goes behind a system
    message of the client's, not before it.
    """
    merged: list[ModelMessage] = []
    for message in messages:
        if merged and merged[-1]["role"] == message["role"]:
            parts = [merged[-1]["content"], message["content"]]
            if first_last and len(merged) == 1 and message["role"] == "system":
                parts.reverse()
            merged[-1] = {"role": message["role"], "content": _joined(*parts)}
        else:
            merged.append(message)
    return merged


def _without_system(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """System text in front of the first user message."""
    instructions = [m for m in messages if m["role"] == "system"]
    rest = [m for m in messages if m["role"] != "system"]
    return _merged([{"role": "user", "content": m["content"]} for m in instructions] + rest)


def _joined(first: Any, second: Any) -> Any:
    if not second:
        return first
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(text for text in (first, second) if text)
    return [*_parts(first), *_parts(second)]


def _parts(content: Any) -> Iterator[Any]:
    if isinstance(content, str):
        if content:
            yield {"type": "text", "text": content}
    else:
        yield from content
