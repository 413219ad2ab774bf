"""The fields of a Responses request. Of others only `SERVER_EXTRAS` pass, and what ``pass_fields`` names."""

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
    "prompt": refused("Prompt templates are not supported; send input and instructions."),
    "moderation": refused("Moderation is not supported; remove moderation."),
}
"""As of openai 3.57, openai.types.responses.response_create_params; ``stream_id`` is of its WebSocket."""

ITEMS: Table = dict(
    decisions(
        "message function_call function_call_output custom_tool_call custom_tool_call_output reasoning "
        "program program_output mcp_call mcp_list_tools mcp_approval_request mcp_approval_response "
        "code_interpreter_call local_shell_call local_shell_call_output shell_call shell_call_output "
        "apply_patch_call apply_patch_call_output computer_call computer_call_output web_search_call "
        "file_search_call image_generation_call tool_search_call tool_search_output additional_tools "
        "configuration_update compaction compaction_trigger item_reference",
        APPLIED,
    )
)
"""As of openai 3.57, openai.types.responses.response_input_item_param. Other items are refused: what they
say would be missing from the conversation."""

PARTS: Table = dict(
    decisions(
        "input_text input_image input_file output_text refusal text summary_text reasoning_text",
        APPLIED,
    )
)
"""As of openai 3.57, openai.types.responses.response_input_content_param, and what outputs have. Others are
refused."""

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
