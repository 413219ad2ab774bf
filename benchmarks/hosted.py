"""What hosted calls save and cost: a chain of MCP calls in one program, or one call a turn -> results.md.

    python -m benchmarks.hosted [--instant]

The model is the scripted one of `benchmarks.turns`: it makes no mistakes, starts a reply after 0.2 s and
writes 200 tokens per second. The server is a real one, a process that the proxy starts. The time that the
proxy adds to a call is that of a program with 20 more calls, without the time of the same calls by the
proxy's MCP client alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import openai
from mcp.server import MCPServer

from app import create_app
from benchmarks.report import RESULTS, write_section
from benchmarks.turns import LAST_WORDS, Cost, Model, paced, prompt, tokens, written
from emulator.core import logs
from emulator.core.protocol import ChatCompletionRequest
from emulator.hosted.mcp_servers import MCPServers
from emulator.settings.settings import Settings
from tests.support.scripted import Body, Reply, ScriptedUpstream
from tests.support.serving import serve
from tests.support.tools import function, strings

ROOT = Path(__file__).parent.parent
ROUNDS = 30
"""Measurements of the time of a call; the fastest counts."""
SERVER = {"type": "mcp", "server_label": "web"}
REQUEST = "Follow the links from page-0 and tell me where they end."


def next_link(link: str) -> dict[str, str]:
    """The link on a page."""
    return {"next": f"page-{int(link.removeprefix('page-')) + 1}", "title": f"All about {link}"}


def write_program(steps: int) -> Model:
    loop = f"for _ in range({steps}):\n    link = next_link(link)['next']\nprint(link)"
    replies = iter([f"```python\nlink = 'page-0'\n{loop}\n```", LAST_WORDS])
    return lambda _: Reply(next(replies))


def write_calls(steps: int) -> Model:
    calls = (f"```python\nnext_link('page-{n}')\n```" for n in range(steps))
    replies = iter([*calls, LAST_WORDS])
    return lambda _: Reply(next(replies))


def call_json(steps: int) -> Model:
    calls = (
        Reply(
            tool_calls=[{"name": "next_link", "arguments": {"link": f"page-{n}"}, "id": f"c{n}"}],
            finish_reason="tool_calls",
        )
        for n in range(steps)
    )
    replies = iter([*calls, Reply(LAST_WORDS)])
    return lambda _: next(replies)


WAYS = {
    "one program, run by the proxy": (write_program, True),
    "one call a turn, run by the proxy": (write_calls, True),
    "one JSON call a turn, run by the client": (call_json, False),
}
"""How the model answers, and whether it is asked through the proxy."""


def play(client: openai.OpenAI, upstream: ScriptedUpstream, model: Model, tools: list[Any]) -> Cost:
    """Do a task once, as an agent's loop with one tool."""
    replies: list[Reply] = []

    def answer(body: Body) -> Reply:
        replies.append(model(body))
        return replies[-1]

    upstream.default = answer
    before, asked = len(upstream.requests), 0
    messages: list[Any] = [{"role": "user", "content": REQUEST}]
    began = time.perf_counter()
    while True:
        asked += 1
        completion = client.chat.completions.create(model="m", messages=messages, tools=tools)
        message = completion.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            content = str(next_link("page-0"))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    seconds = time.perf_counter() - began
    assert message.content == LAST_WORDS, message.content
    requests = upstream.requests[before:]
    return Cost(
        len(requests),
        asked,
        sum(tokens(prompt(body)) for body in requests),
        sum(tokens([written(reply)]) for reply in replies),
        seconds,
    )


@contextmanager
def settings(upstream: ScriptedUpstream) -> Iterator[Settings]:
    command = {"command": sys.executable, "args": ["-m", "benchmarks.hosted", "--serve"]}
    with tempfile.TemporaryDirectory() as folder:
        yield Settings(
            base_url=upstream.base_url,
            database=f"{folder}/programs.sqlite",
            mcp={"web": command | {"env": {"PYTHONPATH": str(ROOT)}}},
        )


@contextmanager
def connected(upstream: ScriptedUpstream, made: Settings) -> Iterator[openai.OpenAI]:
    app = create_app(made)
    with serve(app) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as sdk:
        upstream.default = "Hello."
        sdk.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}], tools=[SERVER]
        )
        yield sdk
    app.extensions["emulator"].close()


def measure(steps: int, *, instant: bool) -> Iterator[tuple[str, Cost]]:
    own = function("next_link", strings("link"), next_link.__doc__ or "")
    for way, (write, through_proxy) in WAYS.items():
        model = write(steps) if instant else partial(paced, write(steps))
        with ScriptedUpstream() as upstream:
            if not through_proxy:
                with openai.OpenAI(base_url=upstream.base_url, api_key="k") as direct:
                    yield way, play(direct, upstream, model, [own])
                continue
            with settings(upstream) as made, connected(upstream, made) as sdk:
                yield way, play(sdk, upstream, model, [SERVER])


def added_milliseconds() -> tuple[float, float]:
    """The time that the MCP client takes for a call, and what a call in a program takes on top of that."""
    with ScriptedUpstream() as upstream, settings(upstream) as made:
        servers = MCPServers(made)
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [SERVER]}
        [tool] = servers.resolve(ChatCompletionRequest.model_validate(body), "").tools

        def call() -> float:
            began = time.perf_counter()
            tool.start({"link": "page-1"}).result()
            return time.perf_counter() - began

        with closing(servers), connected(upstream, made) as sdk:

            def program(steps: int) -> float:
                return play(sdk, upstream, write_program(steps), [SERVER]).seconds

            # The fastest runs are those that the rest of the machine disturbs least.
            alone = min(statistics.mean(call() for _ in range(20)) for _ in range(ROUNDS))
            short, long = (min(program(steps) for _ in range(ROUNDS)) for steps in (1, 21))
    return 1000 * alone, 1000 * ((long - short) / 20 - alone)


def report(*, instant: bool) -> str:
    lines = [
        "| task | way | model turns | client requests | prompt tokens | time, s |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for steps in (5, 20):
        for way, cost in measure(steps, instant=instant):
            lines.append(
                f"| {steps} steps | {way} | {cost.turns} | {cost.requests} | {cost.prompt_tokens:,}"
                f" | {cost.seconds:.2f} |"
            )
    alone, added = added_milliseconds()
    lines += [
        "",
        f"A call takes {alone:.1f} ms by the MCP SDK alone, and {added:.1f} ms more in a program of 20.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--instant", action="store_true", help="a model that takes no time; no report"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        server = MCPServer("web")
        server.tool()(next_link)
        server.run()
        return
    logs.configure("warning")
    table = report(instant=options.instant)
    print(table)
    if not options.instant:
        write_section(RESULTS, "hosted", table)


if __name__ == "__main__":
    main()
