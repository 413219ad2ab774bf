"""Model turns that programs save: tasks of several steps, in three modes -> docs/programs.md.

    python -m benchmarks.turns [--only bisection] [--instant]

One agent loop on the official SDK plays each task three times: through the proxy with programs on, through
the proxy with programs off, and directly against a model with JSON tool calls. Tools are local functions;
all three runs must do the same things with them. The model is a scripted HTTP server that makes no
mistakes: it writes the task's program if results can be used, otherwise it makes all possible calls of each
step at once. So this measures the cost of the protocol, not the quality of a model. A reply starts after
0.2 s and has 200 tokens per second; a token is four characters of what the model reads or writes, including
the tools as JSON for JSON calls.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby
from pathlib import Path
from typing import Any

import openai
from pydantic import TypeAdapter

from benchmarks.report import write_section
from benchmarks.turns_tasks import TASKS, Call, Json, Task, World
from tests.support.processes import proxy
from tests.support.scripted import Body, Reply, ScriptedUpstream

DOCS = Path(__file__).parent.parent / "docs"
CHARS_PER_TOKEN = 4
FIRST_TOKEN_SECONDS = 0.2
TOKENS_PER_SECOND = 200
LAST_WORDS = "Done."
LONG_CHAIN = 4

Model = Callable[[Body], Reply]


@dataclass(frozen=True)
class Cost:
    """What it took to do one task in one mode."""

    turns: int
    requests: int
    """The client's, to the proxy or to the model."""
    prompt_tokens: int
    reply_tokens: int
    seconds: float


# The model


def write_programs(task: Task) -> Model:
    """Programs on: the task's programs, one a turn, then the last words."""
    replies = iter([*(f"```python\n{program}```" for program in task.programs), LAST_WORDS])
    return lambda _: Reply(next(replies))


def write_calls(task: Task) -> Model:
    """Programs off: a block of calls that need no results, by the results in the transcript."""

    def answer(body: Body) -> Reply:
        # The proxy tells results as a fence labelled with the call.
        seen = [
            [json.loads(line) for line in re.findall(r"```\w+\(.*\)\n(.*)", message["content"])]
            for message in body["messages"]
            if message["role"] == "user"
        ]
        calls = next_calls(task, [results for results in seen if results])
        if calls is None:
            return Reply(LAST_WORDS)
        lines = [
            f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})\n"
            for name, arguments in calls
        ]
        return Reply(f"```python\n{''.join(lines)}```")

    return answer


def call_json(task: Task) -> Model:
    """Classic JSON calls, by the tool messages."""

    def answer(body: Body) -> Reply:
        turns = groupby(body["messages"], key=lambda message: message["role"] == "tool")
        seen = [
            [json.loads(each["content"]) for each in turn] for is_tool, turn in turns if is_tool
        ]
        calls = next_calls(task, seen)
        if calls is None:
            return Reply(LAST_WORDS)
        made = [
            {"name": name, "arguments": arguments, "id": f"call_{len(seen)}_{place}"}
            for place, (name, arguments) in enumerate(calls)
        ]
        return Reply(tool_calls=made, finish_reason="tool_calls")

    return answer


def next_calls(task: Task, seen: Sequence[Sequence[Json]]) -> list[Call] | None:
    """Play the task's steps with the results of all turns so far; None when it is done."""
    steps = task.steps()
    try:
        calls = next(steps)
        for results in seen:
            calls = steps.send(list(results))
    except StopIteration:
        return None
    return calls


MODES: Mapping[str, tuple[Callable[[Task], Model], tuple[str, ...] | None]] = {
    "programs on": (write_programs, ("--programs", "on")),
    "programs off": (write_calls, ("--programs", "off")),
    "JSON calls": (call_json, None),
}
"""How the model answers, and the options of the proxy before it; None where the client asks the model."""


def paced(model: Model, body: Body) -> Reply:
    """The reply, when a real model would have written it."""
    reply = model(body)
    seconds = FIRST_TOKEN_SECONDS + tokens([written(reply)]) / TOKENS_PER_SECOND
    return Reply(
        reply.text,
        tool_calls=reply.tool_calls,
        finish_reason=reply.finish_reason,
        first_delay=seconds,
    )


# The client


def tools_of(world: World) -> list[Any]:
    """The `tools` array that offers a world's public methods."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": inspect.getdoc(method),
                "parameters": TypeAdapter(method).json_schema(),
            },
        }
        for name, method in inspect.getmembers(world, inspect.ismethod)
        if not name.startswith("_")
    ]


def agent(client: openai.OpenAI, request: str, world: World) -> tuple[str | None, int]:
    """The tool loop of OpenAI's documentation; returns the last answer and how many requests it took."""
    messages: list[Any] = [{"role": "user", "content": request}]
    tools = tools_of(world)
    for requests in count(1):
        completion = client.chat.completions.create(model="m", messages=messages, tools=tools)
        message = completion.choices[0].message
        if not message.tool_calls:
            return message.content, requests
        messages.append(message)
        for call in message.tool_calls:
            assert call.type == "function"
            result = getattr(world, call.function.name)(**json.loads(call.function.arguments))
            content = json.dumps(result)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    raise AssertionError("count has no end")


# Measuring


