"""One row for each type of input item: what its messages are made of. Others are refused: what they say would
be missing from the conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.fronts.responses import hosted_items, item_types, tool_items
from emulator.fronts.responses.item_types import Item

Json = dict[str, Any]


@dataclass(frozen=True)
class ItemType:
    prefix: str = "item_"
    """Of ids that are made here, for an item of an answer, or for one of the input that has none."""
    model: type[Item] | None = None
    """What the history reads (`history`)."""
    convert: Callable[[Json], Iterator[Json]] | None = None
    """To a function call, its output, or both. Without a model and a conversion, the model sees nothing of
    the item: it is the request's (`tools.added_tools`, `configuration`, `compaction`)."""
    separates: bool = False
    """Text before and after such an item of an answer is kept apart."""


ITEMS: Mapping[str, ItemType] = {
    "message": ItemType("msg_", item_types.MessageItem),
    "reasoning": ItemType("rs_", item_types.ReasoningItem),
    "function_call": ItemType("fc_", item_types.FunctionCallItem),
    "function_call_output": ItemType("fco_", item_types.CallOutputItem),
    "custom_tool_call": ItemType("ctc_", item_types.CustomCallItem),
    "custom_tool_call_output": ItemType("ctco_", item_types.CallOutputItem),
    "program": ItemType("prog_", item_types.ProgramItem),
    "program_output": ItemType("prog_out_", item_types.ProgramOutputItem),
    "code_interpreter_call": ItemType("ci_", item_types.CodeCallItem, separates=True),
    "compaction": ItemType("cmp_", item_types.CompactionItem),
    "item_reference": ItemType("", item_types.ReferenceItem),
    # What the client's own tools do.
    "local_shell_call": ItemType("lsh_", convert=tool_items.local_shell),
    "local_shell_call_output": ItemType("lsho_", convert=tool_items.local_shell_output),
    "shell_call": ItemType(hosted_items.SHELL_CALL, convert=tool_items.shell),
    "shell_call_output": ItemType(
        hosted_items.SHELL_OUTPUT, convert=tool_items.shell_output, separates=True
    ),
    "apply_patch_call": ItemType("apc_", convert=tool_items.apply_patch),
    "apply_patch_call_output": ItemType("apco_", convert=tool_items.patch_output),
    "computer_call": ItemType("cu_", convert=tool_items.computer),
    "computer_call_output": ItemType("cuo_", convert=tool_items.screenshot),
    # What servers do. The ids of what ran here have their calls' ids, so no others get such a prefix.
    "web_search_call": ItemType(convert=tool_items.web_search, separates=True),
    "file_search_call": ItemType(convert=tool_items.file_search, separates=True),
    "image_generation_call": ItemType(convert=tool_items.image, separates=True),
    "tool_search_call": ItemType(convert=hosted_items.tool_search),
    "tool_search_output": ItemType(convert=hosted_items.found_tools),
    "mcp_call": ItemType(hosted_items.CALL, convert=hosted_items.mcp_call, separates=True),
    "mcp_approval_request": ItemType(hosted_items.APPROVAL, convert=hosted_items.approval_request),
    "mcp_approval_response": ItemType("mcpa_", item_types.ApprovalResponseItem),
    # What says something about the request.
    "mcp_list_tools": ItemType("mcpl_"),
    "additional_tools": ItemType(),
    "configuration_update": ItemType(),
    "compaction_trigger": ItemType(),
}
"""As of openai 3.57, openai.types.responses.response_input_item_param."""
