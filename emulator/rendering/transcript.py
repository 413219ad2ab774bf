"""The history as the model reads it: calls as Python blocks, their results as user messages.

A model without tool calling knows neither the tool role nor ``tool_calls``. If the model saw more than the
client's messages show, a `TranscriptSpan` replaces them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from emulator.conversation.call_results import NO_RESULT
from emulator.core.protocol import FunctionCall, Message
from emulator.rendering.python_calls import fenced, summarize_call, write_call
from emulator.tools.toolset import Toolset

# In the installed package, or at the top of the checkout.
_FOLDERS = [Path(__file__).parents[1] / "prompts", Path(__file__).parents[2] / "prompts"]
_PROMPTS = Environment(
    loader=FileSystemLoader(_FOLDERS),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701  # (the reader is a model, not a browser)
    keep_trailing_newline=False,
)
_PROMPTS.filters["fenced"] = fenced
_PROMPTS.filters["json"] = partial(json.dumps, ensure_ascii=False)

_UNKNOWN_CALL = "a call that is no longer part of this conversation"

ModelMessage = dict[str, Any]
WriteMessage = Callable[[str, Sequence[FunctionCall], Toolset], str]
"""Text and calls of a message of the model -> the message as the model wrote it."""


@dataclass(frozen=True)
class TranscriptSpan:
    """What the model saw instead of the client's messages from ``start`` to before ``stop``."""

    start: int
    stop: int
    messages: Sequence[ModelMessage]


@dataclass(frozen=True)
class RenderedResult:
    """A result and a summary of its call."""

    call: str
    content: str


def render(template: str, **values: Any) -> str:
    """Render a template from prompts/."""
    return _template(template).render(**values)


@cache  # the environment would look at the file's time for each rendering
def _template(name: str) -> Template:
    template = _PROMPTS.get_template(name)
    template.globals = dict(template.globals)  # each rendering copies it, a ChainMap slowly
    return template


def transcript(
    messages: Sequence[Message],
    toolset: Toolset,
    spans: Sequence[TranscriptSpan] = (),
    message: WriteMessage | None = None,
) -> list[ModelMessage]:
    """Render the history without the tool role; ``spans`` are in order and do not overlap. ``message`` writes
    the model's own messages; without it only calls are rewritten, as Python."""
    rendered: list[ModelMessage] = []
    summaries: dict[str, str] = {}
    answered = {one.tool_call_id or one.name for one in messages if _is_result(one)}
    at = 0
    for span in spans:
        rendered += _rendered(messages[at : span.start], summaries, answered, toolset, message)
        rendered += span.messages
        for one in messages[span.start : span.stop]:
            summaries |= _summaries(one.shown, toolset)
        at = span.stop
    return merged([*rendered, *_rendered(messages[at:], summaries, answered, toolset, message)])


def rendered_results(messages: Sequence[Message], toolset: Toolset) -> dict[str, RenderedResult]:
    """The results in ``messages`` by call id; ``messages`` contain the calls too."""
    summaries: dict[str, str] = {}
    results: dict[str, RenderedResult] = {}
    for message in messages:
        summaries |= _summaries(message.shown, toolset)
        if _is_result(message) and (key := message.tool_call_id):
            results[key] = RenderedResult(summaries.get(key, _UNKNOWN_CALL), message.for_model.text)
    return results


def other_parts(messages: Sequence[Message]) -> list[Any]:
    """The images and files in the results in ``messages``."""
    return [part for m in messages if _is_result(m) for part in m.shown.other_parts]


