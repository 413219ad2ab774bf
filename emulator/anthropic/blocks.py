"""Content blocks of a conversation -> the messages of a chat. Knows nothing of tools or of answers.

Blocks that no model here can use are skipped: the thinking of earlier turns, and records of tools that
another service ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from emulator import json_codec
from emulator.answering.cell_resume import NO_OUTPUT
from emulator.answering.prompt import cell_history
from emulator.answering.summary import introduced
from emulator.answering.tool_search import BM25_SEARCH, REGEX_SEARCH
from emulator.errors import BadRequest
from emulator.events import from_same_answer
from emulator.protocol import FunctionCall, HistoryCall, HistoryProgram, Message

Json = dict[str, Any]
Role = Literal["user", "assistant", "system"]

ADDITION, REMOVAL = "tool_addition", "tool_removal"
"""The types of blocks that change the tools during a conversation."""
CODE = "code_execution"
"""The name of the server tool that maps to the code interpreter."""


class Cells:
    """The code in a conversation, from its first block on. Code that calls the client's tools ends in a later
    message than it begins."""

    def __init__(self, contents: Iterable[str | Sequence[Mapping[str, Any]]] = ()) -> None:
        blocks = (
            block for content in contents if not isinstance(content, str) for block in content
        )
        self._results = {
            str(block.get("tool_use_id")): _mapping(block.get("content"))
            for block in blocks
            if block.get("type") == "code_execution_tool_result"
        }
        self._code: dict[str, str] = {}
        self._running = ""
        self._programs: dict[str, HistoryProgram] = {}
        """The code that has called tools, by its id."""

    def start(self, block: Mapping[str, Any]) -> None:
        self._running = str(block.get("id"))
        self._code[self._running] = str(_mapping(block.get("input")).get("code", ""))

    def call(self, call: HistoryCall, block: Mapping[str, Any]) -> HistoryCall:
        """The call with its caller, if code is running."""
        if not self._running or _mapping(block.get("caller")).get("type") == "direct":
            return call
        return call.model_copy(update={"caller": self._running})

    def program(self, calls: Sequence[HistoryCall]) -> HistoryProgram | None:
        """The program that begins with these calls of a message."""
        key = next((call.caller for call in calls if call.caller), "")
        if not key or key in self._programs:
            return None
        program = HistoryProgram(id=key, code=self._code[key])
        if (result := self._results.get(key)) is not None:
            output, failed = _output(result)
            fields = {"result": output or NO_OUTPUT, "failed": failed}
            program = program.model_copy(update=fields)
        self._programs[key] = program
        return program

    def end(self, block: Mapping[str, Any]) -> list[Message]:
        """The code and its output, unless they are the history of a program."""
        key, self._running = str(block.get("tool_use_id")), ""
        if key not in self._programs:
            output, failed = _output(_mapping(block.get("content")))
            return cell_history(self._code.get(key, ""), output, failed=failed)
        return []


def _output(result: Mapping[str, Any]) -> tuple[str, bool]:
    """What code wrote, and whether it failed."""
    output = f"{result.get('stdout') or ''}{result.get('stderr') or ''}".rstrip("\n")
    return output, bool(result.get("return_code")) or "error_code" in result


def messages(
    role: Role,
    content: str | Sequence[Mapping[str, Any]],
    place: str,
    cells: Cells | None = None,
) -> list[Message]:
    """Convert one message of the request, after those before it. Tool results become separate messages.
    Raises `BadRequest`."""
    if isinstance(content, str):
        return [Message(role=role, content=content)]
    if role == "assistant":
        return _assistant(content, place, cells or Cells())
    converted: list[Message] = []
    parts: list[Json] = []
    for n, block in enumerate(content):
        at = f"{place}[{n}]"
        if block.get("type") == "tool_result":
            converted += _message(role, parts)
            parts = []
            converted.append(_result(block, at))
        elif block.get("type") in (ADDITION, REMOVAL):
            converted += _message(role, parts)
            parts = []
            converted.append(_tool_change(block))
        else:
            parts += _parts(block, at)
    return [*converted, *_message(role, parts)]


def _message(role: Role, parts: Sequence[Json]) -> list[Message]:
    return [Message(role=role, content=_joined(parts))] if parts else []


def _joined(parts: Sequence[Json]) -> str | list[Json]:
    """Return a single text part as plain text; several parts stay separate."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return [*parts]


