"""Which models a client may use: those that its `Grant` lists, by the names that clients use.

A key with such a list is refused everything else in a request that could choose a model. Aliases and
fallbacks in the settings are the operator's decision, and are followed wherever they lead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl

from emulator.core.client_keys import Grant
from emulator.core.errors import Forbidden
from emulator.upstream.named_model import BodyModel

_MODEL_FIELDS = frozenset(
    {
        *(
            "models",
            "fallbacks",
            "context_window_fallbacks",
            "content_policy_fallbacks",
            "model_list",
        ),
        *(
            "user_config",
            "router_settings_override",
            "specific_deployment",
            "deployment_id",
            "engine",
        ),
        *("model_id", "model_name", "preset", "extra_query"),
    }
)
"""Fields that name further models to OpenRouter, LiteLLM and Azure."""
_CONTENT = frozenset({"input", "documents", "messages", "metadata", "response_format", "tools"})
"""Fields whose values are texts and schemas, in which ``model`` is an ordinary word."""
_MODEL_PATHS = re.compile(r"(?:^|/)(?:engines|deployments|models)/", re.IGNORECASE)
"""Azure and others have the model in the path."""


def check_model(grant: Grant, model: str, fields: Mapping[str, object] | None = None) -> None:
    """``fields`` are the request's other fields. Raises `Forbidden`."""
    if grant.any_model:
        return
    if not grant.may_use(model):
        raise _forbidden(grant, f"the model {model[:200]!r}", "model")
    for name in _further_models(fields or {}):
        raise _forbidden(grant, f"models that are named by {name[:200]!r}", name[:200])


def check_passed_on(grant: Grant, path: str, query: bytes, named: BodyModel) -> None:
    """Like `check_model`, for a request that is passed on: only the model in it is known."""
    if grant.any_model:
        return
    if named.name is None or _MODEL_PATHS.search(path):
        subject = "requests that do not name their model exactly once, in the body"
        raise _forbidden(grant, subject, "model")
    others = {name: value for name, value in named.json_fields.items() if name != "model"}
    check_model(grant, named.name, others)
    names = [one.name for one in named.form_fields if one.name != "model"]
    for name in _model_names([*names, *(name for name, _ in query_fields(query))]):
        raise _forbidden(grant, f"models that are named by {name[:200]!r}", name[:200])


def query_fields(query: bytes) -> list[tuple[str, str]]:
    return parse_qsl(query.decode(errors="replace"), keep_blank_values=True)


def _further_models(fields: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of fields that could choose a model, at any depth."""
    yield from _model_names(fields)
    waiting = [value for name, value in fields.items() if name not in _CONTENT]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            # In a schema the name of a property is followed by an object.
            yield from _model_names(
                name for name, inner in value.items() if isinstance(inner, str | list)
            )
            waiting += value.values()


def _model_names(names: Iterable[str]) -> Iterator[str]:
    """Yield names that a server may read as a model's: Go ignores case; PHP and Rails know ``a[model]``."""
    for name in names:
        for part in re.split(r"[\[\].]", name.casefold()):
            if part.strip(" \0") == "model" or part in _MODEL_FIELDS:
                yield name


def _forbidden(grant: Grant, subject: str, param: str) -> Forbidden:
    return Forbidden(
        f"The API key {grant.name!r} does not have access to {subject}.", param, "model_not_found"
    )
