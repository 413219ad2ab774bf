"""What a local server must read anew for each reply of a long conversation -> results.md.

    python -m benchmarks.prefix [--turns 20]

An agent talks for 20 user turns: programs with dependent calls, calls beside words, a reply that must be
repaired, plain answers. What the model writes is given, the same for all rows; the embedded server
(llama.cpp) reads each prompt and writes one token, so tokens and seconds are those of reading. Its cache
holds the last prompt: what is equal at the start is not read again. The rows:

* through us: the proxy's own prompts;
* tools anew: JSON calls, with the tools before the last user message, where chat templates such as Mistral's
  and many frameworks write them;
* tools first: JSON calls, with the tools in the system message, which is the best that a template can do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import openai

from benchmarks.report import RESULTS, write_section
from emulator.upstream import local_model
from tests.support.agents import converse
from tests.support.processes import proxy
from tests.support.scripted import Body, Reply, ScriptedUpstream
from tests.support.tools import function, strings

Json = dict[str, Any]
TOOLS = [
    function("read_file", strings("path", optional=("offset", "limit"))),
    function("write_file", strings("path", "content")),
    function("edit_file", strings("path", "old", "new")),
    function("list_files", strings("folder")),
    function("search_text", strings("pattern", optional=("folder", "glob"))),
    function("run_command", strings("command", optional=("cwd", "timeout"))),
    function("fetch_page", strings("url", optional=("max_chars",))),
    function("list_tickets", strings("project", optional=("state", "label"))),
    function("get_ticket", strings("id")),
    function("comment_ticket", strings("id", "text")),
    function("get_build", strings("commit")),
    function("send_message", strings("to", "text")),
]
RULES = "You are a coding agent. Work in small steps, and say briefly what you did."


@dataclass(frozen=True)
class Turn:
    """One user turn: what the model writes through us, and the steps of the same work in JSON calls."""

    replies: Sequence[str]
    steps: Sequence[Sequence[tuple[str, Json]]]


def _block(code: str) -> str:
    return f"```tool_code\n{code}\n```"


def turns(n: int) -> Turn:
    """The turns repeat with other files and tickets."""
    path, ticket = f"src/module_{n}.py", f"T-{100 + n}"
    read, ask = ("read_file", {"path": path}), ("get_ticket", {"id": ticket})
    match n % 4:
        case 0:
            code = f"text = read_file(path={path!r})\nticket = get_ticket(id={ticket!r})\n"
            code += "found = search_text(pattern=ticket['word'])\nprint(len(text), found)"
            return Turn([_block(code)], [[read, ask], [("search_text", {"pattern": "total"})]])
        case 1:
            calls = f"[get_build(commit='c{n}'), list_files(folder='src')]"
            both = [("get_build", {"commit": f"c{n}"}), ("list_files", {"folder": "src"})]
            return Turn([f"I look at both.\n\n{_block(calls)}"], [both])
        case 2:
            return Turn(
                [_block(f"read_fil(path={path!r})"), _block(f"read_file(path={path!r})")], [[read]]
            )
        case _:
            return Turn([], [])


def result(name: str, **arguments: Any) -> Any:
    """About 60 tokens of a tool's result."""
    lines = [f"{name} line {n}: total = total + values[{n}]" for n in range(4)]
    if name == "get_ticket":
        return {"id": arguments["id"], "word": "total", "text": lines}
    return "\n".join(lines)


@dataclass(frozen=True)
class Reading:
    """What the server did with one prompt."""

    tokens: int
    reused: int
    seconds: float


