"""Where the tools of a conversation come from: a Python file, MCP servers.

A toolbox gives OpenAI's definitions of its tools and runs them. What goes wrong in a tool is a result like
any other, for the model to read; what goes wrong in opening a toolbox is a `ToolboxError` for the user.
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
"""Characters at the end of what a failing MCP server wrote that are looked at."""


class ToolboxError(Exception):
    """A toolbox that cannot be used; the message names the file or server and says why."""


class Toolbox(Protocol):
    def definitions(self) -> list[Definition]:
        """Its tools as OpenAI's ``tools`` array has them."""
        ...

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        """The result of a call, or ``error: ...``; never raises for what a tool does."""
        ...


class PythonFile:
    """The public functions that a Python file defines, or those that its ``TOOLS`` lists.

    Parameters need annotations that pydantic knows; the docstring is the description. The file is the user's
    own code and runs in this process when it is opened.
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
        except Exception as error:  # whatever the user's file raises
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
        except Exception as error:  # noqa: BLE001  # the model may do better when it reads this
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
        said = "\n".join(_said(part) for part in result.content)
        if not said and result.structured_content is not None:
            said = _as_json(result.structured_content)
        return f"error: {said}" if result.is_error else said


@contextlib.contextmanager
def mcp_server(address: str) -> Iterator[MCPServer]:
    """Connect to ``address``: a URL (Streamable HTTP), or a command that speaks MCP over its pipes.

    What a command writes to its standard error is not shown, but for the end of it where it fails at once.
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
                launched = StdioServerParameters(command=command, args=arguments)
                server = stdio_client(launched, errlog=errors)
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
        raise ToolboxError(f"{path}: is no Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks annotations up there
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _definition(function: Callable[..., Any]) -> Definition:
    described = {"name": function.__name__, "parameters": _parameters(function)}
    if documentation := inspect.getdoc(function):
        described["description"] = documentation
    return {"type": "function", "function": described}


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    adapter: TypeAdapter[Any] = TypeAdapter(function)  # type: ignore[arg-type]  # pydantic takes functions
    return adapter.json_schema()


def _mcp_definition(tool: Any) -> Definition:
    described: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description:
        described["description"] = tool.description
    if tool.annotations is not None:
        hints = tool.annotations.model_dump(exclude_none=True, by_alias=True)
        described["annotations"] = hints
    return {"type": "function", "function": described}


def _said(part: Any) -> str:
    return part.text if part.type == "text" else f"[{part.type}]"


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
