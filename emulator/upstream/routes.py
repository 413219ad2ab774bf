"""Which upstream is asked for which model, and which one instead where that fails. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from emulator.errors import NotFound
from emulator.settings import Settings


@dataclass(frozen=True)
class Target:
    """One upstream."""

    name: str
    settings: Settings
    """As they hold for this upstream."""
    patterns: tuple[str, ...] = ("*",)
    strip: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    def takes(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.patterns)

    def its_name(self, model: str) -> str:
        """What the upstream calls ``model``."""
        return model.removeprefix(self.strip)

    def our_name(self, model: str) -> str:
        """What clients call a model of the upstream's."""
        return model if model.startswith(self.strip) else self.strip + model


@dataclass(frozen=True)
class Route:
    """Where the requests for one model go."""

    target: Target
    model: str
    """As the upstream calls it."""
    asked: str
    """As clients call it, behind aliases."""

    @property
    def settings(self) -> Settings:
        return self.target.settings

    def with_profile(self, name: str) -> Route:
        settings = self.settings.model_copy(update={"profile": name})
        return replace(self, target=replace(self.target, settings=settings))


class Routes:
    """The table: upstreams in the order of the settings, the first that takes a model has it."""

    def __init__(self, settings: Settings) -> None:
        self._aliases = settings.aliases
        self.targets = tuple(
            Target(
                row.display_name,
                settings.model_copy(update=row.overrides()),
                row.models,
                row.strip,
                row.headers,
                row.query,
            )
            for row in settings.upstreams
        ) or (Target("upstream", settings),)

    @property
    def several(self) -> bool:
        return len(self.targets) > 1

    @property
    def aliases(self) -> Iterator[str]:
        """Those that name one model each."""
        return (alias for alias in self._aliases if not set(alias) & set("*?["))

    def of(self, model: str) -> Route:
        """Raises `NotFound`."""
        asked = self._aliases.get(model) or next(
            (name for pattern, name in self._aliases.items() if fnmatchcase(model, pattern)), model
        )
        for target in self.targets:
            if target.takes(asked):
                return Route(target, target.its_name(asked), asked)
        raise NotFound(
            f"No upstream is configured for the model {model!r}.", "model", "model_not_found"
        )

    def default(self) -> Target:
        """The upstream for requests that name no model."""
        return next((target for target in self.targets if "*" in target.patterns), self.targets[0])

    def fallbacks(self, route: Route) -> Iterator[Route]:
        """Where to ask instead, in order, none of them twice. Raises `NotFound`."""
        seen = {(route.target.name, route.model)}
        for model in route.settings.fallbacks:
            instead = self.of(model)
            if (instead.target.name, instead.model) not in seen:
                seen.add((instead.target.name, instead.model))
                yield instead
