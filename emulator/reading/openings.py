"""Where a block may begin with a line or a bracket: the tables that the splitter goes by.

Adding a model's habit is adding a row. Knows nothing of where a block ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from emulator.command_tools import COMMAND_PARAMETERS
from emulator.reading.bare_code import opens
from emulator.reading.calls import CALLS_KEYS, NAME_KEYS
from emulator.reading.named_calls import named_opens
from emulator.reading.scanner import Verdict
from emulator.reading.tool_names import WRITTEN_NAME, ToolNames

# ---------------------------------------------------------------------------- fences

#: Info string of a fence -> dialect; "" is told by the first line. What is not listed is prose
#: unless its first line calls an offered function.
FENCES = {
    **dict.fromkeys(("python", "py", "python3", "ipython", "pycon", "tool_code"), "python"),
    **dict.fromkeys(("json", "jsonc", "json5", "jsonl"), "json"),
    **dict.fromkeys(("xml", "tool_call", "tool_calls", "tool", "tools", "tool_use"), ""),
    **dict.fromkeys(("function", "function_call", "function_calls", "functions", "call"), ""),
    **dict.fromkeys(("yaml", "yml"), "yaml"),
    **dict.fromkeys(("", "code"), ""),
}

_FENCE = re.compile(
    r"(?P<indent>[ \t]*)(?P<run>`{3,}|~{3,})(?P<gap>[ \t]*)(?P<lang>[\w+#.\-]*)(?P<rest>[^\n]*)"
)


@dataclass(frozen=True)
class Fence:
    """An opening fence. `raw` is all of it up to where the code begins."""

    indent: str
    run: str
    language: str
    raw: str
    code: str = ""  # code on the fence's own line


def fence_in(line: str, names: ToolNames) -> Fence | None:
    """The fence that a whole line opens, if it opens one."""
    match = _FENCE.match(line)
    if match is None:
        return None
    indent, run, language = match["indent"], match["run"], match["lang"].lower()
    begin = match.end("gap")
    if match["rest"].startswith("(") and names.find(match["lang"]):
        return Fence(indent, run, "", line[:begin], line[begin:])  # ```f(a=1)
    rest = match["rest"].strip()
    if rest and begins_with_call(rest, names):
        begin = match.start("rest") + len(match["rest"]) - len(match["rest"].lstrip())
        return Fence(indent, run, language, line[:begin], line[begin:])  # ```python f(a=1)
    if run[0] == "`" and "`" in rest:
        return None  # ```inline code``` in a sentence
    return Fence(indent, run, language, line)


def begins_with_call(text: str, names: ToolNames) -> bool:
    """Whether the text begins with a call of an offered function, perhaps printed or in a list."""
    bare = re.sub(r"^(?:\s|[\[(]|await |print\(|[^\W\d]\w* = )*", "", text)
    word = WRITTEN_NAME.match(bare)
    return bool(word and names.find(word.group()) and bare.startswith("(", word.end()))


#: How the first line of a block that does not say what it is begins. The first that matches wins.
_SNIFFED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<|\[TOOL_CALLS\]|functools\["), "markup"),
    (re.compile(r"\{|\[\s*\{"), "json"),
    (re.compile(r"\**Action\**\s*:", re.IGNORECASE), "react"),
    (
        re.compile(r"(?:- )?(?:name|function|tool|tool_name|function_name|tool_calls?):(?:\s|\Z)"),
        "yaml",
    ),
)


_PATCHES = re.compile(r"\*\*\* Begin Patch\b|apply_patch\s+<<")


def sniff(line: str, language: str, names: ToolNames) -> str | None:
    """The dialect of a fence by its language and first line; None for documentation."""
    text = line.strip()
    if text.startswith("Traceback (most recent call last)"):
        return None
    if names.patch and _PATCHES.match(text):
        return "patch"
    if begins_with_call(text, names):
        return "python"
    dialect = FENCES.get(language)
    if dialect == "":
        dialect = next((name for form, name in _SNIFFED if form.match(text)), "python")
        # ```tool_call, the name, then the arguments as JSON
        if dialect == "python" and names.find(text.rstrip(":")):
            return "markup"
    return dialect


# ---------------------------------------------------------------------------- lines

_JSON_HEAD = re.compile(
    r"""[ \t]*(?P<list>\[\s*)?\{\s*(?P<quote>["']?)(?P<key>[\w\-.]+)(?P=quote)\s*:\s*"""
    r"""(?:(?P<open>[\[{])|(?P<mark>["'])(?P<value>[^"'\n]*)(?P=mark)|(?P<other>[^\s\[{"']))"""
)
_JSON_PART = re.compile(
    r"""[ \t]*(?:\[\s*)?(?:\{\s*(?:["']?[\w\-.]*(?:["']?\s*(?::\s*(?:["'][^"'\n]*)?)?)?)?)?"""
)
#: Brackets in a row, which a hostile reply has many of.
_NO_JSON = frozenset({"[[", "{{", "{[", "[]", "{}"})
#: Keys that may stand before the name.
_EARLY_KEYS = frozenset(
    "type id index tool_call_id arguments parameters args thought thoughts reasoning".split()
)
_NAMED = re.compile(
    rf"""["']?(?:{"|".join(sorted(NAME_KEYS))})["']?\s*:\s*["'](?P<name>[^"'\n]{{1,200}})["']"""
)
#: A call has arguments; a tool that is only told of has a description.
_ARGUMENTS = re.compile(
    r"""["'](?:arguments|parameters|input|action_input|tool_input)["']\s*:\s*["']?\{"""
)
_COMMAND = re.compile(rf"""\s*\{{\s*["'](?:{"|".join(sorted(COMMAND_PARAMETERS))})["']\s*:\s*\[""")
_DESCRIBED = re.compile(r"""["'](?:description|properties)["']\s*:""")


@dataclass(frozen=True)
class Opening:
    """A verdict, and for JSON whether the value has to end before it is sure that it is a call."""

    verdict: Verdict
    sure: bool = True


NO, MAYBE = Opening(Verdict.NO), Opening(Verdict.MAYBE)


def json_opens(head: str, whole: bool, names: ToolNames) -> Opening:
    """Whether JSON that means a call begins here."""
    if head[:2] in _NO_JSON:
        return NO
    match = _JSON_HEAD.match(head)
    if match is None:
        part = _JSON_PART.match(head)
        return MAYBE if part and part.end() == len(head) and not whole else NO
    key, value = match["key"], match["value"]
    if match["open"]:
        if match["open"] == "[" and key in COMMAND_PARAMETERS and (names.command or names.patch):
            return Opening(Verdict.YES, sure=False)
        if key in CALLS_KEYS or names.find(key):
            return Opening(Verdict.YES)
    elif value is not None and key in NAME_KEYS:
        return Opening(Verdict.YES, sure=not names or names.find(value) is not None)
    return Opening(Verdict.YES, sure=False) if key in _EARLY_KEYS else NO


def names_a_call(text: str, names: ToolNames) -> bool:
    """Whether JSON text names an offered function where calls name theirs, or has all that a call has."""
    if (names.command or names.patch) and _COMMAND.match(text):
        return True
    if any(not names or names.find(match["name"]) for match in _NAMED.finditer(text)):
        return True
    named = _NAMED.search(text)
    if named is None or not _ARGUMENTS.search(text) or _DESCRIBED.search(text):
        return False
    # {"name": "Alice", "arguments": {...}} is an answer; "get_wether" and "do_it" were to be called.
    name = named["name"]
    return names.near(name) is not None or bool(re.fullmatch(r"[a-z]+(?:[_.][a-z0-9]+)+", name))


_REACT = re.compile(r"[ \t]*\**Action[ \t]*\d*\**:\**[ \t]*(?P<name>[^\n]*)\n?", re.IGNORECASE)
_REACT_NAME = re.compile(
    r"[ \t]*\**Action[ \t]*\d*\**:\**[ \t]*`?[\w.\-]+`?\**[ \t\r]*", re.IGNORECASE
)
_YAML = re.compile(
    r"(?:- )?(?:name|function|tool|tool_name|function_name):"
    r"[ \t]*[\"']?(?P<name>[\w.\-]+)[\"']?\s*\n"
    r"|(?P<calls>tool_calls?|function_calls?):[ \t]*\n"
)


def react_opens(head: str, whole: bool, names: ToolNames) -> Opening:
    """``Action: get_weather``, with an offered function."""
    text = head.lstrip(" \t*").lower()
    after = text.removeprefix("action").lstrip(" \t*0123456789")
    begins = "action".startswith(text) or (text.startswith("action") and after[:1] in ("", ":"))
    line, newline, following = head.partition("\n")
    if begins and newline and not _is_action(line, names) and _REACT_NAME.fullmatch(line):
        # An action that nobody offered: the line with its input tells that it is one.
        word = following.lstrip(" \t*")[: len("action input")].lower().replace("_", " ")
        if word == "action input":
            return Opening(Verdict.YES)
        return MAYBE if "action input".startswith(word) and not whole else NO
    return _line_opens(head, whole, begins, lambda line: _is_action(line, names))


def _is_action(line: str, names: ToolNames) -> bool:
    match = _REACT.match(line)
    if match is None:
        return False
    action = match["name"].strip(" \t\r*`")
    name = re.match(r"[\w.\-]+(?=\[|\Z)", action)
    return bool(name and names.find(name.group())) or begins_with_call(action, names)


_YAML_WORDS = ("name:", "function:", "tool:", "tool_", "function_")


def yaml_opens(head: str, whole: bool, names: ToolNames) -> Opening:
    """``name: get_weather`` at the beginning of a line, with an offered function."""
    text = head.removeprefix("- ")
    begins = head == "-" or any(word.startswith(text[: len(word)]) for word in _YAML_WORDS)
    return _line_opens(head, whole, begins, lambda line: _is_yaml_call(line, names))


def _is_yaml_call(line: str, names: ToolNames) -> bool:
    match = _YAML.match(line + "\n")
    return bool(match and (match["calls"] or names.find(match["name"])))


def _line_opens(head: str, whole: bool, begins: bool, test: Callable[[str], bool]) -> Opening:
    line, newline, _ = head.partition("\n")
    if not begins:
        return NO
    if newline or whole:
        return Opening(Verdict.YES) if test(line) else NO
    return MAYBE


def code_opens(head: str, whole: bool, names: ToolNames) -> Opening:
    """Code outside of a fence; see `bare_code.opens`."""
    return Opening(opens(head, whole, names)) if names else NO


def call_opens(head: str, whole: bool, names: ToolNames) -> Opening:
    """A name, then JSON; see `named_calls.named_opens`."""
    return Opening(named_opens(head, whole, names)[0]) if names else NO


def patch_opens(head: str, whole: bool, names: ToolNames) -> Opening:
    """A patch, or the heredoc of one, where ``apply_patch`` is offered."""
    begins = bool(names.patch) and any(
        word.startswith(head[: len(word)]) for word in ("*** Begin Patch", "apply_patch <<")
    )
    return _line_opens(head, whole, begins, lambda line: _PATCHES.match(line) is not None)


_FINAL = ">>>all\n"


def channel_opens(head: str, whole: bool, names: ToolNames) -> Opening:  # noqa: ARG001
    """Functionary's channel for words."""
    if head.startswith(_FINAL):
        return Opening(Verdict.YES)
    return MAYBE if not whole and head and _FINAL.startswith(head) else NO


def fence_opens(head: str, whole: bool, names: ToolNames) -> Opening:
    """A fence at the beginning of a line."""
    begins = re.match(r"[ \t]*(?:`{3}|~{3}|`{0,2}\Z|~{0,2}\Z)", head) is not None
    return _line_opens(head, whole, begins, lambda line: fence_in(line, names) is not None)


#: How no line of `LINES` begins.
DULL = r"[ \t]{0,40}[\d,.;:!?%&|+=)\]}/#$^]"

#: What may begin with a line, in the order in which it is asked.
LINES: tuple[tuple[str, Callable[[str, bool, ToolNames], Opening]], ...] = (
    ("fence", fence_opens),
    ("channel", channel_opens),
    ("patch", patch_opens),
    ("named", call_opens),
    ("react", react_opens),
    ("json", json_opens),
    ("yaml", yaml_opens),
    ("code", code_opens),
)
