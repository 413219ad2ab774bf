"""BFCL's multi-turn cases through the proxy, with its Python classes as the world -> results.md.

    python -m benchmarks.bfcl_multi_turn [--every 20] [--order dataflow] [--style loop] [--protocol messages]

The upstream plays an ideal model: for each user message it writes the ground truth's calls as one program,
in one of five styles. An agent loop on the official SDK runs the calls of each message in order, in random
order or in reverse, like clients that run parallel calls at the same time. After each user message the
state of the world must equal the state after the ground truth, run in order without a proxy.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any, get_args

import anthropic
import openai

from app import create_app
from benchmarks.report import RESULTS, write_section
from emulator.core import logs
from emulator.settings.settings import Order, Settings
from emulator.tools.problems import BindError
from emulator.tools.toolset import Toolset
from tests.support.scripted import Body, Reply, ScriptedUpstream
from tests.support.serving import serve

LAST_WORDS = "Done."
MOST_REQUESTS = 100

Arguments = dict[str, Any]
Call = tuple[str, Arguments]


@dataclass(frozen=True)
class Case:
    """One test entry: the calls that each of the user's messages should lead to."""

    id: str
    classes: tuple[str, ...]
    config: dict[str, Any]
    messages: tuple[str, ...]
    turns: tuple[tuple[Call, ...], ...]
    tools: tuple[dict[str, Any], ...]

    def flaw(self) -> str:
        """Why no valid calls can do what the ground truth does; "" where they can."""
        toolset = Toolset.parse(self.tools)
        for turn in self.turns:
            for name, arguments in turn:
                try:
                    if toolset.bind(name, (), arguments) != arguments:
                        return f"{name}({arguments}) means something else by its schema"
                except BindError as error:
                    return str(error)
        return ""


def load() -> Iterator[Case]:
    """The base cases, in BFCL's order."""
    from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

    data = resources.files("bfcl_eval") / "data"
    file = "BFCL_v4_multi_turn_base.json"
    truths = {one["id"]: one["ground_truth"] for one in _lines(data / "possible_answer" / file)}
    described: dict[str, list[Any]] = {
        name: list(_lines(data / "multi_turn_func_doc" / doc))
        for name, doc in MULTI_TURN_FUNC_DOC_FILE_MAPPING.items()
    }
    for entry in _lines(data / file):
        functions = [one for name in entry["involved_classes"] for one in described[name]]
        parameters = {one["name"]: list(one["parameters"]["properties"]) for one in functions}
        yield Case(
            entry["id"],
            tuple(entry["involved_classes"]),
            entry["initial_config"],
            tuple(" ".join(said["content"] for said in turn) for turn in entry["question"]),
            tuple(tuple(_read(call, parameters) for call in turn) for turn in truths[entry["id"]]),
            tuple({"type": "function", "function": one} for one in functions),
        )


def _lines(file: Any) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip())