def play(task: Task, client: openai.OpenAI, upstream: ScriptedUpstream, model: Model) -> Cost:
    """Do a task once. Raises AssertionError if it was not done rightly."""
    replies: list[Reply] = []

    def answer(body: Body) -> Reply:
        replies.append(model(body))
        return replies[-1]

    upstream.default = answer
    before = len(upstream.requests)
    world = task.world()
    began = time.perf_counter()
    answered, asked = agent(client, task.request, world)
    seconds = time.perf_counter() - began
    assert answered == LAST_WORDS, f"{task.name}: {answered}"
    assert tuple(world.effects) == task.effects, f"{task.name}: {world.effects}"
    requests = upstream.requests[before:]
    return Cost(
        len(requests),
        asked,
        sum(tokens(prompt(body)) for body in requests),
        sum(tokens([written(reply)]) for reply in replies),
        seconds,
    )


def prompt(body: Body) -> Iterator[str]:
    """All that a request gives the model to read; a model with JSON calls reads its tools as JSON."""
    for message in body["messages"]:
        yield message.get("content") or ""
        for call in message.get("tool_calls") or ():
            yield call["function"]["name"] + call["function"]["arguments"]
    if "tools" in body:
        yield json.dumps(body["tools"], separators=(",", ":"))


def written(reply: Reply) -> str:
    """All that the model has to write for a reply."""
    calls = (call["function"] for call in reply.calls())
    return reply.text + "".join(call["name"] + call["arguments"] for call in calls)


def tokens(texts: Iterable[str]) -> int:
    return sum(map(len, texts)) // CHARS_PER_TOKEN


@contextmanager
def connected(upstream: ScriptedUpstream, options: Sequence[str] | None) -> Iterator[openai.OpenAI]:
    """The SDK, pointed at a proxy process in front of the model, or at the model."""
    if options is None:
        with openai.OpenAI(base_url=upstream.base_url, api_key="any", max_retries=0) as client:
            yield client
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        store = ("--database", str(place / "programs.sqlite"))
        started = proxy(
            upstream.base_url, place / "log", *options, *store, "--log-level", "warning"
        )
        with (
            started as (_, url),
            openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
        ):
            client.models.list()  # the first request connects
            yield client


def measure(tasks: Sequence[Task], *, instant: bool) -> dict[str, list[Cost]]:
    """The tasks' costs in each mode."""
    costs: dict[str, list[Cost]] = {}
    for mode, (answer, options) in MODES.items():
        with ScriptedUpstream() as upstream, connected(upstream, options) as client:
            costs[mode] = []
            for task in tasks:
                model = answer(task) if instant else partial(paced, answer(task))
                costs[mode].append(play(task, client, upstream, model))
                print(f"{mode}: {task.name}: {costs[mode][-1]}", file=sys.stderr)
            assert upstream.failures == []
    return costs


# The report


def report(tasks: Sequence[Task], costs: Mapping[str, Sequence[Cost]]) -> str:
    """The Markdown table and its summary. Tasks with long chains share a row: their rows are alike."""
    heads = " / ".join(MODES)
    lines = [
        f"Each cell: {heads}.",
        "",
        "| task | chain | model turns | prompt tokens |",
        "|---|--:|--:|--:|",
    ]
    rows = list(zip(tasks, zip(*costs.values(), strict=True), strict=True))
    long = [row for task, row in rows if task.chain >= LONG_CHAIN]
    chains = [_sum(each) for each in zip(*long, strict=True)]
    if long:
        lines.append(f"| {len(long)} tasks | {LONG_CHAIN} or more | {_cells(chains)} |")
    for task, row in rows:
        if task.chain < LONG_CHAIN:
            lines.append(f"| {task.name} | {task.chain} | {_cells(row)} |")
    lines.append(f"| **all** | | {_cells([_sum(each) for each in costs.values()])} |")
    if long:
        lines += ["", *_summary(len(long), chains, [_sum(each) for each in costs.values()])]
    return "\n".join(lines)


def _summary(long: int, chains: Sequence[Cost], all_: Sequence[Cost]) -> Iterator[str]:
    on, off, classic = chains
    times = (
        f"{off.turns / on.turns:.1f} times as many without programs and "
        f"{classic.turns / on.turns:.1f} times as many with JSON calls"
    )
    prompts = " and ".join(
        f"{each.prompt_tokens / on.prompt_tokens:.1f}" for each in (off, classic)
    )
    requests = " / ".join(str(each.requests) for each in all_)
    replies = " / ".join(f"{each.reply_tokens:,}" for each in all_)
    seconds = " / ".join(f"{each.seconds:.2f}" for each in all_)
    yield (
        f"The {long} tasks with a chain of {LONG_CHAIN} or more dependent calls take {on.turns} model "
        f"turns with programs, {times}, and {prompts} times the prompt tokens. "
        f"All tasks take {requests} client requests, {replies} tokens written by the model, and "
        f"{seconds} seconds."
    )


def _cells(costs: Sequence[Cost]) -> str:
    cells = (
        [str(cost.turns) for cost in costs],
        [f"{cost.prompt_tokens:,}" for cost in costs],
    )
    return " | ".join(" / ".join(cell) for cell in cells)


def _sum(costs: Sequence[Cost]) -> Cost:
    return Cost(
        sum(cost.turns for cost in costs),
        sum(cost.requests for cost in costs),
        sum(cost.prompt_tokens for cost in costs),
        sum(cost.reply_tokens for cost in costs),
        sum(cost.seconds for cost in costs),
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="only tasks whose name holds this; no report")
    parser.add_argument(
        "--instant",
        action="store_true",
        help="a model that takes no time, which shows what the proxy takes; no report",
    )
    options = parser.parse_args(argv)
    tasks = [task for task in TASKS if options.only in task.name]
    table = report(tasks, measure(tasks, instant=options.instant))
    print(table)
    if not (options.only or options.instant):
        write_section(DOCS / "programs.md", "turns", table)


if __name__ == "__main__":
    main()
