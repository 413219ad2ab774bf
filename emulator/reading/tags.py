"""The tags and tokens that open reasoning or a block anywhere in prose.

Adding a model's habit is adding a row. Knows nothing of what stands inside a block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Reasoning: opening -> closing.
REASONING = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|channel|>analysis<|message|>": "<|end|>",
    "[THINK]": "[/THINK]",
}


@dataclass(frozen=True)
class Tag:
    """Opens a block anywhere in prose.

    `framed`: the tags are not part of the block's text, because the reader knows none.
    `endless`: the block may last as long as the reply. A closing that equals the opening begins
    the next block.
    """

    opening: str
    dialect: str
    closings: tuple[str, ...]
    framed: bool = False
    endless: bool = False


def _element(name: str, dialect: str = "markup", *, framed: bool = False) -> Tag:
    return Tag(f"<{name}>", dialect, (f"</{name}>", f"<{name}>"), framed)


_ENDS = ("<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>")

TAGS: tuple[Tag, ...] = (
    _element("tool_call"),
    _element("tool_calls"),
    _element("function_call"),
    _element("function_calls"),
    _element("functioncall"),
    _element("tool_use"),
    _element("tool_code", "python", framed=True),
    _element("execute", "python", framed=True),
    _element("minimax:tool_call"),
    Tag("<function=", "markup", ("</function>",)),
    Tag("<invoke name=", "markup", ("</invoke>",)),
    Tag("<|tool_call|>", "markup", ("<|/tool_call|>", "<|tool_call|>", *_ENDS), endless=True),
    Tag("<|tool_call_start|>", "markup", ("<|tool_call_end|>", *_ENDS)),
    Tag("<|START_ACTION|>", "markup", ("<|END_ACTION|>",)),
    Tag("<start_function_call>", "markup", ("<end_function_call>",)),
    Tag("<｜tool▁calls▁begin｜>", "markup", ("<｜tool▁calls▁end｜>", "<｜end▁of▁sentence｜>")),
    Tag("<｜tool▁call▁begin｜>", "markup", ("<｜tool▁call▁end｜>", "<｜end▁of▁sentence｜>")),
    Tag("<|tool_calls_begin|>", "markup", ("<|tool_calls_end|>", *_ENDS)),
    Tag("<|tool▁calls▁begin|>", "markup", ("<|tool▁calls▁end|>", *_ENDS)),
    Tag("<|tool_calls_section_begin|>", "markup", ("<|tool_calls_section_end|>", *_ENDS)),
    Tag("<|channel|>commentary to=", "markup", ("<|call|>", "<|end|>", "<|return|>")),
    Tag("<|python_tag|>", "markup", _ENDS, endless=True),
    Tag("[TOOL_CALLS]", "markup", ("</s>", *_ENDS), endless=True),
    Tag("functools[", "markup", _ENDS, endless=True),
)


def tags_for(names: Iterable[str]) -> dict[str, Tag]:
    """All tags by opening; an element may also be called like the function it calls."""
    own = [_element(name) for name in names if re.fullmatch(r"[A-Za-z_][\w.\-]*", name)]
    return {tag.opening: tag for tag in (*own, *TAGS)}
