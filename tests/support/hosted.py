"""Hosted tools that run in this process: a resolver over Python functions, as a server's tools would be."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from emulator.core.protocol import ChatCompletionRequest
from emulator.hosted.hosted_tool import HostedResult, HostedTool, HostedTools, ServerListing

SERVER: dict[str, Any] = {"type": "mcp", "server_label": "shop"}


@dataclass
class HostedFunctions:
    """Offers ``functions`` to each request that names the server ``shop``. Each call runs in its own thread.

    ``made`` are the calls that have begun, ``f(a=1)``; ``is_cancelled`` is set when one was cancelled.
    """

    functions: Mapping[str, Callable[..., Any]]
    definitions: list[dict[str, Any]]
    needs_approval: frozenset[str] = frozenset()
    always: bool = False
    """Offered in every request, as the operator's servers may be."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """The server of a function, if it is not ``shop``."""
    made: list[str] = field(default_factory=list)
    is_cancelled: threading.Event = field(default_factory=threading.Event)

    def resolve(self, chat: ChatCompletionRequest, client: str) -> HostedTools:
        if not self.always and not any(tool.get("type") == "mcp" for tool in chat.tools or ()):
            return HostedTools()
        tools = tuple(self._tool(definition) for definition in self.definitions)
        if "shop" in (chat.listed_servers or {}):
            return HostedTools(tools)
        functions = [definition["function"] for definition in self.definitions]
        listed = ({"name": f["name"], "input_schema": f["parameters"]} for f in functions)
        return HostedTools(tools, (ServerListing("shop", tuple(listed)),))

    def _tool(self, definition: dict[str, Any]) -> HostedTool:
        name = definition["function"]["name"]
        return HostedTool(
            definition,
            "mcp",
            self.servers.get(name, "shop"),
            name,
            lambda arguments: self._start(name, arguments),
            needs_approval=name in self.needs_approval,
        )

    def _start(self, name: str, arguments: dict[str, Any]) -> Future[HostedResult]:
        shown = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        future: Future[HostedResult] = Future()

        def run() -> None:
            try:
                result = self.functions[name](**arguments)
                if not isinstance(result, HostedResult):
                    result = HostedResult(result if isinstance(result, str) else json.dumps(result))
            except Exception as error:  # noqa: BLE001 - a tool's failure is a result
                result = HostedResult(f"{type(error).__name__}: {error}", is_error=True)
            if not future.cancelled():
                future.set_result(result)

        self.made.append(shown)
        future.add_done_callback(lambda done: done.cancelled() and self.is_cancelled.set())
        threading.Thread(target=run, daemon=True).start()
        return future