class Reader:
    """The embedded server as a reader of prompts."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url)
        self.readings: list[Reading] = []

    def read(self, messages: Sequence[Json]) -> None:
        body = {"messages": messages, "max_tokens": 1, "cache_prompt": True, "temperature": 0}
        connection = HTTPConnection(self._place.netloc, timeout=600)
        began = time.perf_counter()
        connection.request(
            "POST",
            f"{self._place.path}/chat/completions",
            json.dumps(body),
            {"content-type": "application/json"},
        )
        answer = json.loads(connection.getresponse().read())
        seconds = time.perf_counter() - began
        connection.close()
        timings = answer["timings"]
        reused = int(timings["cache_n"])
        self.readings.append(Reading(reused + int(timings["prompt_n"]), reused, seconds))


def through_us(reader: Reader, count: int) -> None:
    def model(body: Body) -> Reply:
        reader.read(body["messages"])
        return Reply(next(replies))

    replies = (text for n in range(count) for text in [*turns(n).replies, f"Done with step {n}."])
    local = {tool["function"]["name"]: _local(tool["function"]["name"]) for tool in TOOLS}
    with ScriptedUpstream() as upstream:
        upstream.default = model
        with (
            TemporaryDirectory() as folder,
            proxy(
                upstream.base_url, Path(folder, "log"), "--database", f"{folder}/store.sqlite"
            ) as (
                _,
                url,
            ),
        ):
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
            spoken: list[Any] = [{"role": "system", "content": RULES}]
            converse(client, [*spoken, *map(_question, range(count))], tools=TOOLS, local=local)


def _local(name: str) -> Callable[..., Any]:
    return lambda **arguments: result(name, **arguments)


def _question(n: int) -> str:
    return f"Step {n}: go on with module {n} as we said, and check that its total is right."


def in_json(reader: Reader, count: int, *, anew: bool) -> None:
    """The same work in JSON calls, a model turn for each step."""
    for messages in _prompts(count):
        told = [dict(message) for message in messages]
        tools = f"\n\n[AVAILABLE_TOOLS]{json.dumps(TOOLS)}[/AVAILABLE_TOOLS]"
        if anew:
            last = max(at for at, one in enumerate(told) if one["content"].startswith("Step"))
            told[last]["content"] = f"{tools}\n\n{told[last]['content']}"
        else:
            told[0]["content"] += tools
        reader.read(told)


def _prompts(count: int) -> Iterator[list[Json]]:
    messages: list[Json] = [{"role": "system", "content": RULES}]
    for n in range(count):
        messages.append({"role": "user", "content": _question(n)})
        for calls in turns(n).steps:
            yield messages
            written = [{"name": name, "arguments": arguments} for name, arguments in calls]
            results = [result(name, **arguments) for name, arguments in calls]
            messages.append({"role": "assistant", "content": f"[TOOL_CALLS]{json.dumps(written)}"})
            messages.append({"role": "user", "content": f"[TOOL_RESULTS]{json.dumps(results)}"})
        yield messages
        messages.append({"role": "assistant", "content": f"Done with step {n}."})


ROWS: dict[str, Callable[[Reader, int], None]] = {
    "through us": through_us,
    "tools anew": lambda reader, count: in_json(reader, count, anew=True),
    "tools first": lambda reader, count: in_json(reader, count, anew=False),
}


def _row(name: str, readings: Sequence[Reading]) -> str:
    tokens, reused = (sum(getattr(one, key) for one in readings) for key in ("tokens", "reused"))
    late = [one.seconds for one in readings[len(readings) // 2 :]]
    figures = [
        f"{len(readings)}",
        f"{tokens:,}",
        f"{100 * reused / tokens:.0f} %",
        f"{(tokens - reused) / len(readings):,.0f}",
        f"{statistics.median(late):.2f}",
        f"{sum(one.seconds for one in readings):.0f}",
    ]
    return f"| {name} | {' | '.join(figures)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=20)
    count = parser.parse_args().turns
    rows = []
    for name, play in ROWS.items():
        with local_model.serve() as url:  # its cache is empty
            reader = Reader(url)
            play(reader, count)
        rows.append(_row(name, reader.readings))
        print(rows[-1], flush=True)
    table = [
        f"{count} user turns with {len(TOOLS)} tools on the embedded server (`make bench-prefix`):",
        "",
        "| prompts | model turns | prompt tokens | reused | read anew a turn | first token, late | all |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *rows,
        "",
        "First token, late: the median of the second half of the turns; all: the sum of all turns; seconds.",
    ]
    write_section(RESULTS, "prefix", "\n".join(table))


if __name__ == "__main__":
    main()
