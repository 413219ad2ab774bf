"""The fields of a Responses request. Of others only `SERVER_EXTRAS` pass, and what ``pass_fields`` names."""

from __future__ import annotations

from emulator.core.wire import APPLIED, IGNORED, Table, passed, refused

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
    "prompt_cache_options": IGNORED,
    "background_options": IGNORED,
    "access_programs": IGNORED,
    "image": IGNORED,
    "stream_id": IGNORED,
    "prompt": refused("Prompt templates are not supported; send input and instructions."),
    "moderation": refused("Moderation is not supported; remove moderation."),
}
"""As of openai 3.57, openai.types.responses.response_create_params; ``stream_id`` is of its WebSocket."""
