"""Make docs/formats.md from formats.md: ``python -m tests.support.format_table``."""

from __future__ import annotations

from pathlib import Path

from tests.support.agent_syntaxes import AGENT_SYNTAXES
from tests.support.formats import FORMATS, VARIANTS, Format, reply

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"

_HEAD = """# Formats: how models write calls

Every syntax below is read as a call, whichever model writes it; no configuration is needed. This page is made from
`tests/support/formats.md` (`make formats`). Each format is tested in {count} variants: {variants}. Each variant is fed
whole, character by character and in random pieces, and cut off at every character: a reply that is cut off never calls
anything that the whole reply does not call.

*State* names the variants that cannot be read. The model is then asked about them, or they remain text; they never
become another call. *Stripped* is what remains when a server removes special tokens.

To add a format, add a section and check its sample here: [CONTRIBUTING.md](../CONTRIBUTING.md).

"""


_AGENTS = """
## What agents' own prompts teach

These have no call around them. They count if exactly one command tool (`bash`, `shell`, `run_command`, ...) or
`apply_patch` is offered. The fence of a shell is a command only if it is the only one in the reply and ends it;
otherwise it is documentation. The samples are in `tests/support/agent_syntaxes.py`.

| Syntax | Taught by | Offered |
| --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    variants = ", ".join(VARIANTS)
    parts = [_HEAD.format(count=len(VARIANTS), variants=variants)]
    parts += ["| Format | Read elsewhere by, or taught by | State |\n| --- | --- | --- |\n"]
    parts += [
        f"| {one.name} | {one.source.replace('`', '')} | {_state(one)} |\n" for one in FORMATS
    ]
    parts += ["\n## Samples\n"]
    parts += [_sample(one) for one in FORMATS]
    parts.append(_AGENTS)
    parts += [f"| {one.name} | {one.source} | {', '.join(one.tools)} |\n" for one in AGENT_SYNTAXES]
    return "".join(parts)


def _state(format: Format) -> str:
    unread = [f"not {variant}: {reason}" for variant, reason in format.unread.items()]
    return "; ".join(unread) or "read"


def _sample(format: Format) -> str:
    text = reply(format, "plain").strip("\n")
    fence = "````" if "```" in text else "```"
    return f"\n### {format.name}\n\n{fence}text\n{text}\n{fence}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
