"""The history as the model reads it: calls as Python blocks, their results as user messages.

A model without tool calling knows neither the tool role nor ``tool_calls``. What the model saw when a
message was made, where that is more than the client's messages say, comes in as `TranscriptSpan`s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from emulator.answering.python_calls import fence, summarize_call, write_call
from emulator.protocol import FunctionCall, Message
from emulator.tools.toolset import Toolset

# Inside the installed package, or at the top of the checkout.
_FOLDERS = [Path(__file__).parents[1] / "prompts", Path(__file__).parents[2] / "prompts"]
_PROMPTS = Environment(
    loader=FileSystemLoader(_FOLDERS),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701  # nosec B701 # (the reader is a model, not a browser)
    keep_trailing_newline=False,
)
_PROMPTS.filters["fence"] = fence

_FORGOTTEN = "a call that is no longer part of this conversation"

ModelMessage = dict[str, Any]


@dataclass(frozen=True)
class TranscriptSpan:
    """What the model knows of the history from ``start`` to before ``stop``."""

    start: int
    stop: int
    messages: Sequence[ModelMessage]


@dataclass(frozen=True)
class RenderedResult:
    """A result and what it is the result of."""

    call: str
    content: str


def render(template: str, **values: Any) -> str:
    """The text of a file in prompts/."""
    return _PROMPTS.get_template(template).render(**values)


def transcript(
    messages: Sequence[Message], toolset: Toolset, passages: Sequence[TranscriptSpan] = ()
) -> list[ModelMessage]:
    """The history without the tool role; ``passages`` in order, none inside another."""
    rendered: list[ModelMessage] = []
    mentions: dict[str, str] = {}
    at = 0
    for passage in passages:
        rendered += _rendered(messages[at : passage.start], mentions, toolset)
        rendered += passage.messages
        for message in messages[passage.start : passage.stop]:
            mentions |= _mentions(message, toolset)
        at = passage.stop
    return merged([*rendered, *_rendered(messages[at:], mentions, toolset)])


def render_calls(messages: Sequence[Message], toolset: Toolset) -> list[str]:
    """The calls that the assistant has made, as `transcript` writes them."""
    return [
        write_call(function, toolset) for message in messages for _, function in _calls(message)
    ]


def rendered_results(messages: Sequence[Message], toolset: Toolset) -> dict[str, RenderedResult]:
    """The results among ``messages``, which hold their calls too, by the ids of the calls."""
    mentions: dict[str, str] = {}
    results: dict[str, RenderedResult] = {}
    for message in messages:
        mentions |= _mentions(message, toolset)
        if _is_result(message) and (key := message.tool_call_id):
            results[key] = RenderedResult(mentions.get(key, _FORGOTTEN), message.text)
    return results


def other_parts(messages: Sequence[Message]) -> list[Any]:
    """The images and files in the results among ``messages``."""
    return [part for m in messages if _is_result(m) for part in m.other_parts]


def merged(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """One message where neighbours have the same role: many chat templates insist on turns."""
    turns: list[ModelMessage] = []
    for message in messages:
        if turns and turns[-1]["role"] == message["role"]:
            content = joined(turns[-1]["content"], message["content"])
            turns[-1] = {"role": message["role"], "content": content}
        else:
            turns.append(message)
    return turns


def joined(first: Any, second: Any) -> Any:
    """Two contents, each a text or a list of parts, as one."""
    if not second:
        return first
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(text for text in (first, second) if text)
    return [*_parts(first), *_parts(second)]


def _rendered(
    messages: Sequence[Message], mentions: dict[str, str], toolset: Toolset
) -> list[ModelMessage]:
    """``mentions``: how calls are named where their results are told; grows by the calls of ``messages``."""
    rendered: list[ModelMessage] = []
    results: list[RenderedResult] = []
    parts: list[Any] = []

    def flush() -> None:
        if results:
            content = render("results.jinja", results=results)
            rendered.append({"role": "user", "content": joined(content, [*parts])})
            results.clear()
            parts.clear()

    for message in messages:
        if _is_result(message):
            call = mentions.get(message.tool_call_id or message.name or "", _FORGOTTEN)
            results.append(RenderedResult(call, message.text))
            parts += message.other_parts
            continue
        flush()
        # Parts that are all text are one text: not every chat template reads a list.
        content: Any = message.content if message.other_parts else message.text
        if calls := [*_calls(message)]:
            mentions |= _mentions(message, toolset)
            if message.role == "assistant":
                source = "\n".join(write_call(function, toolset) for _, function in calls)
                content = render("calls.jinja", text=message.text, source=source)
        role = "system" if message.role == "developer" else message.role
        rendered.append({"role": role, "content": content})
    flush()
    return rendered


def _is_result(message: Message) -> bool:
    return message.role in ("tool", "function")


def _calls(message: Message) -> Iterator[tuple[str, FunctionCall]]:
    """A message's calls under what their results name them by."""
    for call in message.tool_calls or ():
        if (function := call.as_function) is not None:
            yield call.id, function
    if message.function_call is not None:
        yield message.function_call.name, message.function_call


def _mentions(message: Message, toolset: Toolset) -> dict[str, str]:
    """How each call of a message is named where its result is told."""
    calls = [(key, summarize_call(function, toolset)) for key, function in _calls(message)]
    if not calls:
        return {}
    alike = Counter(text for _, text in calls)
    seen: Counter[str] = Counter()
    mentions: dict[str, str] = {}
    for key, text in calls:
        seen[text] += 1
        # Arguments may differ where they are cut.
        place = f" (number {seen[text]})" if alike[text] > 1 and "... [" in text else ""
        mentions[key] = text + place
    return mentions


def _parts(content: Any) -> Iterator[Any]:
    if isinstance(content, str):
        if content:
            yield {"type": "text", "text": content}
    else:
        yield from content
