"""The ways in which a model may call tools. Each is a row of ``[[profiles]]``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.conversation.profiles import profile_of
from emulator.settings.settings import Settings
from emulator.settings.upstream_settings import Grammar, ProfileRow
from emulator.upstream.routes import Route

TITLES = {
    "python": "Python programs",
    "json": "calls in JSON",
    "template": "the model's own template",
    "native": "native tools, mended",
    "schema": "JSON, constrained",
    "tiny": "examples and copied values, constrained",
    "now": "your own profile",
}


@dataclass(frozen=True)
class MeasuredWay:
    name: str
    profile: Mapping[str, Any]
    """The fields of its row, except the name and the pattern."""
    impossible: str = ""
    """Why it cannot be tried."""

    def row(self) -> ProfileRow:
        """The row under which the pipeline finds it while it is measured."""
        return ProfileRow(name=f"fit {self.name}", **self.profile)

    def row_for(self, model: str) -> dict[str, Any]:
        """The fields of the row that makes it the way of ``model``."""
        name = f"fit-{model}"
        return {"name": name, "pattern": f"^{re.escape(model)}$", **self.profile}


@dataclass(frozen=True)
class ChatTemplate:
    """The file of the model's chat template, or why none can be used."""

    path: str
    problem: str = ""


def all_ways(
    settings: Settings, route: Route, grammar: Grammar, template: ChatTemplate, *, small: bool
) -> Iterator[MeasuredWay]:
    """Yield each way, also the impossible ones.

    ``grammar`` is how the server accepts a JSON Schema. ``small``: the model may need the profile ``tiny``.
    """
    own = _own_row(settings, route)
    base = own.like if own else profile_of(route.settings, route.model, route.description).name
    like = {"like": "default" if base == "tiny" else base, "tools": "emulate"}
    off = "" if settings.grammar else "the setting grammar is off"
    ways = [
        MeasuredWay("python", {**like, "grammar": "off"}),
        MeasuredWay("json", {**like, "grammar": "prompt"}, off),
        MeasuredWay(
            "template",
            {**like, "grammar": "off", "chat_template": template.path},
            template.problem,
        ),
        MeasuredWay("native", {**like, "tools": "native"}),
        MeasuredWay("schema", {**like, "grammar": grammar}, off),
    ]
    if small:
        ways.append(MeasuredWay("tiny", {**like, "like": "tiny", "grammar": grammar}, off))
    yield from ways
    if own and (now := _fields(own)) not in [way.profile for way in ways]:
        yield MeasuredWay("now", now)


def current_way(settings: Settings, route: Route, ways: Sequence[MeasuredWay]) -> str:
    """The name of the way that the settings choose today; "" for ``tools = auto``."""
    if own := _own_row(settings, route):
        return next((way.name for way in ways if way.profile == _fields(own)), "now")
    profile = profile_of(route.settings, route.model, route.description)
    if route.settings.tools != "emulate":
        return "native" if route.settings.tools == "native" else ""
    if profile.few_shot:
        return "tiny"
    constrained = route.settings.grammar and profile.grammar != "off"
    return "schema" if constrained else "python"


def _own_row(settings: Settings, route: Route) -> ProfileRow | None:
    """The operator's row for the model, unless a built-in profile is chosen."""
    name = profile_of(route.settings, route.model, route.description).name
    return next((row for row in settings.profiles if row.name == name), None)


def _fields(row: ProfileRow) -> dict[str, Any]:
    """What makes the row a way; ``acts`` is what was measured in it."""
    return row.model_dump(exclude_unset=True, exclude={"name", "pattern", "acts"})
