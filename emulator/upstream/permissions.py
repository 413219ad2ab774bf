"""Which models a client may use: those that its `Grant` lists, by the names that clients use.

A key with such a list is refused everything else in a request that could choose a model. Aliases and
fallbacks in the settings are the operator's decision, and are followed wherever they lead.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import parse_qs

from emulator.client_keys import Grant
from emulator.errors import Forbidden
from emulator.upstream.named_model import BodyModel

_MODEL_FIELDS = frozenset(
    {"models", "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "model_list"}
)
"""Fields that name further models to OpenRouter and LiteLLM."""
_MODEL_PATHS = re.compile(r"(?:^|/)(?:engines|deployments|models)/", re.IGNORECASE)
"""Azure and others have the model in the path."""
_FORM_FIELD = re.compile(rb"name\*?\s*=\s*\"?model", re.IGNORECASE)


def check_model(grant: Grant, model: str, field_names: Collection[str] = ()) -> None:
    """``field_names`` are the request's other fields. Raises `Forbidden`."""
    if grant.any_model:
        return
    if not grant.may_use(model):
        raise _forbidden(grant, f"the model {model[:200]!r}", "model")
    if others := sorted(_MODEL_FIELDS.intersection(field_names)):
        raise _forbidden(grant, f"models that are named by {others[0]!r}", others[0])


def check_passed_on(grant: Grant, path: str, query: bytes, named: BodyModel) -> None:
    """Like `check_model`, for a request that is passed on: only the model in it is known."""
    if grant.any_model:
        return
    is_form_with_two = not named.field_names and len(_FORM_FIELD.findall(named.body)) > 1
    if named.name is None or _MODEL_PATHS.search(path) or is_form_with_two:
        subject = "requests that do not name their model exactly once, in the body"
        raise _forbidden(grant, subject, "model")
    in_query = parse_qs(query.decode(errors="replace")).get("model", [])
    for model in (named.name, *in_query):
        check_model(grant, model, named.field_names)


def _forbidden(grant: Grant, subject: str, param: str) -> Forbidden:
    return Forbidden(
        f"The API key {grant.name!r} does not have access to {subject}.", param, "model_not_found"
    )
