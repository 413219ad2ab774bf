"""The second law: in whatever order a client runs the calls of a message, the effects are Python's.

Random programs act on a small world of files, lists and messages. CPython runs each with the real tools; then
the proxy sends the calls, and a client runs those of each message in a random order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import openai
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import example_count
from tests.support.programs import plain, result
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function, strings

TOOLS = [
    function("write_file", strings("path", "content"), "Write a file."),
    function("read_file", strings("path"), "Read a file."),
    function("move_file", strings("source", "destination"), "Move a file."),
    function("list_files", strings("folder"), "List the files of a folder."),
    function("cd", strings("folder"), "Change the working folder."),
    function("append_line", strings("line"), "Append a line to the log."),
    function("send_mail", strings("to", "text"), "Send a mail."),
    function("bash", strings("command"), "Run a command."),
]


class World:
    """What the tools act on, in which every order shows."""

    def __init__(self) -> None:
        self.folder = "/"
        self.files: dict[str, str] = {}
        self.log: list[str] = []
        self.mails: dict[str, list[str]] = {}

    def call(self, name: str, arguments: dict[str, str]) -> str:
        tool: Callable[..., Any] = getattr(self, name)
        return str(tool(**arguments))

    def write_file(self, path: str, content: str) -> str:
        self.files[self.folder + path] = content
        return "written"

    def read_file(self, path: str) -> str:
        return self.files.get(self.folder + path, "nothing")

    def move_file(self, source: str, destination: str) -> str:
        moved = self.files.pop(self.folder + source, "nothing")
        self.files[self.folder + destination] = moved
        return moved

    def list_files(self, folder: str) -> str:
        return " ".join(sorted(name for name in self.files if name.startswith(folder)))

    def cd(self, folder: str) -> str:
        self.folder = f"/{folder}/{len(self.folder) % 7}"
        return self.folder

    def append_line(self, line: str) -> str:
        self.log.append(line)
        return f"line {len(self.log)}"

    def send_mail(self, to: str, text: str) -> str:
        self.mails.setdefault(to, []).append(text)
        return "sent"

    def bash(self, command: str) -> str:
        self.log.append(f"{command} {sorted(self.files.items())}")
        return f"ran {len(self.log)} {len(self.files)}"

    def state(self) -> Any:
        return self.folder, self.files, self.log, self.mails


def call(chance: random.Random, *values: str) -> str:
    """One call as a program writes it; ``values`` are expressions that it may use."""
    value = lambda: chance.choice(["'a'", "'b'", "'a/b'", "'c'", *values])  # noqa: E731
    name, arity = chance.choice(
        [
            *(("write_file", 2), ("write_file", 2), ("read_file", 1), ("move_file", 2), ("cd", 1)),
            *(("list_files", 1), ("append_line", 1), ("send_mail", 2), ("bash", 1)),
        ]
    )
    return f"{name}({', '.join(value() for _ in range(arity))})"


def program(chance: random.Random) -> str:
    lines: list[str] = []
    for n in range(chance.randint(2, 6)):
        lines += chance.choice(
            [
                lambda n: [call(chance)],
                lambda n: [f"x{n} = {call(chance)}"],
                lambda n: [f"print({call(chance)})"],
                lambda n: [f"x{n} = {call(chance)}", call(chance, f"x{n}"), call(chance)],
                lambda n: ["for i in ('a', 'c'):", f"    {call(chance, 'i')}"],
                lambda n: [
                    "for i in ('a', 'b'):",
                    f"    {call(chance, 'i')}",
                    f"    {call(chance, 'i')}",
                ],
                lambda n: [
                    f"if len({call(chance)}) > 3:",
                    f"    {call(chance)}",
                    f"    {call(chance)}",
                ],
                lambda n: [
                    f"def f{n}(p):",
                    f"    {call(chance, 'p')}",
                    f"    return {call(chance, 'p')}",
                    f"f{n}('a')",
                    f"f{n}('b')",
                ],
                lambda n: [
                    "try:",
                    f"    {call(chance)}",
                    "    1 / 0",
                    "except ZeroDivisionError:",
                    f"    {call(chance)}",
                ],
            ]
        )(n)
    return "\n".join(lines)


def reference(source: str) -> World:
    """The world that CPython leaves."""
    world = World()

    def tool(name: str, parameters: list[str]) -> Callable[..., str]:
        return lambda *values: world.call(name, dict(zip(parameters, values, strict=True)))

    scope: dict[str, Any] = {"print": lambda *_: None}
    for one in TOOLS:
        described = one["function"]
        name = described["name"]
        scope[name] = tool(name, list(described["parameters"]["properties"]))
    with suppress(Exception):
        exec(source, scope)
    return world


@settings(
    max_examples=example_count(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**64))
def test_calls_in_any_order_have_the_same_effects_as_in_python(
    client: openai.OpenAI, upstream: ScriptedUpstream, seed: int
) -> None:
    chance = random.Random(seed)
    source = program(chance)
    upstream.reply(f"```tool_code\n{source}\n```", "Done.")
    world = World()
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    while True:
        message = plain(client, model="m", messages=messages, tools=TOOLS).choices[0].message
        if not message.tool_calls:
            break
        messages.append(message.model_dump(exclude_none=True))
        results = {}
        for call in chance.sample(message.tool_calls, len(message.tool_calls)):
            arguments = json.loads(call.function.arguments)
            results[call.id] = world.call(call.function.name, arguments)
        messages += [result(call, results[call.id]) for call in message.tool_calls]
    assert world.state() == reference(source).state(), source
