"""The proxy's client as a program for MCP's conformance suite: it lists the tools of the server whose URL is
its last argument, and calls those that the scenario wants, or all. Its person sends forms as they are, and
logs in where a scenario is about logins."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import Future
from contextlib import closing
from typing import Any
from urllib.request import urlopen

from emulator.hosted.address import ServerAddress, address_of
from emulator.hosted.elicitation import Form
from emulator.hosted.listing import ListedTool
from emulator.hosted.login import log_in
from emulator.hosted.sessions import Sessions
from emulator.settings.settings import Settings

Json = dict[str, Any]


def send_unchanged(client: str, form: Form) -> Future[Json | None]:
    inputs = {
        f"field-{n}": field.default
        for n, field in enumerate(form.fields)
        if field.kind != "boolean" or field.default == "True"
    }
    future: Future[Json | None] = Future()
    future.set_result(form.values(inputs))
    return future


def calls(tools: dict[str, ListedTool]) -> list[tuple[str, Json]]:
    """The tools that the scenario wants called, and the arguments."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if "toolCalls" in context:
        return [(call["name"], call["arguments"]) for call in context["toolCalls"]]
    arguments: dict[str, Json] = {"add_numbers": {"a": 5, "b": 3}}
    if (focal := tools.get("json_schema_2020_12_tool")) is not None:
        arguments["json_schema_echo"] = {"schema": focal["input_schema"]}
    return [(name, arguments.get(name, {})) for name in tools]


def visit(page: str) -> None:
    """The browser: the scenarios' pages grant access without a question."""
    threading.Thread(target=lambda: urlopen(page).read(), daemon=True).start()


def reached(url: str) -> ServerAddress:
    if not os.environ["MCP_CONFORMANCE_SCENARIO"].startswith("auth/"):
        return ServerAddress(url=url, timeout=20)
    settings = Settings(mcp={"server": {"url": url}})
    log_in(settings, "server", visit)
    return address_of(settings, "server")


def main() -> None:
    address = reached(sys.argv[-1])
    with closing(Sessions(send_unchanged)) as sessions:
        tools = {tool["name"]: tool for tool in sessions.tools(address, "client").result().tools}
        for name, arguments in calls(tools):
            result = sessions.call(address, "client", "server", tools[name], arguments).result()
            sys.stderr.write(f"{name}: {result}\n")


if __name__ == "__main__":
    main()
