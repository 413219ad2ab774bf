"""Make docs/formats.md from formats.md: ``python -m tests.support.format_table``."""

from __future__ import annotations

from pathlib import Path

from tests.support.agent_syntaxes import AGENT_SYNTAXES
from tests.support.formats import FORMATS, VARIANTS

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"

_HEAD = """# Formats: how models write calls

Every syntax below is read as a call, whichever model writes it; no configuration is needed. The tests try each in
{count} variants ({variants}), whole, character by character, in random pieces, and cut off at every character: a reply
that is cut off never makes a call that the whole reply does not make.

[formats.md](../tests/support/formats.md) has a sample of each, and is the table from which `make formats` makes this page. To
add a format, add a section there: [CONTRIBUTING.md](../CONTRIBUTING.md).

| Format | Read elsewhere by, or taught by |
| --- | --- |
"""


_UNREAD = """
## What cannot be read

The model is asked about these, or they remain text; they never become another call. *Stripped* is what remains when a
server removes special tokens.

"""


_AGENTS = """
## What agents' own prompts teach

These count if exactly one command tool (`bash`, `shell`, `run_command`, ...) or `apply_patch` is offered. The fence of a
shell is a command only if it is the only one in the reply and ends it; otherwise it is documentation. Samples:
`tests/support/agent_syntaxes.py`.

| Syntax | Taught by | Offered |
| --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD.format(count=len(VARIANTS), variants=", ".join(VARIANTS))]
    parts += [f"| {one.name} | {one.source.replace('`', '')} |\n" for one in FORMATS]
    parts.append(_UNREAD)
    parts += [
        f"- {one.name}, {variant}: {reason}\n"
        for one in FORMATS
        for variant, reason in one.unread.items()
    ]
    parts.append(_AGENTS)
    parts += [f"| {one.name} | {one.source} | {', '.join(one.tools)} |\n" for one in AGENT_SYNTAXES]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
