"""The command line of `tool-emulator fit`."""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import SecretStr

import emulator
from emulator.cli.fit.outcomes import Outcomes, TaskOutcome
from emulator.cli.fit.playing import UpstreamAway, WayRefused, open_pipelines, play
from emulator.cli.fit.profile_file import CannotWrite, as_toml, write
from emulator.cli.fit.progress import Progress
from emulator.cli.fit.report import Report
from emulator.cli.fit.scores import score
from emulator.cli.fit.server import FitServer, describe_server
from emulator.cli.fit.ways import TITLES, ChatTemplate, MeasuredWay, all_ways, current_way
from emulator.cli.interrupts import INTERRUPTED, raise_on_signals
from emulator.conversation.profiles import profile_of
from emulator.core import logs
from emulator.core.addresses import shown_url
from emulator.core.controls import printable
from emulator.core.errors import EmulatorError
from emulator.core.tasks import tasks, version
from emulator.rendering.model_template import NoTools, tools_prompt
from emulator.settings.command_line import OptionParser
from emulator.settings.configuration import Configuration, ConfigurationError, read
from emulator.settings.redaction import redactor
from emulator.settings.settings import Settings
from emulator.settings.sources import DEFAULT_FILE, state_folder
from emulator.tools.toolset import Toolset
from emulator.upstream import local_model
from emulator.upstream.routes import Routes

_FAILURES = 3
"""A way whose first answers all take too long is given up, and a server that fails in a row."""
_STOPPED = 1

Say = Callable[[str], None]


class _Stop(Exception):
    """Nothing can be measured; the message says why."""


def main(program: str, arguments: Sequence[str]) -> int:
    """Run the command. Returns 0, 1 if the upstream fails, 2 for a mistake of the user, 130 after Ctrl-C."""
    options, rest = _parser(program).parse_known_args(arguments)

    def say(text: str) -> None:
        if text:
            print(printable(text), file=sys.stderr, flush=True)

    try:
        configuration = read(rest, listens=False, options=vars(options))
        if not configuration.upstream_is_configured:
            raise ConfigurationError(
                "No upstream is configured: name the model's server, --base-url URL"
            )
        # What matters of an answer is in the report.
        logs.configure("error", hide=redactor(configuration.settings))
        raise_on_signals()
        with ExitStack() as opening:
            settings = _with_local_model(configuration.settings, opening)
            return _fit(options, configuration, settings, say)
    except ConfigurationError as error:
        say(str(error))
        return 2
    except (_Stop, local_model.LocalModelError, EmulatorError, OSError) as error:
        say(str(error))
        return _STOPPED


def _fit(
    options: argparse.Namespace, configuration: Configuration, settings: Settings, say: Say
) -> int:
    server = describe_server(settings, options.model)
    identity = {
        "model": server.model,
        "server": shown_url(server.route.settings.base_url),
        "tasks": version(),
        "emulator": emulator.__version__,
        "max_tokens": str(options.max_tokens),
    }
    if settings.local_model:
        identity["server"] = "embedded"  # its port differs from run to run
    outcomes = Outcomes(options.state or _state_file(identity), identity)
    outcomes.read()
    if options.again:
        outcomes = Outcomes(outcomes.path, identity)
    outcomes.start(again=options.again)
    template = _chat_template(options.chat_template, server, outcomes.path.with_suffix(".jinja"))
    ways = _ways(options.ways, settings, server, template)
    run = _Run(options, settings, server, outcomes, ways)
    say(f"{server.model} at {identity['server']} ({server.kind.name}). State: {outcomes.path}")
    code, problem = 0, ""
    try:
        run.measure()
    except KeyboardInterrupt:
        code, problem = INTERRUPTED, "Interrupted. Run the command again to continue."
    except (UpstreamAway, OSError) as error:
        code, problem = _STOPPED, f"{error}\nRun the command again to continue."
    report = run.report()
    print(report.json() if options.json else printable(str(report)), flush=True)
    say(problem)
    if report.done < report.total and not problem:
        again = "Run the command again to continue." if len(report.missing) < len(ways) else ""
        say(f"{report.done} of {report.total} tasks. {again}")
    if not report.scores:
        return code or _STOPPED
    say(f"\n{report.advice}")
    if report.doubt:
        say(report.doubt)
        return code or (_STOPPED if options.write else 0)
    row = next(w for w in ways if w.name == report.recommended.way).row_for(server.model)
    row |= {"acts": "any"} if report.never_labels else {}
    remark = f"tool-emulator fit, {datetime.now(UTC):%Y-%m-%d}: solved {report.recommended.solved}"
    if not options.write:
        say(f"\n{as_toml(row, remark)}\n--write adds this to {_file(configuration)}.")
        return code
    try:
        write(_file(configuration), row, remark)
    except CannotWrite as error:
        say(str(error))
        return 2
    say(f"Written to {_file(configuration)}.{_not_chosen(row['name'], server)}")
    return code


