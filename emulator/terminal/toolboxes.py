"""The sources of a conversation's tools: Python files and MCP servers.

A toolbox provides its tools' definitions in OpenAI's format and runs the tools. An error in a tool is a
result, which the model reads. An error in opening a toolbox is a `ToolboxError`, which the user reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError, validate_call
from pydantic.errors import PydanticUserError

from emulator.hosted.address import ServerAddress, ServerFailed
from emulator.hosted.listing import Listing, function
from emulator.hosted.sessions import Sessions
from emulator.protocol import Message

Definition = dict[str, Any]
_CALL_SECONDS = 3600
"""The deadline of a call: the user can interrupt it."""


class ToolboxError(Exception):
    """A toolbox is unusable; the message names the file or server and the reason."""


class Toolbox(Protocol):
    def definitions(self) -> list[Definition]:
        """The tools, as in OpenAI's ``tools`` array."""
        ...

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        """Return the result of a call, or ``error: ...``. Never raises for an error in a tool."""
        ...


class PythonFile:
    """The public functions that a Python file defines, or those in its list ``TOOLS``.

    Parameters need annotations that pydantic supports; the docstring is the description. The file is the
    user's own code, and runs in this process when it is opened.
    """

    def __init__(self, path: Path) -> None:
        try:
            module = _module(path)
            functions = getattr(module, "TOOLS", None) or [
                each
                for name, each in vars(module).items()
                if inspect.isfunction(each)
                and each.__module__ == module.__name__
                and not name.startswith("_")
            ]
            self._functions: dict[str, Callable[..., Any]] = {
                each.__name__: validate_call(each) for each in functions
            }
            self._definitions = [_definition(each) for each in functions]
        except ToolboxError:
            raise
        except PydanticUserError as error:
            raise ToolboxError(f"{path}: {error.message}") from error
        except (Exception, SystemExit) as error:  # the user's file may raise anything
            raise ToolboxError(f"{path}: {type(error).__name__}: {error}") from error
        if not self._functions:
            raise ToolboxError(f"{path}: defines no public function")

    def definitions(self) -> list[Definition]:
        return self._definitions

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            result = self._functions[name](**arguments)
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            return result if isinstance(result, str) else _as_json(result)
        except ValidationError as error:
            return f"error: {error}"
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the model reads it and may correct the call
            return f"error: {type(error).__name__}: {error}"


class MCPServer:
    """The tools of one MCP server, opened by `mcp_server`."""

    def __init__(self, sessions: Sessions, address: ServerAddress, listing: Listing) -> None:
        self._call = partial(sessions.call, address, "", str(address))
        self._definitions = [function(tool) for tool in listing.tools]
        names = [definition["function"]["name"] for definition in self._definitions]
        self._tools = dict(zip(names, listing.tools, strict=True))

    def definitions(self) -> list[Definition]:
        return self._definitions

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        result = self._call(self._tools[name], arguments).result()
        text = Message(role="tool", content=result.content).text
        return f"error: {text}" if result.is_error else text or "[no text]"


@contextlib.contextmanager
def mcp_server(address: str) -> Iterator[MCPServer]:
    """Connect to ``address``: a URL (Streamable HTTP), or a command that speaks MCP over stdio.

    Raises `ToolboxError`; for a command that fails to start it shows the last line of its error output.
    """
    if address.startswith(("http://", "https://")):
        server = ServerAddress(url=address, timeout=_CALL_SECONDS)
    else:
        command, *arguments = shlex.split(address) or [""]
        server = ServerAddress(command=command, args=(*arguments,), timeout=_CALL_SECONDS)
    with contextlib.closing(Sessions()) as sessions:
        try:
            toolbox = MCPServer(sessions, server, sessions.tools(server, "").result())
        except ServerFailed as error:
            raise ToolboxError(f"{address}: {error}") from error
        yield toolbox


def _module(path: Path) -> Any:
    if not path.is_file():
        raise ToolboxError(f"{path}: there is no such file")
    # Under the name of no other module: a user's module must not replace one of the standard library.
    spec = importlib.util.spec_from_file_location(f"tools in {path}", path)
    if spec is None or spec.loader is None:
        raise ToolboxError(f"{path}: not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic resolves annotations there
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _definition(function: Callable[..., Any]) -> Definition:
    definition = {"name": function.__name__, "parameters": _parameters(function)}
    if documentation := inspect.getdoc(function):
        definition["description"] = documentation
    return {"type": "function", "function": definition}


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    adapter: TypeAdapter[Any] = TypeAdapter(function)  # type: ignore[arg-type]  # pydantic accepts functions
    return adapter.json_schema()


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