def _read(written: str, parameters: dict[str, list[str]]) -> Call:
    call = ast.parse(written, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    name = call.func.id
    positional = zip(parameters[name], call.args, strict=False)
    named = ((keyword.arg or "", keyword.value) for keyword in call.keywords)
    return name, {key: ast.literal_eval(value) for key, value in (*positional, *named)}


class World:
    """The objects on which a case's functions are methods."""

    def __init__(self, case: Case) -> None:
        from bfcl_eval.constants.executable_backend_config import (
            CLASS_FILE_PATH_MAPPING,
            STATELESS_CLASSES,
        )

        self.instances: dict[str, Any] = {}
        for name in case.classes:
            one = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in STATELESS_CLASSES:
                config = copy.deepcopy(case.config.get(name, {}))
                one._load_scenario(config, long_context=False)  # noqa: SLF001 - as BFCL does
            self.instances[name] = one

    def call(self, name: str, arguments: Arguments) -> str:
        """The result as BFCL tells it to a model."""
        method = next(getattr(one, name) for one in self.instances.values() if hasattr(one, name))
        try:
            result = method(**copy.deepcopy(arguments))
        except Exception as error:  # noqa: BLE001 - BFCL tells the model of any
            return f"Error during execution: {error}"
        try:
            return json.dumps(result) if isinstance(result, dict) else str(result)
        except TypeError:
            return str(result)

    def state(self) -> dict[str, dict[str, Any]]:
        """The attributes that BFCL compares."""
        return {
            name: {key: value for key, value in vars(one).items() if not key.startswith("_")}
            for name, one in self.instances.items()
        }


# What the model writes


def _call(call: Call) -> str:
    name, arguments = call
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def plain(calls: Sequence[Call]) -> str:
    return "\n".join(map(_call, calls))


def assigned(calls: Sequence[Call]) -> str:
    return "\n".join(f"r{n} = {_call(call)}" for n, call in enumerate(calls))


def data_flow(calls: Sequence[Call]) -> str:
    """All but the first take their arguments from the first one's result, as far as one can see."""
    lines = [f"first = {_call(calls[0])}"]
    for name, arguments in calls[1:]:
        derived = {key: f"(first, {value!r})[1]" for key, value in arguments.items()}
        lines.append(f"{name}({', '.join(f'{key}={text}' for key, text in derived.items())})")
    return "\n".join(lines)


def loop(calls: Sequence[Call]) -> str:
    lines = [f"for name, arguments in {list(calls)!r}:"]
    for n, name in enumerate(dict.fromkeys(name for name, _ in calls)):
        lines.append(f"    {'el' if n else ''}if name == {name!r}:")
        lines.append(f"        {name}(**arguments)")
    return "\n".join(lines)


def branch(calls: Sequence[Call]) -> str:
    lines = [f"first = {_call(calls[0])}", "if first != 'nothing of the kind':"]
    lines += [f"    {_call(call)}" for call in calls[1:]] or ["    pass"]
    return "\n".join([*lines, "else:", "    print('no')"])


STYLES: dict[str, Callable[[Sequence[Call]], str]] = {
    "plain": plain,
    "assigned": assigned,
    "data flow": data_flow,
    "loop": loop,
    "branch": branch,
}

#: How a client runs the calls of one message.
CLIENTS: dict[str, Callable[[list[Any], random.Random], list[Any]]] = {
    "in order": lambda calls, _: calls,
    "random": lambda calls, chance: chance.sample(calls, len(calls)),
    "reversed": lambda calls, _: calls[::-1],
}


# Running


@dataclass
class Trial:
    """One case in one style with one client, and what came of it."""

    case: Case
    style: str
    client: str
    replies: list[str] = field(default_factory=list)
    turns: int = 0
    """Of the model."""
    requests: int = 0
    """Of the client."""
    together: int = 0
    """Messages with more than one call."""
    fault: str = ""

    @property
    def id(self) -> str:
        return f"{self.case.id}/{self.style}/{self.client}"


class Chat:
    """One conversation of an agent. Its calls are ids, names and arguments."""

    def __init__(self, url: str, trial: Trial) -> None:
        self._url, self._model, self._tools = url, trial.id, trial.case.tools
        self._history: list[Any] = []

    def say(self, text: str) -> None:
        self._history.append({"role": "user", "content": text})

    def ask(self) -> list[tuple[str, str, Arguments]]:
        completion = openai_client(self._url).chat.completions.create(
            model=self._model, messages=self._history, tools=list(self._tools)
        )
        message = completion.choices[0].message
        self._history.append(message.model_dump(exclude_none=True))
        calls = [call for call in message.tool_calls or () if call.type == "function"]
        return [
            (call.id, call.function.name, json.loads(call.function.arguments)) for call in calls
        ]

    def answer(self, results: dict[str, str]) -> None:
        self._history += [
            {"role": "tool", "tool_call_id": key, "content": text} for key, text in results.items()
        ]


class Responses(Chat):
    """With OpenAI's programmatic tool calling: only programs call the functions."""

    def ask(self) -> list[tuple[str, str, Arguments]]:
        functions: list[Any] = [
            {"type": "function", **tool["function"], "allowed_callers": ["programmatic"]}
            for tool in self._tools
        ]
        response = openai_client(self._url).responses.create(
            model=self._model,
            input=self._history,
            tools=[{"type": "programmatic_tool_calling"}, *functions],
            store=False,
        )
        self._history += [item.model_dump(exclude_none=True) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        return [(call.call_id, call.name, json.loads(call.arguments)) for call in calls]

    def answer(self, results: dict[str, str]) -> None:
        self._history += [
            {"type": "function_call_output", "call_id": key, "output": text}
            for key, text in results.items()
        ]


class Messages(Chat):
    """With Anthropic's programmatic tool calling: only code calls the functions."""

    _container: Any = anthropic.NOT_GIVEN

    def ask(self) -> list[tuple[str, str, Arguments]]:
        functions: list[Any] = [
            {
                "name": tool["function"]["name"],
                "description": tool["function"]["description"],
                "input_schema": tool["function"]["parameters"],
                "allowed_callers": ["code_execution_20260120"],
            }
            for tool in self._tools
        ]
        message = anthropic_client(self._url).messages.create(
            model=self._model,
            max_tokens=9_999,
            messages=self._history,
            tools=[{"type": "code_execution_20260120", "name": "code_execution"}, *functions],
            container=self._container,
        )
        if message.container is not None:
            self._container = message.container.id
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
        self._history.append({"role": "assistant", "content": blocks})
        return [
            (block.id, block.name, block.input)
            for block in message.content
            if block.type == "tool_use"
        ]

    def answer(self, results: dict[str, str]) -> None:
        blocks = [
            {"type": "tool_result", "tool_use_id": key, "content": text}
            for key, text in results.items()
        ]
        self._history.append({"role": "user", "content": blocks})


PROTOCOLS: dict[str, type[Chat]] = {"chat": Chat, "responses": Responses, "messages": Messages}


@cache
def openai_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


@cache
def anthropic_client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)


class Bench:
    """Proxy and upstream. Safe among threads."""

    def __init__(self, url: str, trials: dict[str, Trial], protocol: str) -> None:
        self._url = url
        self._trials = trials
        self._protocol = PROTOCOLS[protocol]

    def run(self, trial: Trial) -> Trial:
        self._trials[trial.id] = trial
        try:
            self._run(trial)
        except (openai.APIError, anthropic.APIError) as error:
            trial.fault = f"{type(error).__name__}: {error}"
        finally:
            del self._trials[trial.id]
        return trial

    def _run(self, trial: Trial) -> None:
        world, ideal = World(trial.case), World(trial.case)
        chance = random.Random(trial.id)
        agent = self._protocol(self._url, trial)
        for number, calls in enumerate(trial.case.turns):
            for name, arguments in calls:
                ideal.call(name, arguments)
            program = STYLES[trial.style](calls) if calls else ""
            trial.replies = [LAST_WORDS, *([f"```python\n{program}\n```"] if calls else [])]
            agent.say(trial.case.messages[number])
            self._answer(trial, agent, world, chance)
            if world.state() != ideal.state():
                trial.fault = f"after message {number} the state is another:\n{program}"
                return

    def _answer(self, trial: Trial, agent: Chat, world: World, chance: random.Random) -> None:
        """The agent's loop, to the answer in words."""
        for _ in range(MOST_REQUESTS):
            calls = agent.ask()
            trial.requests += 1
            if not calls:
                return
            trial.together += len(calls) > 1
            results = {
                key: world.call(name, arguments)
                for key, name, arguments in CLIENTS[trial.client](calls, chance)
            }
            agent.answer({key: results[key] for key, _, _ in calls})
        trial.fault = "the calls do not come to an end"


@contextmanager
def bench(order: Order, protocol: str) -> Iterator[Bench]:
    trials: dict[str, Trial] = {}
    with ExitStack() as running:

        def answer(body: Body) -> Reply:
            upstream.exchanges.clear()  # tens of thousands of them
            trial = trials[body["model"]]
            trial.turns += 1
            return Reply(trial.replies.pop() if trial.replies else LAST_WORDS)

        upstream = running.enter_context(ScriptedUpstream(default=answer))
        settings = Settings(
            base_url=upstream.base_url,
            profile="default",
            repair_attempts=0,
            order=order,
            database=":memory:",
            interpreter_idle_seconds=0.1,  # a conversation that has ended leaves its kernel
        )
        app = create_app(settings)
        running.callback(app.extensions["emulator"].close)
        url = running.enter_context(serve(app))
        yield Bench(url, trials, protocol)


def run(
    cases: Sequence[Case], styles: Sequence[str], order: Order, jobs: int, protocol: str = "chat"
) -> list[Trial]:
    """All trials of `cases`, those of a case together, so that its toolset is read once."""
    done = 0
    lock = threading.Lock()
    began = time.monotonic()

    def run_case(case: Case) -> list[Trial]:
        nonlocal done
        found = [benching.run(Trial(case, style, client)) for style in styles for client in CLIENTS]
        with lock:
            done += 1
            if done % 20 == 0 or done == len(cases):
                pace = (time.monotonic() - began) / done
                print(f"{order}: {done}/{len(cases)} cases, {pace:.2f} s each", file=sys.stderr)
        return found

    with bench(order, protocol) as benching, ThreadPoolExecutor(jobs) as pool:
        return [trial for found in pool.map(run_case, cases) for trial in found]


# The report


PAGE = """\
### BFCL's multi-turn cases

For each user message of the {cases} base cases (bfcl-eval {version}) the model writes the calls of the ground
truth as one program, in five styles; the client runs the calls of each message in order, in random order, or
reversed. The table shows how many cases end in the right state and, for calls run in order, the model turns,
client requests, and messages with several calls (`make bench-bfcl-multi-turn`):

{table}

{flawed}
"""


def report(cases: Sequence[Case], by_order: dict[Order, list[Trial]]) -> str:
    lines = [
        f"| `--order` | program | {' | '.join(CLIENTS)} | turns | requests | with several calls |",
        f"|---|---|{'--:|' * (len(CLIENTS) + 3)}",
    ]
    for order, trials in by_order.items():
        rows: dict[str, list[str]] = {}
        for style in dict.fromkeys(trial.style for trial in trials):
            ours = [trial for trial in trials if trial.style == style]
            right = Counter(trial.client for trial in ours if not trial.fault)
            first = [trial for trial in ours if trial.client == "in order"]
            cells = [
                *(str(right[client]) for client in CLIENTS),
                *(
                    f"{sum(getattr(trial, what) for trial in first):,}"
                    for what in ("turns", "requests", "together")
                ),
            ]
            rows.setdefault(" | ".join(cells), []).append(style)
        lines += [f"| `{order}` | {', '.join(names)} | {cells} |" for cells, names in rows.items()]
    flawed = [f"`{case.id}`: {flaw}" for case in cases if (flaw := case.flaw())]
    sentence = "No valid call can do what the ground truth does: " + "; ".join(flawed)
    return PAGE.format(
        cases=len(cases),
        version=version("bfcl-eval"),
        table="\n".join(lines),
        flawed=sentence if flawed else "",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="take every n-th case; writes nothing")
    parser.add_argument("--only", help="cases whose id ends so; writes nothing")
    parser.add_argument("--style", choices=STYLES, help="one style; writes nothing")
    parser.add_argument("--order", choices=get_args(Order), help="one order; writes nothing")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="of the agent; writes nothing")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (default 2)")
    parser.add_argument("--show", type=int, default=10, help="faults to print (default 10)")
    options = parser.parse_args(arguments)
    logs.configure("error")

    cases = [
        case
        for number, case in enumerate(load())
        if number % options.every == 0 and case.id.endswith(options.only or "")
    ]
    styles = [options.style] if options.style else list(STYLES)
    orders: list[Order] = [options.order] if options.order else ["auto", "dataflow"]
    protocol = options.protocol or "chat"
    found = {order: run(cases, styles, order, options.jobs, protocol) for order in orders}
    flawed = {case.id for case in cases if case.flaw()}
    wrong = [
        trial for trial in found.get("auto", ()) if trial.fault and trial.case.id not in flawed
    ]
    for trial in wrong[: options.show]:
        print(f"\n{trial.id}: {trial.fault}")
    print(report(cases, found))
    whole = not (options.only or options.style or options.order or options.protocol)
    if options.every == 1 and whole:
        write_section(RESULTS, "bfcl-multi-turn", report(cases, found))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