def merged(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Join neighbours with the same role: many chat templates require alternating roles."""
    turns: list[ModelMessage] = []
    for message in messages:
        if turns and turns[-1]["role"] == message["role"]:
            content = joined(turns[-1]["content"], message["content"])
            turns[-1] = {"role": message["role"], "content": content}
        else:
            turns.append(message)
    return turns


def with_one_system(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Join system messages at the beginning; later ones become the user's, where they are, so that the prefix
    of the prompt stays. They join the user's messages next to them: roles must alternate."""
    changed: list[ModelMessage] = []
    was_system = False
    for message in messages:
        is_system = message["role"] in ("system", "developer")
        role = message["role"]
        if is_system:
            is_first = not changed or (len(changed) == 1 and changed[0]["role"] == "system")
            role = "system" if is_first else "user"
        joins = (is_system or was_system) and role in ("system", "user")
        if joins and changed and changed[-1]["role"] == role:
            content = joined(changed[-1]["content"], message["content"])
            changed[-1] = {**changed[-1], "content": content}
        else:
            changed.append({**message, "role": role})
        was_system = is_system
    return changed


def without_developer(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The developer role becomes system, which every chat template knows."""
    return [
        {**message, "role": "system"} if message["role"] == "developer" else message
        for message in messages
    ]


def joined(first: Any, second: Any) -> Any:
    """Join two contents, each a text or a list of parts."""
    if not second:
        return first
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(text for text in (first, second) if text)
    return [*_parts(first), *_parts(second)]


def _rendered(
    messages: Sequence[Message],
    summaries: dict[str, str],
    answered: Collection[str | None],
    toolset: Toolset,
    write: WriteMessage | None,
) -> list[ModelMessage]:
    """``summaries``: call id -> summary; the calls of ``messages`` are added. ``answered`` are those with a
    result anywhere: the others have a line where it would stand."""
    rendered: list[ModelMessage] = []
    results: list[RenderedResult] = []
    parts: list[Any] = []
    unanswered: list[str] = []

    def flush() -> None:
        results.extend(RenderedResult(summaries[key], NO_RESULT) for key in unanswered)
        unanswered.clear()
        if results:
            write_results = partial(render, "results.jinja", results=[*results])
            key = tuple((one.call, one.content) for one in results)
            content = last.memo("results", key, write_results)
            rendered.append({"role": "user", "content": joined(content, [*parts])})
            results.clear()
            parts.clear()

    for message in [one.shown if one.cleared else one for one in messages]:
        if _is_result(message):
            call = summaries.get(message.tool_call_id or message.name or "", _UNKNOWN_CALL)
            results.append(RenderedResult(call, message.for_model.text))
            parts += message.other_parts
            last = message
            continue
        flush()
        last = message
        # Text parts become one text: not every chat template accepts a list.
        content: Any = message.content if message.other_parts else message.text
        if calls := [function for _, function in calls_of(message)]:
            summaries |= _summaries(message, toolset)
            unanswered += [key for key, _ in calls_of(message) if key not in answered]
        if message.role == "assistant" and write is not None:
            content = write(message.text, calls, toolset)
        elif message.role == "assistant" and calls:
            write_words = partial(_with_calls, message.text, calls, toolset)
            content = message.memo("calls", toolset.digest, write_words)
        role = "system" if message.role == "developer" else message.role
        if role == "system" and not content:  # it adds tools that do not exist
            continue
        rendered.append({"role": role, "content": content})
    flush()
    return rendered


def _with_calls(text: str, calls: Sequence[FunctionCall], toolset: Toolset) -> str:
    source = "\n".join(write_call(function, toolset) for function in calls)
    return render("calls.jinja", text=text, source=source)


def _is_result(message: Message) -> bool:
    return message.role in ("tool", "function")


def calls_of(message: Message) -> Iterator[tuple[str, FunctionCall]]:
    """A message's calls, each with the id or name that its result refers to."""
    for call in message.tool_calls or ():
        if (function := call.as_function) is not None:
            yield call.id, function
    if message.function_call is not None:
        yield message.function_call.name, message.function_call


def _summaries(message: Message, toolset: Toolset) -> dict[str, str]:
    """The summary of each call of a message, shown next to its result."""
    if not (message.tool_calls or message.function_call):
        return {}
    make = partial(_summaries_of_calls, message, toolset)
    return message.memo("summaries", toolset.digest, make)


def _summaries_of_calls(message: Message, toolset: Toolset) -> dict[str, str]:
    calls = [(key, summarize_call(function, toolset)) for key, function in calls_of(message)]
    counts = Counter(text for _, text in calls)
    seen: Counter[str] = Counter()
    summaries: dict[str, str] = {}
    for key, text in calls:
        seen[text] += 1
        # Calls with equal summaries may differ in the part that is cut.
        place = f" (number {seen[text]})" if counts[text] > 1 and "... [" in text else ""
        summaries[key] = text + place
    return summaries


def _parts(content: Any) -> Iterator[Any]:
    if isinstance(content, str):
        if content:
            yield {"type": "text", "text": content}
    else:
        yield from content
