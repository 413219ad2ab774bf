"""The header ``anthropic-beta``: which of the features that a client asks for are not here."""

from __future__ import annotations

import re

_SERVED = frozenset(
    "claude-code code-execution inline-tools interleaved-thinking mcp-client message-threads "
    "mid-conversation-output-config mid-conversation-system-clear-at mid-conversation-tool-changes "
    "structured-outputs token-counting".split()
)
"""Features without their dates; those that are on without a header, too."""
_SERVED_OF_THIS_DATE = frozenset({"compact-2026-09-04"})
"""The same name with another date is another feature: edits of ``context_management``."""
_DATE = re.compile(r"-\d{4}-?\d{2}-?\d{2}\Z")
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_MOST = 16


def ignored_betas(header: str) -> list[str]:
    """The betas without effect, in order; at most 16, and no text that is not a name."""
    names = dict.fromkeys(name.strip() for name in header.split(","))
    return [name for name in names if _NAME.fullmatch(name) and not _is_served(name)][:_MOST]


def _is_served(name: str) -> bool:
    return name in _SERVED_OF_THIS_DATE or _DATE.sub("", name) in _SERVED
