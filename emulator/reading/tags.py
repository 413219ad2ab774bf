"""The tags and tokens that open reasoning or a block anywhere in prose, and those that carry no
meaning.

To add a model's habit, add a row. Knows nothing of the content of a block.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from emulator.core.command_tools import COMMAND_TOOLS
from emulator.reading.argument_scan import ArgumentScan
from emulator.reading.elements import ATTRIBUTE_BEFORE, ATTRIBUTES_BEFORE
from emulator.reading.events import Verdict
from emulator.reading.lexing import PythonScan
from emulator.reading.tool_names import ToolNames

_ANTHROPIC = "antml"

#: Reasoning: opening -> closing.
REASONING = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    f"<{_ANTHROPIC}:thinking>": f"</{_ANTHROPIC}:thinking>",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
    "<longcat_think>": "</longcat_think>",
    "<ifm|think>": "</ifm|think>",
    "<ifm|think_fast>": "</ifm|think_fast>",
    "<ifm|think_faster>": "</ifm|think_faster>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|thought_start|>": "<|thought_end|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|channel|> analysis<|message|> ": "<|end|>",  # LLM-jp writes a space after each token
    "<|channel>thought": "<channel|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",
    "<|start|>assistant to=self<|message|>": "<|eom|>",
    "<|think|>": "<|end|>",
    "[THINK]": "[/THINK]",
}

#: Closing tokens that also end other things. Alone they do not prove that there was reasoning.
AMBIGUOUS = frozenset({"<|end|>", "<|eom|>", "<channel|>"})

#: Tokens that mark the beginning and the end of a message or a channel. They are removed.
SILENT = frozenset(
    {
        *("<|start|>assistant", "<|start|>assistant to=user<|message|>"),
        *("<seed:eos>", "<|eos|>", "<|role_end|>", "<end_of_sentence>"),
        *("<|channel|>final<|message|>", "<|channel|>commentary<|message|>"),
        *("<|start|> assistant", "<|channel|> final<|message|> "),
        "<|channel|> commentary<|message|> ",
        *("<|end|>", "<|return|>", "<|call|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>"),
        *("<|im_start|>assistant", "<|endoftext|>", "<|end_of_text|>", "</s>", "<end_of_turn>"),
        *(
            "<｜end▁of▁sentence｜>",
            "<|eot|>",
            "<|eom|>",
            "<|end_of_turn|>",
            "<|END_OF_TURN_TOKEN|>",
        ),
        *("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
        *("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        *(
            "<|begin|>assistant",
            "<|content|>",
            "<|tool_calls|>",
            "<|message_model|><|content_text|>",
        ),
        *(
            "<|end_message|>",
            "<|end_of_msg|>",
            "<|message_sep|>",
            "<turn|>",
            "[BEGIN FINAL RESPONSE]",
        ),
        *("[END FINAL RESPONSE]", "<end_code>", "<|assistant|>", "<|user|>", "<|observation|>"),
    }
)


#: Tokens without meaning at the beginning of a line; elsewhere prose only names them.
SILENT_LINES = frozenset({"<no_tool_call>", "</no_tool_call>", "<no_tool_call/>"})
#: Fragments of a call that is incomplete. The model is asked to write the call again.
LEFTOVER = frozenset(
    {
        *("</tool_call>", "</tool_calls>", "</function_call>", "</function_calls>", "</TOOLCALL>"),
        *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<parameter=", "</tool_use>"),
        *("<|tool_call_end|>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜tool▁sep｜>"),
        *("<|tool_calls_section_end|>", "<|tool_call_argument_begin|>", "<|/tool_call|>"),
        *("<tool_call|>", "<end_function_call>", "<|python_end|>", "<|action_end|>", "<|plugin|>"),
        *("<|channel|>", "<|message|>", "<|constrain|>", "<|START_ACTION|>", "<|END_ACTION|>"),
        *("<|tools_suffix|>", "<|tool_call:end|>", "<|tool_arg:start|>", "<|close|>call<|sep|>"),
        *("[/TOOL_CALLS]", "[ARGS]", "]<]minimax[>[", "</minimax:tool_call>", "</｜DSML｜invoke>"),
        *("</｜DSML｜tool_calls>", "</｜DSML｜function_calls>", "<｜DSML｜parameter"),
    }
)
#: Fragments that count only at the beginning of a line.
LEFTOVER_LINES = frozenset({"</parameter>", "</function>", "</invoke>", "<parameter name="})


class CodeScan:
    """Python between tags: a tag inside a string does not close the block. The methods are those of
    `ArgumentScan`.
    """

    def __init__(self) -> None:
        self._scan = PythonScan()
        self._parts: list[str] = []

    @property
    def whole(self) -> bool:
        return not self._scan.open

    def feed(self, text: str) -> None:
        *lines, rest = text.split("\n")
        for line in lines:
            self._scan.feed("".join([*self._parts, line, "\n"]))
            self._parts.clear()
        self._parts.append(rest)

    def closes(self, following: str, *, final: bool) -> Verdict:  # noqa: ARG002
        self._scan.feed("".join(self._parts))
        self._parts.clear()
        return Verdict.NO if self._scan.quote else Verdict.YES


@dataclass(frozen=True)
class Tag:
    """Opens a block anywhere in prose.

    `framed`: the tags are not part of the block's text, because its reader does not know tags.
    `endless`: the block may extend to the end of the reply. `by_name`: the element's name is the
    name of the function. `is_open`: attributes follow, up to the end of the opening tag. If a
    closing equals the opening, it begins the next block.
    """

    opening: str
    dialect: str
    closings: tuple[str, ...]
    framed: bool = False
    endless: bool = False
    by_name: bool = False
    is_open: bool = False

    def body(self) -> CodeScan | ArgumentScan:
        """Return a scanner of the block's content."""
        return CodeScan() if self.dialect == "python" else ArgumentScan(by_name=self.by_name)