def _assistant(content: Sequence[Mapping[str, Any]], place: str, cells: Cells) -> list[Message]:
    """Convert an answer: text and calls share a message; results of hosted calls, and each cell with its
    output, are messages in between. A cell that waited for results is with its first calls."""
    converted: list[Message] = []
    texts: list[str] = []
    calls: list[HistoryCall] = []

    def flush() -> None:
        text = "\n\n".join(filter(None, texts))
        last = _last_calls(converted)
        if not text and calls and last is not None and from_same_answer(calls[0].id, last[1][0].id):
            # These calls left with hosted calls, whose results are already there.
            at, others = last
            together = {"tool_calls": [*others, *calls]}
            converted[at] = converted[at].model_copy(update=together)
        elif text or calls:
            program = cells.program(calls)
            fields: Json = {"content": text or None, "tool_calls": [*calls] or None}
            converted.append(Message(role="assistant", **fields, program=program))
        texts.clear()
        calls.clear()

    for n, block in enumerate(content):
        at = f"{place}[{n}]"
        match block.get("type"):
            case "text":
                texts.append(_text(block, "text", at))
            case "compaction" if block.get("content") is not None:
                flush()
                summary = introduced(_text(block, "content", at))
                converted.append(Message(role="user", content=summary))
            case "tool_use":
                calls.append(cells.call(_call(block, at), block))
            case "mcp_tool_use" | "server_tool_use" if block.get("name") != CODE:
                calls += _hosted_calls(block, at)
            case "mcp_tool_result" | "tool_search_tool_result":
                flush()
                converted.append(_hosted_result(block, at))
            case "server_tool_use":
                cells.start(block)
            case "code_execution_tool_result":
                flush()
                converted += cells.end(block)
    flush()
    return converted


def _last_calls(converted: Sequence[Message]) -> tuple[int, list[HistoryCall]] | None:
    """The calls before the results that end ``converted``, and the place of their message."""
    for at in range(len(converted) - 1, -1, -1):
        if converted[at].role != "tool":
            calls = converted[at].tool_calls
            return (at, calls) if calls else None
    return None


def hosted_block_id(call_id: str) -> str:
    """The id of the ``mcp_tool_use`` block of a call."""
    return _HOSTED + call_id.removeprefix(_CALL)


def _search_call(block_id: str) -> str:
    return _CALL + block_id.removeprefix("srvtoolu_")


def hosted_call_id(block_id: str) -> str:
    return _CALL + block_id.removeprefix(_HOSTED)


_CALL, _HOSTED = "call_", "mcptoolu_"


def _call(block: Mapping[str, Any], place: str) -> HistoryCall:
    arguments = block.get("input")
    if not isinstance(arguments, Mapping):
        raise BadRequest(f"{place}.input must be an object.", param=f"{place}.input")
    function = FunctionCall(
        name=_text(block, "name", place), arguments=json_codec.dumps(arguments).decode()
    )
    return HistoryCall(id=_text(block, "id", place), type="function", function=function)


def _hosted_calls(block: Mapping[str, Any], place: str) -> Iterator[HistoryCall]:
    """The call of a block; none for a tool that ran at Anthropic."""
    if block["type"] == "mcp_tool_use":
        call, label = _call(block, place), _text(block, "server_name", place)
        hosted = {"id": hosted_call_id(call.id), "server_label": label}
        yield call.model_copy(update=hosted)
    elif block.get("name") in (REGEX_SEARCH, BM25_SEARCH):
        call = _call(block, place)
        yield call.model_copy(update={"id": _search_call(call.id), "server_label": ""})


def _hosted_result(block: Mapping[str, Any], place: str) -> Message:
    if block["type"] == "tool_search_tool_result":
        key = _search_call(_text(block, "tool_use_id", place))
        found = _references(_mapping(block.get("content")).get("tool_references"))
        return Message(role="tool", tool_call_id=key, content="", found_tools=found)
    key = hosted_call_id(_text(block, "tool_use_id", place))
    failed = block.get("is_error") is True
    content = _joined(_content_parts(block, place))
    return Message(role="tool", tool_call_id=key, content=content, is_error=failed)


def _result(block: Mapping[str, Any], place: str) -> Message:
    parts = _content_parts(block, place)
    if block.get("is_error") and not _starts_with_error(parts):
        parts.insert(0, {"type": "text", "text": "Error:"})
    key = _text(block, "tool_use_id", place)
    is_error = block.get("is_error") is True
    found = _references(block.get("content")) or None  # a client's own search for tools
    result = Message(role="tool", tool_call_id=key, content=_joined(parts), is_error=is_error)
    return result.model_copy(update={"found_tools": found})


def _tool_change(block: Mapping[str, Any]) -> Message:
    name = changed_tool(block)
    if block["type"] == ADDITION:
        return Message(role="system", content="", found_tools=[name])
    return Message(role="system", content=f"{name} can no longer be called.")


