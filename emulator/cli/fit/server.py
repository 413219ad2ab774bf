"""What `fit` asks the server before it begins: its kind, and the model that is meant."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.conversation.profiles import choose
from emulator.core.errors import NotFound, UpstreamFailed
from emulator.settings.settings import Settings
from emulator.settings.upstream_settings import Grammar
from emulator.upstream.routes import Route, Routes
from emulator.upstream.servers import ServerKind, describe_models, identify_server
from emulator.upstream.upstreams import Upstreams


@dataclass(frozen=True)
class FitServer:
    route: Route
    kind: ServerKind
    chat_template: str = ""
    """The text of the model's chat template, if the server shows it."""
    small: bool = False
    """The model may be too small to write programs."""

    @property
    def model(self) -> str:
        """The upstream's name of the model."""
        return self.route.model

    @property
    def grammar(self) -> Grammar:
        """How the server accepts a JSON Schema; a server of unknown kind may know OpenAI's field."""
        return "json_schema" if self.kind.schema_field == "off" else self.kind.schema_field


def describe_server(settings: Settings, model: str) -> FitServer:
    """Ask the server of ``model``, or of the first model that it lists if that is "".

    Raises `UpstreamFailed` if it does not answer, and `NotFound` if no model is known.
    """
    routes = Routes(settings)
    target = routes.of(model).target if model else routes.default()
    upstreams = Upstreams(settings)
    try:
        upstream = upstreams.of(target).upstream
        try:
            models = upstream.models(None)
        except UpstreamFailed as error:
            if error.status >= 500 or not model:
                raise
            models = []
        if not model:
            if not models:
                raise NotFound("The upstream lists no model: name one with --model.")
            model = target.client_name(models[0]["id"])
        owners = [each["owned_by"] for each in models]
        kind = identify_server(target.settings.base_url, owners, upstream.at_root)
        routes.descriptions[target.name] = describe_models(models, kind, upstream.at_root)
        properties = upstream.at_root("/props")
    finally:
        upstreams.close()
    route = routes.of(model)
    templates = properties if isinstance(properties, dict) else {}
    # llama.cpp: some models have another template for requests with tools.
    template = templates.get("chat_template_tool_use") or templates.get("chat_template")
    template = template if isinstance(template, str) else ""
    return FitServer(
        route, kind, template, small=choose("auto", route.model, (), route.description).few_shot
    )
