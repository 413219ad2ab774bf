"""Which upstream serves which model, and which one instead if that fails. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TypeVar

from emulator.core.addresses import origin
from emulator.core.errors import NotFound
from emulator.settings.settings import Settings
from emulator.settings.upstream_settings import UpstreamRow

T = TypeVar("T")


def of_model(values: Mapping[str, T], model: str) -> T | None:
    """The value of ``model``; clients of Ollama may leave out the tag ``latest``, which its lists contain."""
    return values.get(model, values.get(f"{model}:latest"))


@dataclass(frozen=True)
class Target:
    """One configured upstream."""

    name: str
    settings: Settings
    """The settings with the overrides of this upstream."""
    row: UpstreamRow

    @property
    def server(self) -> tuple[str, str, int | None]:
        """A client's key is for one server."""
        return origin(self.settings.base_url)

    def serves(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.row.models)

    def upstream_name(self, model: str) -> str:
        """Return the upstream's name for ``model``."""
        return model.removeprefix(self.row.strip)

    def client_name(self, model: str) -> str:
        """Return the clients' name for one of the upstream's models."""
        return model if model.startswith(self.row.strip) else self.row.strip + model


@dataclass(frozen=True)
class Route:
    """Where the requests for one model go."""

    target: Target
    model: str
    """The upstream's name for the model."""
    client_model: str
    """The clients' name for the model, with aliases resolved."""
    description: str = ""
    """What the server says about the model (`servers`); "" until it was asked."""
    context_length: int = 0
    """The model's context in tokens, as the server says; 0 if unknown."""
    listed_length: int = 0
    """The same as it was known at the start: what is decided by it does not change during a conversation."""

    @property
    def settings(self) -> Settings:
        return self.target.settings

    def with_profile(self, name: str) -> Route:
        settings = self.settings.model_copy(update={"profile": name})
        return replace(self, target=replace(self.target, settings=settings))


class Routes:
    """The upstreams in the order of the settings. The first that serves a model gets its requests."""

    def __init__(self, settings: Settings) -> None:
        self._aliases = settings.aliases
        self.descriptions: dict[str, Mapping[str, str]] = {}
        """Name of a target -> model -> description, once its server was asked."""
        self.context_lengths: dict[str, Mapping[str, int]] = {}
        """Name of a target -> model -> tokens, as its server lists them."""
        self.loaded_lengths: dict[str, Mapping[str, int]] = {}
        """The same of models that are loaded, or were, as their servers said last."""
        only_row = UpstreamRow.model_construct(base_url=settings.base_url)
        self.targets = tuple(
            Target(row.display_name, settings.model_copy(update=row.overrides()), row)
            for row in settings.upstreams
        ) or (Target("upstream", settings, only_row),)

    @property
    def aliases(self) -> Iterator[str]:
        """The aliases that are not patterns."""
        return (alias for alias in self._aliases if not set(alias) & set("*?["))

    def of(self, model: str) -> Route:
        """Raises `NotFound`."""
        client_model = self._aliases.get(model) or next(
            (name for pattern, name in self._aliases.items() if fnmatchcase(model, pattern)), model
        )
        for target in self.targets:
            if target.serves(client_model):
                name = target.upstream_name(client_model)
                description = of_model(self.descriptions.get(target.name, {}), name) or ""
                listed = of_model(self.context_lengths.get(target.name, {}), name) or 0
                length = of_model(self.loaded_lengths.get(target.name, {}), name) or listed
                return Route(target, name, client_model, description, length, listed)
        raise NotFound(
            f"No upstream is configured for the model {model!r}.", "model", "model_not_found"
        )

    def default(self) -> Target:
        """The upstream for requests that name no model."""
        return next(
            (target for target in self.targets if "*" in target.row.models), self.targets[0]
        )

    def fallbacks(self, route: Route) -> Iterator[Route]:
        """The other routes to try, in order, without duplicates. Raises `NotFound`.

        A fallback that would get the client's key, which is for another server, is skipped.
        """
        seen = {(route.target.name, route.model)}
        for model in route.settings.fallbacks:
            fallback = self.of(model)
            if fallback.settings.pass_client_key and fallback.target.server != route.target.server:
                continue
            if (fallback.target.name, fallback.model) not in seen:
                seen.add((fallback.target.name, fallback.model))
                yield fallback
