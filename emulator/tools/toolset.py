"""The tools of one request: what the model sees of them, and what a call must be.

`Toolset.parse` takes the ``tools`` array in its wire format and is the only way to make a toolset;
equal arrays return the same toolset. Knows nothing of HTTP, prompts or sandboxes.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from emulator.core import json_codec
from emulator.core.cached_property import cached_property
from emulator.core.spellings import Spellings
from emulator.tools import binding, codegen, constructors, names, stubs
from emulator.tools.problems import BindError, Problem
from emulator.tools.schema import SchemaError, guard, kind_of
from emulator.tools.schema_models import Catalog, SchemaModel
from emulator.tools.search import ToolIndex
from emulator.tools.tool import Tool
from emulator.tools.tool_items import read_item
from emulator.tools.type_trees import annotation

__all__ = ["BindError", "Problem", "SchemaError", "Tool", "Toolset"]

MAX_TOOLS = 512
MAX_CACHED = 128
MAX_SIGNATURES = 400_000

_IDENTIFIER = re.compile(r"\w+")


@dataclass(frozen=True)
class Toolset:
    """The tools of one request."""

    tools: tuple[Tool, ...]
    models: tuple[SchemaModel, ...]
    """Nested objects, as the constructors that the stubs show and the preamble defines."""
    definitions: tuple[Mapping[str, Any], ...] = field(default=(), repr=False, compare=False)
    """The items from which it was parsed; `parse` makes an equal toolset from them, in any process.
    """

    @classmethod
    def parse(cls, tools: Sequence[Mapping[str, Any]], *, skip: Collection[str] = ()) -> Toolset:
        """Parse a ``tools`` array, of Chat Completions or of Responses.

        Items whose type is in `skip` (hosted tools, which other code handles) are ignored. Raises
        SchemaError whose `param` names the place: ``tools[2].function.parameters.type``.
        """
        if not isinstance(tools, list | tuple):
            raise SchemaError(f"tools must be an array, not {kind_of(tools)}", "tools")
        if len(tools) > MAX_TOOLS:
            raise SchemaError(f"more than {MAX_TOOLS} tools", "tools")
        # Clients send the same tools with every request.
        array = _ToolArray(_digest(tools, skip), tools, skip)
        return _parse_cached(array) if array.digest else _parse(array)

    @cached_property
    def stubs(self) -> str:
        """What a model reads: Pydantic models, then function stubs. No imports."""
        parts = [codegen.source(self.models), *map(_stub, self.tools)]
        return stubs.escape_fences("\n\n".join(part.strip("\n") + "\n" for part in parts if part))

    def subset(self, tools: Iterable[Tool]) -> Toolset:
        """The toolset with only these of its tools, in their order, and the models that they use."""
        chosen = set(map(operator.attrgetter("name"), tools))
        selected = tuple(tool for tool in self.tools if tool.name in chosen)
        texts = [tool.return_type.annotation for tool in selected]
        texts += [argument.annotation for tool in selected for argument in tool.arguments]
        used: set[str] = set()
        by_name = {model.name: model for model in self.models}
        while texts:
            named = by_name.keys() & set(_IDENTIFIER.findall(texts.pop())) - used
            used |= named
            texts += [part.annotation for name in named for part in by_name[name].fields]
        return Toolset(selected, tuple(model for model in self.models if model.name in used))

    @cached_property
    def digest(self) -> bytes:
        """Toolsets with equal digests write the calls of a history alike."""
        tools = [[one.name, one.python_name, one.kind, one.parameters] for one in self.tools]
        return hashlib.sha256(json_codec.dumps(tools)).digest()

    @cached_property
    def index(self) -> ToolIndex:
        """Finds tools by words."""
        return ToolIndex(self.tools)

    @cached_property
    def preamble(self) -> str:
        """Python source that defines the models' constructors, which runs before a program; may be ""."""
        return constructors.preamble(self.models)

    @cached_property
    def names(self) -> frozenset[str]:
        """The tools' Python names: a program calls these functions."""
        return frozenset(tool.python_name for tool in self.tools)

    @cached_property
    def wire_names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools)

    @cached_property
    def spellings(self) -> tuple[tuple[str, str], ...]:
        """The tools' wire and Python names, each with the Python name."""
        return tuple(
            (spelling, tool.python_name)
            for tool in self.tools
            for spelling in (tool.name, tool.python_name)
        )

    @cached_property
    def constructors(self) -> frozenset[str]:
        """The models' names: functions too, but plain Python ones."""
        return frozenset(model.name for model in self.models)

    @cached_property
    def _by_spelling(self) -> Spellings[Tool]:
        by_python_name = {tool.python_name: tool for tool in self.tools}
        offered = by_python_name | {tool.name: tool for tool in self.tools}
        return Spellings(offered, self.readers)

    @cached_property
    def readers(self) -> frozenset[str]:
        """The wire and Python names of the tools that declare that they only read."""
        declared = [tool for tool in self.tools if tool.declares_reading]
        return frozenset(name for tool in declared for name in (tool.name, tool.python_name))

    def find(self, written: str) -> Tool | None:
        """Return the tool that a name in data means (`Spellings`)."""
        return self._by_spelling.find_near(written)

    def find_in_code(self, written: str) -> Tool | None:
        """Return the tool that a name in Python means, if the program does not bind it."""
        return self._by_spelling.find_in_code(written)

    def candidates(self, written: str) -> list[str]:
        """The Python names of the tools that an unknown name may mean."""
        found = map(self.find, self._by_spelling.candidates(written))
        return list(dict.fromkeys(tool.python_name for tool in found if tool))

    def bind(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments object of a call: bound, coerced and valid. Raises BindError."""
        return binding.bind(self._tool(name), args, kwargs)

    def check(self, name: str, positional: int, keywords: Sequence[str]) -> tuple[Problem, ...]:
        """Return the problems of a call that do not depend on values: arguments that do not exist,
        are repeated, or are missing. Raises BindError for an unknown tool.
        """
        return binding.check(self._tool(name), positional, keywords)

    def _tool(self, name: str) -> Tool:
        tool = self.find(name)
        if tool is None:
            shown = str(name)[:80].encode("utf-8", "replace").decode()
            near = self.candidates(shown)
            hint = f' (did you mean "{near[0]}"?)' if near else ""
            expected = ", ".join(tool.python_name for tool in self.tools)
            message = f'unknown tool "{shown}"{hint}; expected one of {expected[:600]}'
            raise BindError(f"{shown}(...)", [Problem("", message)])
        return tool


@dataclass(frozen=True)
class _ToolArray:
    """What `Toolset.parse` was called with. Equal digests mean equal arrays."""

    digest: bytes
    tools: Sequence[Mapping[str, Any]] = field(compare=False)
    skip: Collection[str] = field(compare=False)


def _digest(tools: Sequence[Mapping[str, Any]], skip: Collection[str]) -> bytes:
    """A digest of the array; b"" if it cannot be written as JSON, which `guard` then reports."""
    try:
        return hashlib.sha256(json_codec.dumps([tools, sorted(skip)])).digest()
    except (TypeError, ValueError):
        return b""


def _parse(array: _ToolArray) -> Toolset:
    tools, skip = array.tools, array.skip
    for n, definition in enumerate(tools):
        guard(definition, f"tools[{n}]")
    items: dict[str, Tool] = {}
    for n, written in enumerate(tools):
        if not isinstance(written, Mapping):
            raise SchemaError(f"a tool must be an object, not {kind_of(written)}", f"tools[{n}]")
        if written.get("type") in tuple(skip):
            continue
        item = read_item(written, f"tools[{n}]", items)
        items[item.name] = item
    python_names = names.callable_names(items)
    catalog = Catalog(frozenset(python_names.values()))
    parsed = tuple(
        replace(
            item,
            python_name=python_names[name],
            arguments=catalog.parameters(item.parameters, item.parameters.get("$defs", {})),
        )
        for name, item in items.items()
    )
    _guard_length(parsed, catalog.models)
    definitions = tuple(written for written in tools if written.get("type") not in tuple(skip))
    return Toolset(parsed, catalog.models, definitions)


_parse_cached = lru_cache(maxsize=MAX_CACHED)(_parse)


def _guard_length(tools: Sequence[Tool], models: Sequence[SchemaModel]) -> None:
    """Limit the length of the signatures: short definitions may be used many times."""
    parameters = [p for tool in tools for p in tool.arguments]
    parameters += [field for model in models for field in model.fields]
    if sum(len(p.annotation) + len(p.python_name) for p in parameters) > MAX_SIGNATURES:
        raise SchemaError(f"signatures longer than {MAX_SIGNATURES} characters", "tools")


def _stub(tool: Tool) -> str:
    definitions = tool.parameters.get("$defs", {})
    extra = tool.members.extra
    extra_type = None
    if extra is not None and extra is not False:
        tree = Catalog(frozenset()).tree(extra, definitions)
        extra_type = "dict[str, Any]" if "$ref" in json.dumps(tree) else annotation(tree)
    remark = "A program ends at this call.\n\n" if tool.is_direct_only else ""
    return stubs.function(
        tool.python_name,
        f"{remark}{tool.description}".rstrip(),
        tool.arguments,
        extra=extra_type,
        definitions=definitions,
        returns=tool.return_type,
        examples=tool.examples,
    )
