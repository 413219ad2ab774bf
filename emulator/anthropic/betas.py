"""The header ``anthropic-beta``: which of the features that a client asks for are not here."""

from __future__ import annotations

import re

_SERVED = frozenset(
    "claude-code code-execution files-api inline-tools interleaved-thinking mcp-client message-threads "
    "mid-conversation-output-config mid-conversation-system-clear-at mid-conversation-tool-changes "
    "structured-outputs token-counting".split()
)
"""Features without their dates; those that are on without a header, too."""
_DATE = re.compile(r"-\d{4}-?\d{2}-?\d{2}\Z")
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_MOST = 16


def ignored_betas(header: str) -> list[str]:
    """The betas without effect, in order; at most 16, and no text that is not a name."""
    names = dict.fromkeys(name.strip() for name in header.split(","))
    ignored = [
        name for name in names if _NAME.fullmatch(name) and _DATE.sub("", name) not in _SERVED
    ]
    return ignored[:_MOST]
