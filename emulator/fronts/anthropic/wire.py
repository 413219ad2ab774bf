"""The fields of a Messages request, its types of tools, and the betas of its header ``anthropic-beta``. Its
blocks are in `blocks`.

Of other fields only `SERVER_EXTRAS` pass, and what ``pass_fields`` names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from emulator.core.wire import APPLIED, IGNORED, Table, decisions, passed
from emulator.fronts.anthropic.blocks import BLOCKS
from emulator.fronts.anthropic.hosted_blocks import is_own

FIELDS: Table = {
    "model": APPLIED,
    "messages": APPLIED,
    "system": APPLIED,
    "tools": APPLIED,
    "tool_choice": APPLIED,
    "thinking": APPLIED,
    "output_config": APPLIED,
    "output_format": APPLIED,
    "container": APPLIED,
    "mcp_servers": APPLIED,
    "stream": APPLIED,
    "thread": APPLIED,
    "compaction": APPLIED,
    "context_management": APPLIED,
    "max_tokens": passed("max_tokens"),
    "temperature": passed("temperature"),
    "top_p": passed("top_p"),
    "top_k": passed("top_k"),
    "stop_sequences": passed("stop"),
    **dict(
        decisions(
            "compaction.instructions compaction.type container.id context_management.edits "
            "output_config.effort output_config.format output_format.schema output_format.type "
            "thinking.display thinking.type thread.previous_message_id thread.type "
            "tool_choice.disable_parallel_tool_use tool_choice.name tool_choice.type",
            APPLIED,
        )
    ),
    **dict(
        decisions(
            "container.skills output_config.task_budget thinking.block_binding thinking.budget_tokens",
            IGNORED,
        )
    ),
    "betas": IGNORED,  # the SDK sends it as a header
    "cache_control": IGNORED,
    "metadata": IGNORED,
    "service_tier": IGNORED,
    "inference_geo": IGNORED,
    "diagnostics": IGNORED,
    "speed": IGNORED,
    "fallbacks": IGNORED,
    "fallback_credit_token": IGNORED,
    "billing_policy": IGNORED,
    "user_profile_id": IGNORED,
    "workspace_id": IGNORED,
}
"""As of anthropic 2.14, anthropic.types.beta.message_create_params, and what older clients send."""

BETAS: Table = {
    **dict(
        decisions(
            "claude-code-20250219 code-execution-2025-05-22 code-execution-2025-08-25 compact-2026-01-12 "
            "compact-2026-09-04 context-management-2025-06-27 "
            "inline-tools-2026-09-15 interleaved-thinking-2025-05-14 mcp-client-2025-04-04 "
            "mcp-client-2025-11-20 mcp-client-2026-09-15 message-threads-2026-08-12 "
            "mid-conversation-output-config-2026-07-01 mid-conversation-system-clear-at-2026-08-21 "
            "mid-conversation-tool-changes-2026-07-01 structured-outputs-2025-11-13 "
            "token-counting-2024-11-01",
            APPLIED,
        )
    ),
    **dict(
        decisions(
            "computer-use-2024-10-22 computer-use-2025-01-24 computer-use-2025-11-24 "
            "output-128k-2025-02-19 dev-full-thinking-2025-05-14 context-1m-2025-08-07 "
            "model-context-window-exceeded-2025-08-26 fast-mode-2026-02-01 "
            "output-300k-2026-03-24 user-profiles-2026-03-24 user-profiles-2026-08-18 "
            "user-profiles-2026-09-04 user-profiles-billing-2026-10-01 advisor-tool-2026-03-01 "
            "managed-agents-2026-04-01 dreaming-2026-04-21 thinking-token-count-2026-05-13 "
            "server-side-fallback-2026-06-01 server-side-fallback-2026-07-01 fallback-credit-2026-06-01 "
            "fallback-credit-2026-07-01 agent-memory-2026-07-22 mcp-tunnels-2026-06-22 "
            "task-budgets-2026-03-13 thinking-display-updates-2026-08-18 "
            "thinking-binding-controls-2026-08-01 ce-plugins-2026-09-01 spend-limit-reads-2026-09-26 "
            "telemetry-destinations-2026-08-11 webhooks-2026-10-07 admin-user-sign-out-2026-10-08 "
            "analytics-usage-cost-2026-08-24 experimental-claude-tag-2026-10-21 "
            "message-batches-2024-09-24 prompt-caching-2024-07-31 pdfs-2024-09-25 "
            "token-efficient-tools-2025-02-19 files-api-2025-04-14 extended-cache-ttl-2025-04-11 "
            "skills-2025-10-02 cache-diagnosis-2026-04-07 ce-user-management-2026-07-13 "
            "ce-claude-code-managed-settings-2026-10-06 efs-2026-10-01 "
            "google-managed-data-controls-2026-09-01",
            IGNORED,
        )
    ),
}
"""As of anthropic 2.14, anthropic.types.anthropic_beta_param, and those that Claude Code sends besides. The
same name with another date is another feature."""

TOOLS: Table = {
    **dict(
        decisions(
            "custom bash_20241022 bash_20250124 text_editor_20241022 text_editor_20250124 "
            "text_editor_20250429 text_editor_20250728 memory_20250818 code_execution_20250522 "
            "code_execution_20250825 code_execution_20260120 code_execution_20260521 mcp_toolset "
            "tool_search_tool_bm25 tool_search_tool_bm25_20251119 tool_search_tool_regex "
            "tool_search_tool_regex_20251119",
            APPLIED,
        )
    ),
    **dict(
        decisions(
            "advisor_20260301 browser_toolset_20260801 computer_20241022 computer_20250124 "
            "computer_20251124 computer_toolset_20260801 web_fetch_20250910 web_fetch_20260209 "
            "web_fetch_20260309 web_fetch_20260318 web_search_20250305 web_search_20260209 "
            "web_search_20260318",
            IGNORED,
        )
    ),
}
"""As of anthropic 2.14, anthropic.types.beta.beta_tool_union_param. What is ignored, or of another type, runs
only if the operator serves the type; otherwise `x-emulator-dropped-tools` names it."""

_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_MAX_NAMES = 100
"""In a header."""


def ignored_betas(header: str) -> list[str]:
    """The betas without effect, in the order of the header ``anthropic-beta``. What is no name is none."""
    names = dict.fromkeys(name.strip() for name in header.split(","))
    return _without_effect(BETAS, names)


def ignored_blocks(contents: Iterable[str | Sequence[Mapping[str, Any]]]) -> list[str]:
    """The types of blocks of an assistant that are skipped, each once; not of calls that ran here, whose
    results the stored history has."""
    blocks = (block for content in contents if not isinstance(content, str) for block in content)
    kinds = (str(block.get("type")) for block in blocks if not is_own(block))
    table = {kind: row.decision for kind, row in BLOCKS.items()}
    return _without_effect(table, dict.fromkeys(kinds))


def _without_effect(table: Table, names: Iterable[str]) -> list[str]:
    known = (name for name in names if _NAME.fullmatch(name))
    return [name for name in known if table.get(name, IGNORED) is not APPLIED][:_MAX_NAMES]
