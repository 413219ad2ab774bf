"""Make docs/formats.md from formats.md: ``python -m tests.support.format_table``."""

from __future__ import annotations

from pathlib import Path

from tests.support.agent_syntaxes import AGENT_SYNTAXES
from tests.support.formats import FORMATS, VARIANTS

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"

_HEAD = """# Formats: how models write calls

Every syntax below is read as a call, whichever model writes it; no configuration is needed. The tests try each in
{count} variants (nested, tags in values, cut off, ...), whole, character by character and in random pieces: a reply that is
cut off never makes a call that the whole reply does not make.

[formats.md](../tests/support/formats.md) has a sample of each and the parsers of other servers that read it; `make pages` makes
this page from it. To add a format, see [CONTRIBUTING.md](../CONTRIBUTING.md).

"""

_UNREAD = """
## What cannot be read

The model is asked about these, or they remain text; they never become another call. *Stripped* is what remains when a
server removes special tokens.

"""

_AGENTS = """
## What agents' own prompts teach

These count if exactly one command tool (`bash`, `shell`, `run_command`, ...) or `apply_patch` is offered. The fence of a
shell is a command only if it is the reply's only one and ends it. [Samples](../tests/support/agent_syntaxes.py).

"""

_SERVERS = ("vLLM", "SGLang", "llama.cpp")


def page() -> str:
    """The whole page."""
    read = [one for one in FORMATS if one.source.startswith(_SERVERS)]
    taught = [one for one in FORMATS if one not in read]
    parts = [_HEAD.format(count=len(VARIANTS))]
    parts.append("## What parsers of vLLM, SGLang or llama.cpp read\n\n")
    parts += [f"- {one.name}\n" for one in read]
    parts.append("\n## What prompts, APIs and data sets teach\n\n")
    parts += [f"- {one.name}: {one.source}\n" for one in taught]
    parts.append(_UNREAD)
    parts += [
        f"- {one.name}, {variant}: {reason}\n"
        for one in FORMATS
        for variant, reason in one.unread.items()
    ]
    parts.append(_AGENTS)
    for source in dict.fromkeys(one.source for one in AGENT_SYNTAXES):
        syntaxes = "; ".join(one.name for one in AGENT_SYNTAXES if one.source == source)
        parts.append(f"- {source}: {syntaxes}\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
