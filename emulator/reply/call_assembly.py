"""Join the fragments of an upstream's own tool calls, and check or repair each call.

Known faults and their reports:

* all calls of a reply have index 0, or none has one: ollama/ollama#15457, ollama/ollama#7881,
  ai-dynamo/dynamo#4723, LibreChat-AI/agents#260;
* the fragments of parallel calls alternate, or each fragment has an index of its own;
* the name is repeated with each fragment, or split: NousResearch/hermes-agent#8259,
  continuedev/continue#5849;
* arguments are an object instead of a text, or encoded twice: huggingface/smolagents#1003,
  tailcallhq/forgecode#2764;
* no arguments at all for a function without any: vllm-project/vllm#11392;
* arguments that are not JSON: ggml-org/llama.cpp#22072, mistralai/mistral-vibe#615.

Sans-IO; `emulator.upstream.chunk` has checked the types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator.core import json_codec
from emulator.core.events import ToolCall, new_id
from emulator.reading import loose_json
from emulator.reading.statements import Unreadable
from emulator.reply.sent_names import SentNames
from emulator.tools.problems import BindError, Problem
from emulator.tools.toolset import Toolset
from emulator.upstream.interface import Chunk


@dataclass
class CallFragments:
    """One call as it arrives."""

    index: Any
    id: str = ""
    name: str = ""
    arguments: str = ""
    chunks: list[Chunk] = field(default_factory=list)
    faults: set[str] = field(default_factory=set)
    is_plain: bool = True
    """Whether clients can use the chunks unchanged: id, type and name once, then arguments."""

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are complete JSON: anything more belongs to another call."""
        return isinstance(_parsed(self.arguments), dict)

    def add(self, piece: Mapping[str, Any], chunk: Chunk | None) -> None:
        function = piece.get("function") or {}
        name, arguments = function.get("name"), function.get("arguments")
        is_first = not self.chunks
        has_shape = bool(piece.get("id") and name) if is_first else {*function} == {"arguments"}
        is_typed = not is_first or piece.get("type") == "function"
        self.is_plain &= has_shape and is_typed and chunk is not None and isinstance(arguments, str)
        self.chunks.append(chunk or {})
        self.id = self.id or piece.get("id") or ""
        if piece.get("index") != self.index:
            self.faults.add("index")
        if name and self.name:
            self.faults.add("name")
        if name and name != self.name:
            self.name += name
        if isinstance(arguments, str):
            self.arguments += arguments
        elif arguments is not None:
            self.arguments += json_codec.dumps(arguments).decode()
            self.faults.add("arguments")


class CallAssembler:
    """Joins the fragments of one reply's calls; `feed` yields each call when it is complete.

    The fragments of parallel calls may alternate: a call that another follows stays open until its arguments
    are complete, and calls leave in the order in which they began.
    """

    def __init__(self) -> None:
        self._open: list[CallFragments] = []
        self.chars = 0

    def feed(self, piece: Mapping[str, Any], chunk: Chunk | None = None) -> Iterator[CallFragments]:
        """``piece`` is an item of a delta's ``tool_calls``, ``chunk`` its chunk if that has nothing else."""
        self.chars += len(str(piece))
        call = self._find(piece)
        if call is None:
            while self._open and self._open[0].is_complete:
                yield self._open.pop(0)
            call = CallFragments(piece.get("index"))
            self._open.append(call)
        call.add(piece, chunk)

    def _find(self, piece: Mapping[str, Any]) -> CallFragments | None:
        """The open call that ``piece`` continues."""
        if not self._open:
            return None
        index, key, name = (
            piece.get("index"),
            piece.get("id"),
            (piece.get("function") or {}).get("name"),
        )
        same = [call for call in self._open if call.index == index]
        same = [call for call in same if call.id == key] or same
        if index is not None and not same and (key or name):
            return None
        # Some servers count pieces instead of calls: one without id and name continues the last call.
        call = (same or self._open)[-1]
        is_other = key and call.id and key != call.id
        # Without an id, a name after complete arguments starts another call.
        starts = name and not (key and key == call.id) and call.is_complete
        return None if is_other or starts else call

    def close(self) -> Iterator[CallFragments]:
        yield from self._open
        self._open = []


class UnusableCall(Exception):
    """A call that cannot be repaired: ``written``, and its problems."""

    def __init__(self, call: CallFragments, *problems: Problem | str) -> None:
        arguments = f"({call.arguments[:400]})"
        self.written = (call.name[:80] or "a call without a name") + arguments
        shown = (p if isinstance(p, Problem) else Problem("", p) for p in problems)
        super().__init__("\n".join(f"{self.written}: {problem}" for problem in shown))


class CallChecker:
    """Checks and repairs calls, and keeps their ids unique."""

    def __init__(self, toolset: Toolset, names: SentNames | None = None) -> None:
        """``names`` are those under which the tools were sent."""
        self._toolset = toolset
        self._names = names or SentNames()
        self._ids: set[str] = set()

    def check(self, call: CallFragments) -> tuple[ToolCall, set[str]]:
        """The call to send, and what was repaired: nothing if its chunks can pass. Raises `UnusableCall`."""
        faults = set(call.faults)
        tools = self._toolset.tools
        tool = next((tool for tool in tools if self._names.of(tool.name) == call.name), None)
        if tool is None:
            faults.add("name")
            tool = self._toolset.find(_undoubled(call.name))
        if tool is None:
            offered = ", ".join(tool.name for tool in tools)[:600]
            raise UnusableCall(call, f"unknown function; expected one of {offered}")
        arguments = _parsed(call.arguments)
        if not isinstance(arguments, dict):
            faults.add("arguments")
            arguments = _read_loosely(call.arguments)
        if not isinstance(arguments, dict):
            raise UnusableCall(call, "the arguments are not a JSON object")
        if not tool.validator.is_valid(arguments):
            faults.add("schema")
            try:
                arguments = self._toolset.bind(tool.name, (), arguments)
            except BindError as error:
                raise UnusableCall(call, *error.problems) from error
        if call.name != tool.name:
            call.is_plain = False  # sent under another name
        key = call.id
        if not key or key in self._ids:
            faults.add("id")
            key = new_id("call_")
        self._ids.add(key)
        return ToolCall(key, tool.name, arguments), faults


def _parsed(text: str) -> Any:
    try:
        return json_codec.loads(text)
    except json_codec.NotJSON:
        return None


def _read_loosely(text: str) -> Any:
    """Read arguments that are not a JSON object: empty, encoded twice, or loosely written."""
    value: Any = {} if text.strip() in ("", "null") else text
    for _ in range(3):
        if not isinstance(value, str):
            break
        inner = _parsed(value)
        if inner is None:
            try:
                values = [found.value for found in loose_json.values(value)]
            except Unreadable:
                return None
            # Some servers send an empty object before the real one.
            objects = [item for item in values if isinstance(item, dict) and item]
            return objects[0] if len(objects) == 1 else None
        value = inner
    return value


def _undoubled(name: str) -> str:
    """The name that ``name`` repeats, or ``name``."""
    sizes = (len(name) // parts for parts in range(2, 9))
    return next((name[:n] for n in sizes if n and name == name[:n] * (len(name) // n)), name)