def _element(name: str, dialect: str = "markup", *, framed: bool = False) -> Tag:
    return Tag(f"<{name}>", dialect, (f"</{name}>", f"<{name}>"), framed)


_ENDS = ("<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>")
_HARMONY = ("<|call|>", "<|end|>", "<|return|>", "<|eom|>", "<|eot|>")
_endless = partial(Tag, dialect="markup", endless=True)
_tokens = partial(Tag, dialect="markup")

TAGS: tuple[Tag, ...] = (
    _element("functions"),
    _element("tool_code", "python", framed=True),
    _element("execute", "python", framed=True),
    _element("code", "python", framed=True),
    _endless("<|tool_call|>", closings=("<|/tool_call|>", "<|tool_call|>", *_ENDS)),
    _tokens("<|tool_call>", closings=("<tool_call|>", *_ENDS)),
    _tokens("<|tool_call_start|>", closings=("<|tool_call_end|>", *_ENDS)),
    _tokens("<|tool_call:begin|>", closings=("<|tool_call:end|>", *_ENDS)),
    _tokens("<|tool_call:start|>", closings=("<|tool_call:end|>", *_ENDS)),
    _tokens("<|START_ACTION|>", closings=("<|END_ACTION|>",)),
    _tokens("<|action_start|>", closings=("<|action_end|>", *_ENDS)),
    _tokens("<|tools_prefix|>", closings=("<|tools_suffix|>",)),
    _tokens("<|python_start|>", closings=("<|python_end|>", *_ENDS)),
    _tokens("<start_function_call>", closings=("<end_function_call>",)),
    _tokens("<｜tool▁calls▁begin｜>", closings=("<｜tool▁calls▁end｜>", "<｜end▁of▁sentence｜>")),
    _tokens("<｜tool▁call▁begin｜>", closings=("<｜tool▁call▁end｜>", "<｜end▁of▁sentence｜>")),
    _tokens("<｜tool_calls_begin｜>", closings=("<｜tool_calls_end｜>",)),
    _tokens("<｜tool_call_begin｜>", closings=("<｜tool_call_end｜>",)),
    _tokens("<|tool_calls_begin|>", closings=("<|tool_calls_end|>", *_ENDS)),
    _tokens("<|tool▁calls▁begin|>", closings=("<|tool▁calls▁end|>", *_ENDS)),
    _tokens("<|tool_calls_section_begin|>", closings=("<|tool_calls_section_end|>", *_ENDS)),
    _tokens("<|tool_call_begin|>", closings=("<|tool_call_end|>", *_ENDS)),
    _tokens("<|open|>tools<|sep|>", closings=("<|close|>tools<|sep|>",)),
    _tokens("<|open|>call ", closings=("<|close|>call<|sep|>",)),
    _tokens("<|channel|>commentary to=", closings=_HARMONY),
    _tokens("<|channel|>analysis to=", closings=_HARMONY),
    _tokens("<|start|>assistant to=", closings=_HARMONY),
    _tokens("<|channel|> commentary to=", closings=_HARMONY),
    _tokens("<|channel|> analysis to=", closings=_HARMONY),
    _tokens("<|start|> assistant to=", closings=_HARMONY),
    _tokens("<|message_model|>", closings=("<|end_message|>",)),
    _endless("<|message_sep|>\n\nfunction call<|role_sep|>", closings=("</s>", *_ENDS)),
    _endless("function call<|role_sep|>", closings=("</s>", "<|message_sep|>", *_ENDS)),
    _endless("<|function_call|>", closings=("</s>", "<|message_sep|>", *_ENDS)),
    _endless("<|python_tag|>", closings=_ENDS),
    _endless("[TOOL_CALLS]", closings=("</s>", *_ENDS)),
    _endless("functools[", closings=_ENDS),
    _tokens("[tool_call: ", closings=("']", '"]')),
    _tokens("]<]minimax[>[<tool_call>", closings=("]<]minimax[>[</tool_call>",)),
)

