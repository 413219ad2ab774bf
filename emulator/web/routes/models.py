"""`/models`: as OpenAI lists them, and as Codex asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response, request

from emulator.core.errors import NotFound
from emulator.upstream.upstreams import Upstreams
from emulator.web.routes.replies import client, json_reply

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
        if "client_version" in request.args:
            rows = [_for_codex(model, n) for n, model in enumerate(models)]
            return json_reply({"models": rows})
        return json_reply({"object": "list", "data": models})

    @api.get("/models/<path:name>")
    def retrieve_model(name: str) -> Response:
        for model in upstreams.models(client()):
            if model.get("id") == name:
                return json_reply(model)
        raise NotFound(f"The model {name!r} does not exist.", "model", "model_not_found")


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
