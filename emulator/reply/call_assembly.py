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
from emulator.core.events import new_id
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
    written: list[dict[str, Any]] = field(default_factory=list)
    chunks: list[Chunk | None] = field(default_factory=list)
    """The chunks of the fragments; None for a chunk that cannot pass unchanged."""
    faults: set[str] = field(default_factory=set)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are complete JSON: anything more belongs to another call."""
        return isinstance(_parsed(self.arguments), dict)

    def add(self, piece: Mapping[str, Any], chunk: Chunk | None) -> None:
        self.written.append(dict(piece))
        self.chunks.append(chunk)
        self.id = self.id or piece.get("id") or ""
        if piece.get("index") != self.index:
            self.faults.add("index")
        function = piece.get("function") or {}
        name, arguments = function.get("name"), function.get("arguments")
        if name:
            if self.name:
                self.faults.add("name")
            if name != self.name:
                self.name += name
        if isinstance(arguments, str):
            self.arguments += arguments
        elif arguments is not None:
            self.arguments += json_codec.dumps(arguments).decode()
            self.faults.add("arguments")

    @property
    def is_plain(self) -> bool:
        """Whether clients can use the fragments unchanged: id, type and name once, then arguments."""
        first, *others = self.written
        function = first.get("function")
        return (
            first.get("type") == "function"
            and bool(self.id)
            and function is not None
            and function.get("name") == self.name
            and isinstance(function.get("arguments"), str)
            and all(
                isinstance(more := piece.get("function"), Mapping)
                and set(more) == {"arguments"}
                and isinstance(more["arguments"], str)
                for piece in others
            )
        )


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
        index, key, name = piece.get("index"), piece.get("id"), _name(piece)
        same = [call for call in self._open if call.index == index]
        same = [call for call in same if call.id == key] or same
        if index is not None and not same and (key or name):
            return None
        # Some servers count pieces instead of calls: one without id and name continues the last call.
        call = (same or self._open)[-1]
        if key and call.id and key != call.id:
            return None
        # Without an id, a name after complete arguments starts another call.
        starts = name and not (key and key == call.id) and call.is_complete
        return None if starts else call

    def close(self) -> Iterator[CallFragments]:
        yield from self._open
        self._open = []


def _name(piece: Mapping[str, Any]) -> Any:
    return (piece.get("function") or {}).get("name")


@dataclass(frozen=True)
class ValidCall:
    """A call that can be sent."""

    id: str
    name: str
    arguments: dict[str, Any]
    faults: frozenset[str]
    """What was repaired; empty for an unchanged call."""
    plain: bool
    """Whether its fragments can pass unchanged."""


@dataclass(frozen=True)
class UnusableCall:
    """A call that cannot be repaired, and its problems."""

    written: str
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "\n".join(f"{self.written}: {problem}" for problem in self.problems)


class CallChecker:
    """Checks and repairs calls, and keeps their ids unique."""

    def __init__(self, toolset: Toolset, names: SentNames | None = None) -> None:
        """``names`` are those under which the tools were sent."""
        self._toolset = toolset
        self._names = names or SentNames()
        self._ids: set[str] = set()

    def check(self, call: CallFragments) -> ValidCall | UnusableCall:
        faults = set(call.faults)
        tools = self._toolset.tools
        tool = next((tool for tool in tools if self._names.of(tool.name) == call.name), None)
        if tool is None:
            faults.add("name")
            tool = self._toolset.find(_undoubled(call.name))
        arguments = _parsed(call.arguments)
        if not isinstance(arguments, dict):
            faults.add("arguments")
            arguments = _read_loosely(call.arguments)
        shown = f"{call.name[:80] or 'a call without a name'}({call.arguments[:400]})"
        if tool is None:
            offered = ", ".join(tool.name for tool in self._toolset.tools)[:600]
            message = f"unknown function; expected one of {offered}"
            return UnusableCall(shown, (Problem("", message),))
        if not isinstance(arguments, dict):
            return UnusableCall(shown, (Problem("", "the arguments are not a JSON object"),))
        if not tool.validator.is_valid(arguments):
            faults.add("schema")
            try:
                arguments = self._toolset.bind(tool.name, (), arguments)
            except BindError as error:
                return UnusableCall(shown, tuple(error.problems))
        key = call.id
        if not key or key in self._ids:
            faults.add("id")
            key = new_id("call_")
        self._ids.add(key)
        plain = call.is_plain and not faults and call.name == tool.name
        return ValidCall(key, tool.name, arguments, frozenset(faults), plain)


def _parsed(text: str) -> Any:
    try:
        return json_codec.loads(text)
    except json_codec.NotJSON:
        return None


def _read_loosely(text: str) -> Any:
    """Read arguments that are not a JSON object: empty, encoded twice, or loosely written."""
    if not text.strip() or text.strip() == "null":
        return {}
    value: Any = text
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
    for parts in range(2, 9):
        size, rest = divmod(len(name), parts)
        if size and not rest and name == name[:size] * parts:
            return name[:size]
    return name
