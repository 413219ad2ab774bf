"""Read calls in the tags and tokens that models were trained on for tool use.

One table, one row a form. Values in XML parameters stay text: the schema says what they are.
The tags themselves belong to the text of the block, whoever framed it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from emulator.reading.calls import JSON, statement
from emulator.reading.data_readers import read_json, read_python
from emulator.reading.loose_json import values
from emulator.reading.statements import Statement, unreadable
from emulator.reading.tool_names import WrittenNames


@dataclass(frozen=True)
class Form:
    """`opening` begins one call; `call` matches the whole of it with `name` and `body`."""

    of: str
    opening: re.Pattern[str]
    call: re.Pattern[str]
    arguments: Callable[[str], JSON]


def _form(of: str, opening: str, rest: str, closing: str, arguments: Callable[[str], JSON]) -> Form:
    # A call ends at its closing, before the next opening, or with the text.
    return Form(
        of,
        re.compile(opening),
        re.compile(f"{opening}{rest}(?P<body>.*?)(?:{closing}|(?={opening})|\\Z)", re.DOTALL),
        arguments,
    )


def _parameters(opening: str, closing: str) -> Callable[[str], JSON]:
    """Arguments from elements; falls back to JSON, which some models put there instead."""
    begin, end = re.compile(opening), re.compile(closing)

    def read(body: str) -> JSON:
        found: dict[str, JSON] = {}
        at = 0
        while (parameter := begin.search(body, at)) is not None:
            closed = end.search(body, parameter.end())
            if closed is None:
                raise unreadable("the call is cut off within a parameter", hint="write it again")
            value = body[parameter.end() : closed.start()]
            found[parameter["key"].strip(" \"'")] = _trimmed(value)
            at = closed.end()
        return found or _object(body)

    return read


def _trimmed(value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n")


def _object(body: str) -> JSON:
    """The JSON object in `body`, None if there is nothing. Raises Unreadable for other text."""
    for found in values(body, first=True):
        return found.value
    text = re.sub(r"</?[\w:|]+>?|```\w*", "", body).strip()
    if text:
        raise unreadable(
            "expected the arguments as a JSON object",
            source_line=text.split("\n")[0][:200],
            hint='write {"argument": value}',
        )
    return None


_ESCAPED = re.compile(
    r"(?<!\w)(?P<key>\w+):(?:<escape>(?P<text>.*?)<escape>|(?P<plain>[^,{}<]*))", re.DOTALL
)


def _gemma(body: str) -> JSON:
    found: dict[str, JSON] = {}
    for match in _ESCAPED.finditer(body):
        text = match["text"]
        found[match["key"]] = text if text is not None else match["plain"].strip()
    return found


_NAME = r"\s*(?P<name>[^\s<>\[\]{}\"']+)\s*"

FORMS: tuple[Form, ...] = (
    _form(
        "Qwen3-Coder, Llama: <function=f><parameter=a>1</parameter></function>",
        r"<function=",
        rf"{_NAME}>",
        r"</function>",
        _parameters(
            r"<(?:parameter|param|arg)=(?P<key>[^>\n]{1,200})>", r"</(?:parameter|param|arg)>"
        ),
    ),
    _form(
        'Claude, MiniMax: <invoke name="f"><parameter name="a">1</parameter></invoke>',
        r"<(?:\w{1,40}:)?invoke name=",
        r"[\"']?(?P<name>[^\"'>]{1,200})[\"']?>",
        r"</(?:\w{1,40}:)?invoke>",
        _parameters(
            r"<(?:\w{1,40}:)?parameter name=[\"']?(?P<key>[^\"'>]{1,200})[\"']?[^>\n]{0,200}>",
            r"</(?:\w{1,40}:)?parameter>",
        ),
    ),
    _form(
        "GLM: <tool_call>f <arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
        r"<tool_call>(?=\s*[\w.\-]+\s*<arg_key>)",
        _NAME,
        r"</tool_call>",
        _parameters(r"<arg_key>(?P<key>[^<]{1,200})</arg_key>\s*<arg_value>", r"</arg_value>"),
    ),
    _form(
        "DeepSeek: <|tool_call_begin|>function<|tool_sep|>f then JSON",
        r"<\|tool_call_begin\|>(?=[^{]*<\|tool_sep\|>)",
        rf"(?:function<\|tool_sep\|>)?{_NAME}(?:<\|tool_sep\|>)?",
        r"<\|tool_call_end\|>",
        _object,
    ),
    _form(
        "Kimi: <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|> then JSON",
        r"<\|tool_call_begin\|>",
        rf"{_NAME}<\|tool_call_argument_begin\|>",
        r"<\|tool_call_end\|>",
        _object,
    ),
    _form(
        "gpt-oss: <|channel|>commentary to=functions.f <|message|> then JSON",
        r"to=(?=functions\.)",
        rf"{_NAME}[^{{]*?<\|message\|>",
        r"<\|(?:call|end|start)\|>",
        _object,
    ),
    _form(
        "Mistral: [TOOL_CALLS]f[ARGS] then JSON",
        r"(?:\[TOOL_CALLS\]\s*|(?<=\})\s*)(?=[\w.\-]+\s*(?:\[CALL_ID\]|\[ARGS\]|\{))",
        rf"{_NAME}(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?",
        r"(?<=\})\s*(?=\[TOOL_CALLS\])",
        _object,
    ),
    _form(
        "Gemma: <start_function_call>call:f{a:<escape>text<escape>}<end_function_call>",
        r"<start_function_call>\s*call:",
        r"(?P<name>[\w.\-]+)",
        r"<end_function_call>",
        _gemma,
    ),
)

#: DeepSeek's tokens use look-alikes of bar and space; so many tools print them plain.
_PLAIN = str.maketrans("｜▁", "|_")

#: Tags around calls in JSON or Python, and the tokens that end a turn.
_FRAME = re.compile(
    r"</?(?:tool_calls?|function_calls?|functioncall|tool_use|minimax:tool_call|tools?)>"
    r"|<\|/?(?:python_tag|tool_calls?(?:_start|_end|_begin)?|START_ACTION|END_ACTION)\|>"
    r"|<\|(?:eom_id|eot_id|im_end|end|return)\|>|\[/?TOOL_CALLS\]|\bfunctools(?=\[)|</s>"
)
_BORDERS = re.compile(r"\A\s*```\w*(?=\n)|```\s*\Z")
_NAME_THEN_JSON = re.compile(r"\s*(?P<name>[\w.\-]+)\s*(?=\{)")
_JSON_BEGINS = re.compile(r"\s*(?:\{|\[\s*\{)")


def read_markup(text: str, names: WrittenNames) -> list[Statement]:
    """The calls in `text`: by the first form that occurs in it, else JSON or Python in a frame."""
    plain = text.translate(_PLAIN)
    for form in FORMS:
        if form.opening.search(plain):
            return _by_form(form, plain, text, names)
    return _by_element(text, names) or _in_frames(plain, text, names)


def _in_frames(plain: str, text: str, names: WrittenNames) -> list[Statement]:
    found: list[Statement] = []
    start, line = 0, 1
    for end, after in [*(m.span() for m in _FRAME.finditer(plain)), (len(text), len(text))]:
        found += [
            Statement(inner.source, inner.line + line - 1)
            for inner in _in_frame(text[start:end], names)
        ]
        line += text.count("\n", start, after)
        start = after
    return found


def _in_frame(text: str, names: WrittenNames) -> list[Statement]:
    inner = _BORDERS.sub(lambda border: "\n" * border.group().count("\n"), text)
    bare_name = _NAME_THEN_JSON.match(inner)
    if bare_name and names.find(bare_name["name"]):
        return [statement(bare_name["name"], _object(inner[bare_name.end() :]), names, 1)]
    if _JSON_BEGINS.match(inner):
        return read_json(inner, names)
    return read_python(inner, names)


def _by_form(form: Form, plain: str, text: str, names: WrittenNames) -> list[Statement]:
    found: list[Statement] = []
    counted, line = 0, 1
    for match in form.call.finditer(plain):
        line += plain.count("\n", counted, match.start())
        counted = match.start()
        name = re.sub(r":\d+\Z", "", match["name"])  # Kimi numbers its calls
        body = text[match.start("body") : match.end("body")]
        found.append(statement(name, form.arguments(body), names, line))
    if len(found) < sum(1 for _ in form.opening.finditer(plain)):
        raise unreadable(
            "the call is cut off", line=line, hint=f"write it again, complete ({form.of})"
        )
    return found


_ELEMENT = re.compile(r"<(?P<name>[A-Za-z_][\w.\-]{0,200})(?P<empty>\s?/)?>")
_CHILD = re.compile(r"<(?P<key>[A-Za-z_]\w*)>(?P<value>.*?)</(?P=key)>", re.DOTALL)


def _by_element(text: str, names: WrittenNames) -> list[Statement]:
    """``<get_weather><city>Oslo</city></get_weather>``: the element is the function."""
    found: list[Statement] = []
    at = 0
    while (tag := _ELEMENT.search(text, at)) is not None:
        at = tag.end()
        if names.find(tag["name"]) is None:
            continue
        end = at if tag["empty"] else text.find(f"</{tag['name']}>", at)
        body = text[at : end if end >= 0 else len(text)]
        at += len(body)
        children: JSON = {m["key"]: _trimmed(m["value"]) for m in _CHILD.finditer(body)}
        line = 1 + text.count("\n", 0, tag.start())
        found.append(statement(tag["name"], children or _object(body), names, line))
    return found