@dataclass(frozen=True)
class _Run:
    options: argparse.Namespace
    settings: Settings
    server: FitServer
    outcomes: Outcomes
    ways: Sequence[MeasuredWay]
    refused: dict[str, str] = field(default_factory=dict)
    """Ways that are given up in this run, and why."""

    def measure(self) -> None:
        """Ask each task in each way, as far as the state and the budget allow. Raises `UpstreamAway`."""
        minutes = self.options.minutes
        until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        possible = [way for way in self.ways if not way.impossible]
        fields = {
            "model": self.server.route.client_model,
            "temperature": 0,
            "max_tokens": self.options.max_tokens,
        }
        todo = [(task, way) for task in tasks() for way in possible]
        with (
            open_pipelines(self.settings, possible, self.options.seconds) as new_pipeline,
            Progress(len(todo)) as progress,
        ):
            pipelines = {way.name: new_pipeline() for way in possible}
            for task, way in todo:
                known = self.outcomes.of(way.name)
                if (way.name, task.id) not in self.outcomes.known and not self._gives_up(way.name):
                    if time.monotonic() > until:
                        return
                    try:
                        pipeline = pipelines[way.name]
                        self.outcomes.add(play(pipeline, way, task, fields, first=not known))
                    except WayRefused as error:
                        self.refused[way.name] = f"refused by the server: {error}"
                    latest = [*self.outcomes.known.values()][-max(_FAILURES, len(possible)) :]
                    if len(latest) >= _FAILURES and all(o.is_upstreams_fault for o in latest):
                        for outcome in latest:
                            del self.outcomes.known[outcome.way, outcome.task]
                        raise UpstreamAway(latest[-1].problem)
                progress.advance(self._summary(possible))

    def _gives_up(self, way: str) -> bool:
        first = self.outcomes.of(way)[:_FAILURES]
        seconds = self.options.seconds
        if len(first) == _FAILURES and all(o.problem and o.seconds >= seconds for o in first):
            self.refused[way] = f"no answer within {seconds:g} seconds"
        return way in self.refused

    def _summary(self, ways: Sequence[MeasuredWay]) -> str:
        parts = []
        for way in ways:
            if way.name not in self.refused:
                known = self.outcomes.of(way.name)
                parts.append(f"{way.name} {sum(each.arguments for each in known)}/{len(known)}")
        return "  ".join(parts)

    def report(self) -> Report:
        by_id = {task.id: task for task in tasks()}
        measured = [
            way.name for way in self.ways if not way.impossible and way.name not in self.refused
        ]
        common = set(by_id)
        for way in measured:
            common &= {outcome.task for outcome in self.outcomes.of(way)}
        missing = {way.name: way.impossible for way in self.ways if way.impossible}
        scores = [
            score(way, [each for each in self.outcomes.of(way) if each.task in common], by_id)
            for way in measured
            if common
        ]
        return Report(
            self.outcomes.identity,
            self.server.kind.name,
            scores,
            missing | self.refused,
            {way: why for way in measured if (why := _problem(self.outcomes.of(way)))},
            current_way(self.settings, self.server.route, self.ways),
            len(common) if measured else 0,
            len(by_id),
        )


