"""Write the table of docs/settings.md from `Settings`: ``python -m tests.support.settings_table``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from emulator.settings.command_line import GROUPS, choices, flag, flag_settings
from emulator.settings.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
_BEGIN, _END = "<!-- `make pages` writes this table -->\n", "<!-- end of the table -->\n"


def page() -> str:
    """The whole page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(_BEGIN)
    return f"{before}{_BEGIN}{_table()}\n{_END}{rest.split(_END)[1]}"


def _table() -> str:
    lines = []
    for name, field in Settings.model_fields.items():
        if name in GROUPS:
            lines += [
                "",
                f"**{GROUPS[name]}**",
                "",
                "| setting | default | meaning |",
                "|---|---|---|",
            ]
        shown = flag(name) if name in flag_settings() else name
        lines.append(f"| `{shown}` | {_default(field)} | {_meaning(field)} |")
    return "\n".join([*lines, ""])


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, bool):
        value = "on" if value else "off"
    if isinstance(value, BaseModel):  # tables, which are empty
        return ""
    return f"`{value}`" if value not in ("", None, {}) else ""


def _meaning(field: FieldInfo) -> str:
    text = re.sub(r"docs/(\w+)\.md", r"[\1](\1.md)", field.description or "")
    words = choices(field)
    return text + (f"; one of {', '.join(words)}" if words else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
