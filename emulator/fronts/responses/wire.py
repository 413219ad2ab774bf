"""The fields and the tools of a Responses request; its items are `item_table.ITEMS`.

Of other fields only `SERVER_EXTRAS` pass, and what ``pass_fields`` names.
"""

from __future__ import annotations

from emulator.core.wire import APPLIED, IGNORED, Table, decisions, passed, refused

FIELDS: Table = {
    "model": APPLIED,
    "input": APPLIED,
    "instructions": APPLIED,
    "previous_response_id": APPLIED,
    "conversation": APPLIED,
    "tools": APPLIED,
    "tool_choice": APPLIED,
    "parallel_tool_calls": APPLIED,
    "max_tool_calls": APPLIED,
    "text": APPLIED,
    "reasoning": APPLIED,
    "include": APPLIED,
    "top_logprobs": APPLIED,
    "context_management": APPLIED,
    "prompt_cache_options": APPLIED,
    "background": APPLIED,
    "store": APPLIED,
    "stream": APPLIED,
    "stream_options": APPLIED,
    "metadata": APPLIED,
    "temperature": passed("temperature"),
    "top_p": passed("top_p"),
    "max_output_tokens": passed("max_tokens"),
    "user": passed("user"),
    "safety_identifier": passed("safety_identifier"),
    "prompt_cache_key": passed("prompt_cache_key"),
    "truncation": IGNORED,
    "service_tier": IGNORED,
    "prompt_cache_retention": IGNORED,
    "background_options": IGNORED,
    "access_programs": IGNORED,
    "image": IGNORED,
    "stream_id": IGNORED,
    **dict(
        decisions(
            "conversation.id prompt_cache_options.prewarm reasoning.effort reasoning.generate_summary "
            "reasoning.summary text.format text.verbosity tool_choice.function tool_choice.mode "
            "tool_choice.name tool_choice.server_label tool_choice.tools tool_choice.type",
            APPLIED,
        )
    ),
    **dict(
        decisions(
            "prompt_cache_options.comparison_response_id prompt_cache_options.mode prompt_cache_options.ttl "
            "reasoning.context reasoning.mode stream_options.include_obfuscation",
            IGNORED,
        )
    ),
    "prompt": refused("Prompt templates are not supported; send input and instructions."),
    "moderation": refused("Moderation is not supported; remove moderation."),
}
"""As of openai 3.57, openai.types.responses.response_create_params; ``stream_id`` is of its WebSocket."""

TOOLS: Table = {
    **dict(
        decisions(
            "function custom namespace code_interpreter local_shell shell apply_patch mcp tool_search "
            "programmatic_tool_calling",
            APPLIED,
        )
    ),
    **dict(
        decisions(
            "web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11 "
            "file_search image_generation computer computer_use_preview",
            IGNORED,
        )
    ),
}
"""As of openai 3.57, openai.types.responses.tool_param. What is ignored, or of another type, runs only if the
operator serves the type; otherwise `x-emulator-dropped-tools` names it."""
