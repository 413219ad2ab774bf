"""Which models a client may ask an upstream for: those that its `Grant` lists, as clients name them.

Whatever else in a request could choose a model is refused to keys with such a list. Aliases and fallbacks of
the settings are the operator's own words, and lead where they say.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import parse_qs

from emulator.client_keys import Grant
from emulator.errors import Forbidden

_CHOOSE_MODELS = frozenset(
    {"models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "model_list"}
)
"""Fields in which OpenRouter and LiteLLM are told of further models."""
_PATHS = re.compile(r"(?:^|/)(?:engines|deployments|models)/", re.IGNORECASE)
"""Azure and others have the model in the path."""
_FORM_FIELD = re.compile(rb"name\*?\s*=\s*\"?model", re.IGNORECASE)


def check_model(grant: Grant, model: str, fields: Collection[str] = ()) -> None:
    """``fields`` are the names of the request's other fields. Raises `Forbidden`."""
    if grant.any_model:
        return
    if not grant.may_use(model):
        raise _forbidden(grant, f"the model {model[:200]!r}", "model")
    if others := sorted(_CHOOSE_MODELS.intersection(fields)):
        raise _forbidden(grant, f"models that are named by {others[0]!r}", others[0])


def check_passed_on(
    grant: Grant, path: str, query: bytes, model: str | None, body: bytes, fields: Collection[str]
) -> None:
    """As `check_model`, for a request that is otherwise not read; ``model`` is what its body names."""
    if grant.any_model:
        return
    named = parse_qs(query.decode(errors="replace")).get("model", [])
    if model is None or _PATHS.search(path) or (not fields and len(_FORM_FIELD.findall(body)) > 1):
        raise _forbidden(grant, "what does not name its model, once and in the body", "model")
    for each in (model, *named):
        check_model(grant, each, fields)


def _forbidden(grant: Grant, what: str, param: str) -> Forbidden:
    return Forbidden(
        f"The API key {grant.name!r} does not have access to {what}.", param, "model_not_found"
    )