_PREFIX = r"(?:\w{1,20}:|[｜|]\w{1,20}[｜|] ?|ifm\|)?"
_CALLS = "function|invoke|function_call|tool_call|tool|call"
#: Elements that contain calls, with any namespace: ``<function_calls>``, ``<｜DSML｜tool_calls>``.
_ELEMENT = re.compile(
    rf"<(?P<name>{_PREFIX}(?P<bare>(?:\w{{1,20}}_)?tool_calls?|(?:\w{{1,20}}_)?function_calls?"
    rf"|functioncall|tool_use|use_mcp_tool|TOOLCALL|invoke|(?<=[｜|] )calls)(?::\w{{1,20}})?)"
    rf"{ATTRIBUTES_BEFORE}>"
)
#: Elements whose opening tag names the function.
_CALLING = re.compile(
    rf"<(?P<name>{_PREFIX}(?:{_CALLS}))(?:(?P<equals>=)|{ATTRIBUTES_BEFORE}\s+name\s*=)"
)
_SLIP = re.compile(r"<(?P<name>[A-Za-z]\w*_\w{1,60})>")
_ELEMENT_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_WITH_ATTRIBUTE = re.compile(r"<(?P<name>[A-Za-z_][\w.\-]{0,80})\s+[\w:.\-]{1,60}\s*=\s*[\"'\w]")
_PARTIAL = re.compile(
    r"<[\w:.|｜▁\-]{0,64}\Z|<[｜|]\w{1,20}[｜|] \w{0,20}\Z"
    rf"|<{_PREFIX}(?:[A-Za-z_][\w.\-]{{0,80}})(?:{ATTRIBUTE_BEFORE}){{0,3}}"
    r"(?:\s+(?:[\w:.\-]{1,60}(?:\s*(?:=\s*(?:\"[^\"<>]{0,60}|'[^'<>]{0,60}|[^\s\"'<>/]{1,60})?)?)?)?)?\Z"
)


class Tags:
    """All tags that open a block, for the offered functions."""

    def __init__(self, names: Collection[str]) -> None:
        offered = ToolNames.of(names)
        names = set(offered)
        if offered.command:
            names |= COMMAND_TOOLS  # <execute_command>, whatever the tool's own name is
        own = [
            Tag(f"<{name}>", "markup", (f"</{name}>", f"<{name}>"), by_name=True)
            for name in sorted(names)
            if _ELEMENT_NAME.fullmatch(name)
        ]
        self.literal = {tag.opening: tag for tag in (*own, *TAGS)}

    def opening(self, head: str) -> Tag | None:
        """Return the tag that ``head`` begins with, from the table or by its form."""
        known = [tag for opening, tag in self.literal.items() if head.startswith(opening)]
        return max(known, key=lambda tag: len(tag.opening), default=None) or self.element(head)

    def element(self, head: str, names: ToolNames | None = None) -> Tag | None:
        """Return the tag of the element that ``head`` begins with. With ``names``, a misspelt
        function name counts too.
        """
        match = _CALLING.match(head)
        if match is not None:
            opening = f"<{match['name']}{match['equals'] or ''}"
            return Tag(opening, "markup", (f"</{match['name']}>",), is_open=True)
        match = _ELEMENT.match(head)
        if match is not None:
            closings = dict.fromkeys((f"</{match['name']}>", f"</{match['bare']}>", match.group()))
            return Tag(match.group(), "markup", tuple(closings))
        match = _WITH_ATTRIBUTE.match(head)
        if match is not None and names and names.find(match["name"]):
            opening = f"<{match['name']}"
            return Tag(opening, "markup", (f"</{match['name']}>",), by_name=True, is_open=True)
        match = _SLIP.match(head) if names else None
        if match is not None and names and names.find_near(match["name"]):
            return Tag(match.group(), "markup", (f"</{match['name']}>",), by_name=True)
        return None


def may_be_element(head: str) -> bool:
    """Return True if more text could turn ``head`` into the opening tag of an element."""
    return _PARTIAL.match(head) is not None
