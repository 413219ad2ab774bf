"""Tables of what opens a block at the start of a line or at a bracket.

To add a model's habit, add a row. Knows nothing of where a block ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from emulator.core.command_tools import COMMAND_PARAMETERS
from emulator.reading.bare_code import may_be_code
from emulator.reading.calls import CALLS_KEYS, NAME_KEYS, find_calls, loads
from emulator.reading.events import Verdict
from emulator.reading.named_calls import match_header
from emulator.reading.tool_names import WRITTEN_NAME, ToolNames

# ---------------------------------------------------------------------------- fences

MARK = "tool_code"
"""The info string of a block that runs (prompts/tools.jinja), whatever the syntax in it."""
MARK_TAG = f"<{MARK}>"
_MARK_INFO = re.compile(rf"\{{?\.?{MARK}\}}?:?")
EXAMPLE = "example"
"""The info string of code that a model shows (prompts/tools.jinja), and its dialect: nothing in it runs."""
_EXAMPLE_INFO = re.compile(
    r"\{?\.?(?:(?:python3?|py)[\s,:.\-{]*)?examples?(?:[\s,:.\-]*(?:python3?|py))?\}?",
    re.IGNORECASE,
)

#: Info string of a fence -> dialect; "" means that the first line decides. A fence with another info
#: string is prose unless its first line calls an offered function.
FENCES = {
    **dict.fromkeys(("python", "py", "python3", "ipython", "pycon"), "python"),
    **dict.fromkeys(("json", "jsonc", "json5", "jsonl"), "json"),
    **dict.fromkeys(("xml", "tool_call", "tool_calls", "tool", "tools", "tool_use"), ""),
    **dict.fromkeys(("function", "function_call", "function_calls", "functions", "call"), ""),
    **dict.fromkeys(("yaml", "yml"), "yaml"),
    **dict.fromkeys(("", "code", MARK), ""),
    EXAMPLE: EXAMPLE,
}

_KNOWN = {*FENCES, "bash", "sh", "shell", "zsh", "console"}
_SCRIPTS = frozenset({"javascript", "js", "typescript", "ts"})
"""Languages whose objects are read as JSON."""

_FENCE = re.compile(
    r"(?P<indent>[ \t]*)(?:Action:[ \t]*)?(?P<run>`{3,}|~{3,})(?P<gap>[ \t]*)(?P<lang>[\w+#.\-]*)"
    r"(?P<rest>[^\n]*)"
)
"""Command R writes ``Action:`` before the fence of its calls."""


@dataclass(frozen=True)
class Fence:
    """An opening fence. `raw` is everything before the code."""

    indent: str
    run: str
    language: str
    raw: str
    code: str = ""  # code on the fence's own line


def parse_fence(line: str, names: ToolNames) -> Fence | None:
    """Return the fence that a complete line opens, or None."""
    match = _FENCE.match(line)
    if match is None:
        return None
    indent, run, language = match["indent"], match["run"], match["lang"].lower()
    begin = match.end("gap")
    if _MARK_INFO.fullmatch((language + match["rest"].lower()).strip()):
        return Fence(indent, run, MARK, line)
    if names.find(match["lang"]) and not match["rest"].strip() and language not in _KNOWN:
        return Fence(indent, run, "", line[:begin], line[begin:])  # the name, then the arguments
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
    """Return True if the text begins with a call of an offered function, possibly printed, assigned
    or in a list.
    """
    bare = re.sub(r"^(?:\s|[\[(]|await |print\(|[^\W\d]\w* = )*", "", text)
    word = WRITTEN_NAME.match(bare)
    return bool(word and names.find_in_code(word.group()) and bare.startswith("(", word.end()))


def is_example(info: str) -> bool:
    """Return True for the info string of code that is only shown: "Python example", "{.example}"."""
    return _EXAMPLE_INFO.fullmatch(info.strip()) is not None


#: The dialect of a block without an info string, by its first line. The first match wins.
_DETECTED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<|\[TOOL_CALLS\]|functools\["), "markup"),
    (re.compile(r"\{(?![{%])|\[\s*\{"), "json"),
    (re.compile(r"\**Action\**\s*:", re.IGNORECASE), "react"),
    (
        re.compile(r"(?:- )?(?:name|function|tool|tool_name|function_name|tool_calls?):(?:\s|\Z)"),
        "yaml",
    ),
)


_DOCUMENTS = ("Traceback (most recent call last)", 'File "', "diff --git ", "--- ", "@@ ")
"""What text that is no call begins with."""
_PATCH_START = re.compile(r"\*\*\* Begin Patch\b|apply_patch\s+<<")


def detect_dialect(line: str, language: str, names: ToolNames, info: str = "") -> str | None:
    """Return the dialect of a fence from its language, first line and whole info string; None for
    documentation.
    """
    text = line.strip()
    if is_example(info):
        return EXAMPLE
    if text.startswith(_DOCUMENTS) and language != MARK:
        return None
    if names.patch and _PATCH_START.match(text):
        return "patch"
    if begins_with_call(text, names):
        return "python"
    dialect = FENCES.get(language)
    if language in _SCRIPTS and _DETECTED[1][0].match(text):
        return "json"
    if dialect == "":
        dialect = next((name for form, name in _DETECTED if form.match(text)), "python")
        # ```tool_call, a line with the name, then the arguments as JSON
        if dialect == "python" and names.find_near(text.rstrip(":")):
            return "markup"
    return dialect


# ---------------------------------------------------------------------------- lines

#: White space and comments before the first key.
_GAP = r"(?:\s|/\*[^*]{0,200}\*/|//[^\n]{0,200}\n)*"
_JSON_HEAD = re.compile(
    rf"""[ \t]*(?P<list>\[\s*)?\{{{_GAP}"""
    r"""(?P<quote>["']?)(?P<key>[\w\-.]+)(?P=quote)\s*:\s*"""
    r"""(?:(?P<open>[\[{])|(?P<mark>["'])(?P<value>[^"'\n]*)(?P=mark)|(?P<other>[^\s\[{"']))"""
)
_JSON_PART = re.compile(
    rf"""[ \t]*(?:\[\s*)?(?:\{{{_GAP}(?:/(?:\*[^*]{{0,200}}\*?|/[^\n]{{0,200}})?)?"""
    r"""(?:["']?[\w\-.]*(?:["']?\s*(?::\s*(?:["'][^"'\n]*)?)?)?)?)?"""
)
#: An object of any kind.
_OBJECT = re.compile(rf"""[ \t]*\{{{_GAP}(?P<quote>["']?)[\w\-.]+(?P=quote)\s*:""")
#: Pairs of brackets that never begin a call; a hostile reply may contain very many of them.
_NEVER_JSON = frozenset({"[[", "{{", "{[", "[]", "{}"})
#: Keys that may precede the name.
_KEYS_BEFORE_NAME = frozenset(
    "type id index tool_call_id arguments parameters args thought thoughts reasoning role content parts"
    " choices candidates object jsonrpc method params".split()
)
_NAMED = re.compile(
    rf"""["']?(?:{"|".join(sorted(NAME_KEYS))})["']?\s*:\s*["'](?P<name>[^"'\n]{{1,200}})["']"""
)
#: A call has arguments; the definition of a tool has a description.
_ARGUMENTS = re.compile(
    r"""["'](?:arguments|parameters|args|input|action_input|tool_input)["']\s*:\s*["']?\{"""
)
_COMMAND = re.compile(rf"""\s*\{{\s*["'](?:{"|".join(sorted(COMMAND_PARAMETERS))})["']\s*:\s*\[""")
#: An object whose text is JSON.
_CONTENT = re.compile(r"""\s*\{\s*["']content["']\s*:\s*["']\s*[\[{]""")
_DESCRIPTION = re.compile(r"""["'](?:description|properties)["']\s*:""")


def match_json(head: str, whole: bool, names: ToolNames) -> Verdict:
    """Test whether JSON that means a call begins here."""
    if head[:2] in _NEVER_JSON:
        return Verdict.NO
    if names.forced and _OBJECT.match(head):
        return Verdict.YES
    match = _JSON_HEAD.match(head)
    if match is None:
        part = _JSON_PART.match(head)
        return Verdict.MAYBE if part and part.end() == len(head) and not whole else Verdict.NO
    key, value = match["key"], match["value"]
    if match["open"]:
        if match["open"] == "[" and key in COMMAND_PARAMETERS and (names.command or names.patch):
            return Verdict.UNSURE
        if key in CALLS_KEYS or names.find(key):
            return Verdict.YES
    elif value is not None and key in NAME_KEYS:
        return Verdict.YES if not names or names.find_near(value) else Verdict.UNSURE
    return Verdict.UNSURE if key in _KEYS_BEFORE_NAME else Verdict.NO


def names_call(text: str, names: ToolNames) -> bool:
    """Return True if JSON text names an offered function under a name key, or has every part of a
    call.
    """
    if (names.command or names.patch) and _COMMAND.match(text):
        return True
    if any(not names or names.find_near(match["name"]) for match in _NAMED.finditer(text)):
        return True
    if _CONTENT.match(text):
        with suppress(ValueError, RecursionError):
            return any(names.find(name) for name, _ in find_calls(loads(text), names))
    # An unknown name counts if all the rest of a call is there: the model is asked about it.
    return bool(_NAMED.search(text) and _ARGUMENTS.search(text) and not _DESCRIPTION.search(text))


_REACT = re.compile(r"[ \t]*\**Action[ \t]*\d*\**:\**[ \t]*(?P<name>[^\n]*)\n?", re.IGNORECASE)
_REACT_NAME = re.compile(
    r"[ \t]*\**Action[ \t]*\d*\**:\**[ \t]*`?[\w.\-]+`?\**[ \t\r]*", re.IGNORECASE
)
_YAML = re.compile(
    r"(?:- )?(?:name|function|tool|tool_name|function_name):"
    r"[ \t]*[\"']?(?P<name>[\w.\-]+)[\"']?\s*\n"
    r"|(?P<calls>tool_calls?|function_calls?):[ \t]*\n"
)


def match_react(head: str, whole: bool, names: ToolNames) -> Verdict:
    """``Action: get_weather``, if the function is offered."""
    text = head.lstrip(" \t*").lower()
    after = text.removeprefix("action").lstrip(" \t*0123456789")
    begins = "action".startswith(text) or (text.startswith("action") and after[:1] in ("", ":"))
    line, newline, following = head.partition("\n")
    if begins and newline and not _is_action(line, names) and _REACT_NAME.fullmatch(line):
        # An unknown action counts only if an "Action Input" line follows.
        word = following.lstrip(" \t*")[: len("action input")].lower().replace("_", " ")
        if word == "action input":
            return Verdict.YES
        return Verdict.MAYBE if "action input".startswith(word) and not whole else Verdict.NO
    return _match_line(head, whole, begins, lambda line: _is_action(line, names))


def _is_action(line: str, names: ToolNames) -> bool:
    match = _REACT.match(line)
    if match is None:
        return False
    action = match["name"].strip(" \t\r*`")
    name = re.match(r"[\w.\-]+(?=\[|\Z)", action)
    return bool(name and names.find(name.group())) or begins_with_call(action, names)


_YAML_WORDS = ("name:", "function:", "tool:", "tool_", "function_")


def match_yaml(head: str, whole: bool, names: ToolNames) -> Verdict:
    """``name: get_weather`` at the beginning of a line, if the function is offered."""
    text = head.removeprefix("- ")
    begins = head == "-" or any(word.startswith(text[: len(word)]) for word in _YAML_WORDS)
    return _match_line(head, whole, begins, lambda line: _is_yaml_call(line, names))


def _is_yaml_call(line: str, names: ToolNames) -> bool:
    match = _YAML.match(line + "\n")
    return bool(match and (match["calls"] or names.find(match["name"])))


def _match_line(head: str, whole: bool, begins: bool, test: Callable[[str], bool]) -> Verdict:
    line, newline, _ = head.partition("\n")
    if not begins:
        return Verdict.NO
    if newline or whole:
        return Verdict.YES if test(line) else Verdict.NO
    return Verdict.MAYBE


def match_named_call(head: str, whole: bool, names: ToolNames) -> Verdict:
    """A name followed by JSON; see `named_calls.match_header`."""
    return match_header(head, whole, names)[0] if names else Verdict.NO


def match_patch(head: str, whole: bool, names: ToolNames) -> Verdict:
    """A patch, or a heredoc that contains one, if ``apply_patch`` is offered."""
    begins = bool(names.patch) and any(
        word.startswith(head[: len(word)]) for word in ("*** Begin Patch", "apply_patch <<")
    )
    return _match_line(head, whole, begins, lambda line: _PATCH_START.match(line) is not None)


_TEXT_CHANNEL = ">>>all\n"


def match_channel(head: str, whole: bool, names: ToolNames) -> Verdict:  # noqa: ARG001
    """Functionary's channel for prose."""
    if head.startswith(_TEXT_CHANNEL):
        return Verdict.YES
    return Verdict.MAYBE if not whole and head and _TEXT_CHANNEL.startswith(head) else Verdict.NO


_FENCE_BEGINS = re.compile(
    r"[ \t]*(?:(?:Action:[ \t]*)?(?:`{3}|~{3}|`{0,2}\Z|~{0,2}\Z)|A(?:c(?:t(?:i(?:on?)?)?)?)?\Z)"
)


def match_fence(head: str, whole: bool, names: ToolNames) -> Verdict:
    """A fence at the beginning of a line."""
    begins = _FENCE_BEGINS.match(head) is not None
    return _match_line(head, whole, begins, lambda line: parse_fence(line, names) is not None)


#: Line beginnings that match no row of `LINES`.
PLAIN_LINE_START = r"[ \t]{0,40}[\d,.;:!?%&|+=)\]}/#$^]"

#: What a line may begin, in the order of the tests.
LINES: tuple[tuple[str, Callable[[str, bool, ToolNames], Verdict]], ...] = (
    ("fence", match_fence),
    ("channel", match_channel),
    ("patch", match_patch),
    ("named", match_named_call),
    ("react", match_react),
    ("json", match_json),
    ("yaml", match_yaml),
    ("code", may_be_code),
)
