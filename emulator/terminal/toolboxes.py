"""The sources of a conversation's tools: Python files and MCP servers.

A toolbox provides its tools' definitions in OpenAI's format and runs the tools. An error in a tool is a
result, which the model reads. An error in opening a toolbox is a `ToolboxError`, which the user reads.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import TypeAdapter, ValidationError, validate_call
from pydantic.errors import PydanticUserError

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from mcp import Client

Definition = dict[str, Any]
MAX_ERRORS = 1_000
"""The number of characters read from the end of a failing MCP server's error output."""


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
        except PydanticUserError as error:
            raise ToolboxError(f"{path}: {error.message}") from error
        except Exception as error:  # the user's file may raise anything
            raise ToolboxError(f"{path}: {type(error).__name__}: {error}") from error
        if not self._functions:
            raise ToolboxError(f"{path}: defines no public function")

    def definitions(self) -> list[Definition]:
        return self._definitions

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            result = self._functions[name](**arguments)
            return result if isinstance(result, str) else _as_json(result)
        except ValidationError as error:
            return f"error: {error}"
        except Exception as error:  # noqa: BLE001  # the model reads the error and may correct the call
            return f"error: {type(error).__name__}: {error}"


class MCPServer:
    """The tools of one MCP server, opened by `mcp_server`."""

    def __init__(self, client: Client, portal: BlockingPortal) -> None:
        self._client = client
        self._portal = portal
        self._tools: list[Any] = []
        cursor: str | None = None
        while True:
            page = portal.call(lambda: client.list_tools(cursor=cursor))
            self._tools += page.tools
            if not (cursor := page.next_cursor):
                break

    def definitions(self) -> list[Definition]:
        return [_mcp_definition(tool) for tool in self._tools]

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            result = self._portal.call(lambda: self._client.call_tool(name, arguments))
        except Exception as error:  # noqa: BLE001  # a server may fail in any way
            return f"error: {type(error).__name__}: {error}"
        text = "\n".join(map(_part_text, result.content))
        if not text and result.structured_content is not None:
            text = _as_json(result.structured_content)
        return f"error: {text}" if result.is_error else text


@contextlib.contextmanager
def mcp_server(address: str) -> Iterator[MCPServer]:
    """Connect to ``address``: a URL (Streamable HTTP), or a command that speaks MCP over stdio.

    A command's error output is hidden; if the command fails to start, the error shows its last line.
    Raises `ToolboxError`.
    """
    from anyio.from_thread import start_blocking_portal
    from mcp import Client, StdioServerParameters, stdio_client

    with contextlib.ExitStack() as opened:
        errors = opened.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        try:
            if address.startswith(("http://", "https://")):
                server: Any = address
            else:
                command, *arguments = shlex.split(address) or [""]
                parameters = StdioServerParameters(command=command, args=arguments)
                server = stdio_client(parameters, errlog=errors)
            portal = opened.enter_context(start_blocking_portal())
            client = opened.enter_context(portal.wrap_async_context_manager(Client(server)))
            toolbox = MCPServer(client, portal)
        except Exception as error:  # no such command, no MCP, a refusal, ...
            errors.seek(0)
            last = errors.read()[-MAX_ERRORS:].strip().rpartition("\n")[2]
            raise ToolboxError(f"{address}: {last or _innermost(error)}") from error
        yield toolbox


def _module(path: Path) -> Any:
    if not path.is_file():
        raise ToolboxError(f"{path}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
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


def _mcp_definition(tool: Any) -> Definition:
    definition: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description:
        definition["description"] = tool.description
    if tool.annotations is not None:
        hints = tool.annotations.model_dump(exclude_none=True, by_alias=True)
        definition["annotations"] = hints
    return {"type": "function", "function": definition}


def _part_text(part: Any) -> str:
    return part.text if part.type == "text" else f"[{part.type}]"


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
