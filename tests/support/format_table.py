"""docs/formats.md, made of the table of formats: ``python -m tests.support.format_table``."""

from __future__ import annotations

from pathlib import Path

from tests.support.agent_syntaxes import AGENT_SYNTAXES
from tests.support.formats import FORMATS, VARIANTS, Format, reply

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"

_HEAD = """# Formats: how models write calls

Every syntax below is read as a call, whichever model writes it; nothing is to be configured. The page \
is made of the table in
`tests/support/formats.py` (`make formats`), and each row is tested in {count} variants: {variants}. \
Each is fed whole, character by
character and in random cuts, and cut off at every character: then nothing is called that the whole reply \
does not call.

*State* says what is not read; the model is asked about that, or it stays text, and never becomes \
another call. *Stripped* is what
is left when a server removes special tokens.

To add a format, add a row and look at its sample here: [CONTRIBUTING.md](../CONTRIBUTING.md).

"""


_AGENTS = """
## What agents' own prompts teach

No call stands around these: they count where one tool of commands (`bash`, `shell`, `run_command`, ...) or
`apply_patch` is offered. A fence of a shell is a command only where it is the reply's only one and ends it;
elsewhere it is documentation. `tests/support/agent_syntaxes.py` has the samples.

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
