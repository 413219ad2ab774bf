"""`/models`: as OpenAI lists them, as Anthropic does, and as Codex asks for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, request

from emulator.core.errors import BadRequest, NotFound
from emulator.upstream.upstreams import Upstreams
from emulator.web.middleware.error_replies import speaks_anthropic
from emulator.web.routes.replies import client, json_reply

_MOST_ROWS = 1000
_LAST_SECOND = 253_402_300_799
"""Of the year 9999: a server may list any number."""
_CODEX_INSTRUCTIONS = """You are a coding agent in the user's terminal, in their working directory.

- Read what you change before you change it: `rg` finds text and files fast.
- Change the cause of a fault, in the style of the code around it, and no more than the task needs.
- Apply changes with apply_patch. Do not undo changes that you did not make.
- Run the tests or the program if there are any, and go on until the task is done.
- At the end say in a few sentences what you did, and what you could not check.
"""


def add_routes(api: Blueprint, upstreams: Upstreams) -> None:
    @api.get("/models")
    def list_models() -> Response:
        models = upstreams.models(client())
        if speaks_anthropic():
            return json_reply(_anthropic_page([*map(_for_anthropic, models)], request.args))
        if "client_version" in request.args:
            rows = [_for_codex(model, n) for n, model in enumerate(models)]
            return json_reply({"models": rows})
        return json_reply({"object": "list", "data": models})

    @api.get("/models/<path:name>")
    def retrieve_model(name: str) -> Response:
        for model in upstreams.models(client()):
            if model.get("id") == name:
                return json_reply(_for_anthropic(model) if speaks_anthropic() else model)
        raise NotFound(f"The model {name!r} does not exist.", "model", "model_not_found")


def _for_anthropic(model: Mapping[str, Any]) -> dict[str, Any]:
    """A row of Anthropic's list (Models API, "List models"). No server says when its model was released."""
    created = datetime.fromtimestamp(min(max(0, model.get("created") or 0), _LAST_SECOND), UTC)
    return {
        "type": "model",
        "id": model["id"],
        "display_name": model["id"],
        "created_at": created.isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": model.get("context_length"),
        "max_tokens": model.get("context_length"),
    }


def _anthropic_page(rows: list[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """The page that a query string asks for. Raises `BadRequest`."""
    limit = query.get("limit", "20")
    if not re.fullmatch("[0-9]{1,4}", limit) or not 1 <= int(limit) <= _MOST_ROWS:
        raise BadRequest(f"limit: expected an integer from 1 to {_MOST_ROWS}.", "limit")
    size, names = int(limit), [row["id"] for row in rows]
    first, last = 0, len(rows)
    for name in ("after_id", "before_id"):
        if (cursor := query.get(name)) is not None and cursor not in names:
            raise BadRequest(f"{name}: no listed model has this id.", name)
    if "before_id" in query:
        last = names.index(query["before_id"])
        first = max(0, last - size)
        has_more = first > 0
    else:
        first = names.index(query["after_id"]) + 1 if "after_id" in query else 0
        has_more, last = first + size < last, min(last, first + size)
    shown = rows[first:last]
    return {
        "data": shown,
        "has_more": has_more,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
    }


def _for_codex(model: Mapping[str, Any], place: int) -> dict[str, Any]:
    """A row with the fields that Codex requires (codex-rs/protocol/src/openai_models.rs)."""
    length = model.get("context_length")
    return {
        "slug": model["id"],
        "display_name": model["id"],
        "description": f"served by {model['owned_by']}",
        "supported_reasoning_levels": [],
        "shell_type": "shell_command",
        "visibility": "list",
        "supported_in_api": True,
        "priority": place,
        "additional_speed_tiers": [],
        "availability_nux": None,
        "upgrade": None,
        "base_instructions": _CODEX_INSTRUCTIONS,
        "supports_reasoning_summaries": False,
        "default_reasoning_summary": "auto",
        "support_verbosity": False,
        "default_verbosity": None,
        "apply_patch_tool_type": "freeform",
        "web_search_tool_type": "text",
        "truncation_policy": {"mode": "bytes", "limit": 10_000},
        "supports_parallel_tool_calls": True,
        "supports_image_detail_original": False,
        "supports_search_tool": False,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"],
        **({"context_window": length, "max_context_window": length} if length else {}),
    }