def _problem(outcomes: Sequence[TaskOutcome]) -> str:
    found = Counter(outcome.problem for outcome in outcomes if outcome.problem)
    number = f"{found.total()} of {len(outcomes)} answers failed"
    return f"{number}, most often: {found.most_common(1)[0][0]}" if found else ""


def _chat_template(file: Path | None, server: FitServer, path: Path) -> ChatTemplate:
    """The user's ``file``, or the server's template, stored at ``path``."""
    if file is None:
        if not server.chat_template:
            return ChatTemplate(
                "", "the server shows no chat template; --chat-template names a file"
            )
        path.write_text(server.chat_template, "utf-8")
    name = str((file or path).absolute())
    try:
        tools_prompt(name, Toolset.parse([dict(tool) for tool in tasks()[0].tools]))
    except NoTools as error:
        return ChatTemplate("", f"the chat template cannot be used: {error}")
    return ChatTemplate(name)


def _ways(
    names: str, settings: Settings, server: FitServer, template: ChatTemplate
) -> list[MeasuredWay]:
    """The ways to measure, the wanted ones if the user names some. Raises `_Stop`."""
    found = list(all_ways(settings, server.route, server.grammar, template, small=server.small))
    if not names:
        return found
    wanted = [name.strip() for name in names.split(",")]
    if unknown := [name for name in wanted if name not in {way.name for way in found}]:
        known = ", ".join(way.name for way in found)
        raise _Stop(f"--ways {unknown[0]}: there is no such way for this model; there are {known}")
    return [way for way in found if way.name in wanted]


def _with_local_model(settings: Settings, opening: ExitStack) -> Settings:
    if not settings.local_model:
        return settings
    url = opening.enter_context(local_model.serve())
    own: dict[str, Any] = {"base_url": url, "api_key": SecretStr("local"), "upstreams": ()}
    return settings.model_copy(update=own)


def _state_file(identity: Mapping[str, str]) -> Path:
    digest = hashlib.sha256("\n".join(identity.values()).encode()).hexdigest()[:12]
    return state_folder().expanduser() / f"fit-{digest}.jsonl"


def _file(configuration: Configuration) -> Path:
    return configuration.file.path or Path(os.environ.get("EMULATOR_CONFIG") or DEFAULT_FILE)


def _not_chosen(name: str, server: FitServer) -> str:
    """Why the row that was written is not used; "" if it is."""
    try:
        route = Routes(read([], listens=False).settings).of(server.route.client_model)
    except (ConfigurationError, EmulatorError) as error:
        return f" But it cannot be read: {error}"
    chosen = profile_of(route.settings, route.model, server.route.description).name
    if chosen == name:
        return ""
    return (
        f" But the profile {chosen} is chosen for this model: remove the setting profile, or the earlier row "
        "of [[profiles]] whose pattern matches."
    )


def _parser(program: str) -> argparse.ArgumentParser:
    parser = OptionParser(
        prog=f"{program} fit",
        description="Measure which way of calling tools suits a model. Nothing that it calls is executed.",
        epilog="Settings (--base-url, --api-key, --local-model, --drop-fields temperature ...) may follow.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", default="", help="the model (default: the first that the upstream lists)")
    add("--minutes", type=float, help="stop after this time; run again to continue")
    add("--ways", default="", help=f"only these, separated by commas, of: {', '.join(TITLES)}")
    add("--write", action="store_true", help="write the best way into emulator.toml")
    add("--json", action="store_true", help="print the scores as JSON")
    add("--again", action="store_true", help="forget what is known and measure everything again")
    add("--state", type=Path, metavar="FILE", help="the file of outcomes (default: one per model)")
    add("--chat-template", type=Path, metavar="FILE", help="the model's, if the server hides it")
    add("--seconds", type=float, default=120, help="longest answer (120)")
    add("--max-tokens", type=int, default=1024, help="longest reply (1024)")
    return parser