def changed_tool(block: Mapping[str, Any]) -> str:
    """The name of the tool, or of the server, that a change of the tools names."""
    tool = _mapping(block.get("tool"))
    fields = {**tool, **_mapping(tool.get("definition"))}
    names = (fields.get(name) for name in ("name", "server_name", "mcp_server_name"))
    return str(next(filter(None, names), ""))


def _references(blocks: Any) -> list[str]:
    """The names of the tools in ``tool_reference`` blocks."""
    listed = blocks if isinstance(blocks, list) else ()
    kind = "tool_reference"
    return [str(one.get("tool_name")) for one in map(_mapping, listed) if one.get("type") == kind]


def _content_parts(block: Mapping[str, Any], place: str) -> list[Json]:
    """The content of a result."""
    content = block.get("content")
    parts: list[Json] = []
    if isinstance(content, str):
        parts = [{"type": "text", "text": content}]
    elif isinstance(content, list):
        for n, inner in enumerate(content):
            parts += _parts(inner, f"{place}.content[{n}]")
    elif content is not None:
        raise BadRequest(
            f"{place}.content must be text or an array of blocks.", param=f"{place}.content"
        )
    return parts


def _starts_with_error(parts: Sequence[Json]) -> bool:
    return bool(parts) and str(parts[0].get("text", "")).lstrip().lower().startswith("error")


# Parts of a message


def _parts(block: Any, place: str) -> list[Json]:
    if not isinstance(block, Mapping):
        raise BadRequest(f"{place} must be an object.", param=place)
    if not isinstance(block.get("type"), str):
        raise BadRequest(f"{place}.type must be the type of the block.", param=f"{place}.type")
    read = _PARTS.get(str(block.get("type")))
    return read(block, place) if read else []


def _plain(block: Mapping[str, Any], place: str) -> list[Json]:
    return [{"type": "text", "text": _text(block, "text", place)}]


def _image(block: Mapping[str, Any], place: str) -> list[Json]:
    source, at = _mapping(block.get("source")), f"{place}.source"
    match source.get("type"):
        case "base64":
            kind = _text(source, "media_type", at)
            url = f"data:{kind};base64,{_text(source, 'data', at)}"
        case "url":
            url = _text(source, "url", at)
        case "file":
            return [{"type": "image_url", "image_url": {"file_id": _text(source, "file_id", at)}}]
        case other:
            raise _unknown(other, at, "base64, url, file")
    return [{"type": "image_url", "image_url": {"url": url}}]


def _document(block: Mapping[str, Any], place: str) -> list[Json]:
    source, at = _mapping(block.get("source")), f"{place}.source"
    title = block.get("title") if isinstance(block.get("title"), str) else ""
    match source.get("type"):
        case "text":
            text = _text(source, "data", at)
            return [{"type": "text", "text": f"{title}\n\n{text}" if title else text}]
        case "content":
            inner = source.get("content")
            if isinstance(inner, str):
                return [{"type": "text", "text": inner}]
            return [
                part
                for n, one in enumerate(inner if isinstance(inner, list) else ())
                for part in _parts(one, f"{at}.content[{n}]")
            ]
        case "base64":
            data = f"data:{_text(source, 'media_type', at)};base64,{_text(source, 'data', at)}"
            return [
                {"type": "file", "file": {"filename": title or "document.pdf", "file_data": data}}
            ]
        case "file":
            return [{"type": "file", "file": {"file_id": _text(source, "file_id", at)}}]
        case other:
            raise _unknown(other, at, "text, content, base64, file")


def _search_result(block: Mapping[str, Any], place: str) -> list[Json]:
    texts = [str(block.get(name) or "") for name in ("title", "source")]
    inner = block.get("content")
    for n, one in enumerate(inner if isinstance(inner, list) else ()):
        texts += [part["text"] for part in _parts(one, f"{place}.content[{n}]") if "text" in part]
    return [{"type": "text", "text": "\n".join(filter(None, texts))}]


def _upload(block: Mapping[str, Any], place: str) -> list[Json]:
    return [{"type": "file", "file": {"file_id": _text(block, "file_id", place)}}]


_PARTS: Mapping[str, Callable[[Mapping[str, Any], str], list[Json]]] = {
    "text": _plain,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "container_upload": _upload,
}


def _unknown(kind: object, place: str, expected: str) -> BadRequest:
    return BadRequest(
        f"{place}.type is {str(kind)[:64]!r}; supported types are {expected}.",
        param=f"{place}.type",
    )


def _text(block: Mapping[str, Any], name: str, place: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"{place}.{name} must be text.", param=f"{place}.{name}")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
