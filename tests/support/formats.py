"""The syntaxes in which models are trained to write calls: one row each, written from its source.

A row says how its model writes a call; the variants that every row has to pass are made of it, and
docs/formats.md is the same table in Markdown. To add a format, add a row to `FORMATS`.

Placeholders of a row's templates: ``@JSON@`` is ``{"name": ..., "arguments": {...}}``, ``@NAME@`` and
``@ARGS@`` are its two parts, ``@PARAMS@`` stands for the row's ``parameter`` once for each argument
(``@KEY@``, ``@VALUE@``: text as it is, other values as JSON), ``@PYTHON@`` is ``f(a='x')``, ``@QUOTED@`` the
same in quotes, and ``@N@`` counts the calls from 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Format:
    """How one family of models writes calls."""

    name: str
    source: str
    """Who reads it elsewhere, or whose prompt teaches it."""
    call: str
    head: str = ""
    join: str = "\n"
    tail: str = ""
    parameter: str | Callable[[str, Any], str] = ""
    arguments: Callable[[dict[str, Any]], str] = json.dumps
    """What ``@ARGS@`` stands for."""
    thought: str = "<think>\n@THOUGHT@\n</think>\n\n"
    shown: str = "@TEXT@\n\n"
    """Prose in front of a call."""
    special: str = ""
    """The tokens that a server strips which does not show special tokens, as a pattern."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Variants that cannot be read, each with the reason; these are asked about."""
    afterwards: bool = True
    """Whether prose may follow a call."""
    label: str = ""
    """Words before the call that stay words."""

    def write(self, calls: Sequence[Call], *, stripped: bool = False) -> str:
        """The calls as the model writes them."""
        text = self.head + self.join.join(map(self._call, range(len(calls)), calls)) + self.tail
        return re.sub(self.special, "", text) if stripped else text

    def _call(self, number: int, call: Call) -> str:
        name, arguments = call
        parts = {
            "JSON": lambda: json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False),
            "NAME": lambda: name,
            "ARGS": lambda: self.arguments(arguments),
            "PARAMS": lambda: "".join(self._parameter(*item) for item in arguments.items()),
            "PYTHON": lambda: _python(name, arguments),
            "QUOTED": lambda: repr(_python(name, arguments)),
            "N": lambda: str(number),
        }
        return re.sub(r"@([A-Z]+)@", lambda match: parts[match[1]](), self.call)

    def _parameter(self, key: str, value: Any) -> str:
        if not isinstance(self.parameter, str):
            return self.parameter(key, value)
        parts = {"KEY": key, "VALUE": value if isinstance(value, str) else json.dumps(value)}
        return re.sub(r"@(KEY|VALUE)@", lambda match: parts[match[1]], self.parameter)


def _python(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _gemma(quote: str) -> Callable[[Any], str]:
    def write(value: Any) -> str:
        match value:
            case str():
                return f"{quote}{value}{quote}"
            case dict():
                return "{" + ",".join(f"{key}:{write(item)}" for key, item in value.items()) + "}"
            case list():
                return "[" + ",".join(map(write, value)) + "]"
        return json.dumps(value)

    return write


def _typed(template: str) -> Callable[[str, Any], str]:
    """A parameter that says whether it is text."""
    kinds = {str: ("true", "string"), bool: ("false", "boolean"), int: ("false", "number")}

    def write(key: str, value: Any) -> str:
        is_text, kind = kinds.get(type(value), ("false", "object"))
        text = value if isinstance(value, str) else json.dumps(value)
        parts = {"KEY": key, "VALUE": text, "STRING": is_text, "TYPE": kind}
        return re.sub(r"@([A-Z]+)@", lambda match: parts[match[1]], template)

    return write


_M3 = "]<]minimax[>["
_NS = "antml"


def _minimax_m3(key: str, value: Any) -> str:
    match value:
        case dict():
            inner = "".join(_minimax_m3(name, item) for name, item in value.items())
        case list():
            inner = "".join(_minimax_m3("item", item) for item in value)
        case _:
            inner = value if isinstance(value, str) else json.dumps(value)
    return f"{_M3}<{key}>{inner}{_M3}</{key}>"


def _quoted_json(arguments: dict[str, Any]) -> str:
    return json.dumps(json.dumps(arguments))


_NO_BORDERS = "nothing is left that says where an argument begins"

FORMATS: tuple[Format, ...] = (
    Format(
        name="Hermes, Qwen 2.5 and 3",
        source="vLLM `hermes`; SGLang `hermes`, `qwen`, `qwen25`, `trinity`, `nanbeige`; "
        "llama.cpp by its template",
        call="<tool_call>\n@JSON@\n</tool_call>",
        special=r"</?tool_call>",
    ),
    Format(
        name="Qwen3-Coder, Qwen 3.5, MiMo, Step 3.5, Nemotron 3",
        source="vLLM `qwen3_coder`, `qwen3_xml`, `mimo`, `step3p5`; SGLang `qwen3_coder`, `mimo`, "
        "`step3p5`; llama.cpp `qwen3-coder`",
        call="<tool_call>\n<function=@NAME@>\n@PARAMS@</function>\n</tool_call>",
        parameter="<parameter=@KEY@>\n@VALUE@\n</parameter>\n",
        special=r"</?tool_call>",
    ),
    Format(
        name="Seed-OSS",
        source="vLLM `seed_oss`; llama.cpp by its template",
        call="<seed:tool_call>\n<function=@NAME@>\n@PARAMS@</function>\n</seed:tool_call>",
        parameter="<parameter=@KEY@>@VALUE@</parameter>\n",
        thought="<seed:think>@THOUGHT@</seed:think>",
        special=r"</?seed:tool_call>",
    ),
    Format(
        name="DeepSeek V3 and R1",
        source="vLLM `deepseek_v3`; SGLang `deepseekv3`; llama.cpp by its template",
        head="<｜tool▁calls▁begin｜>",
        call="<｜tool▁call▁begin｜>function<｜tool▁sep｜>@NAME@\n```json\n@ARGS@\n```<｜tool▁call▁end｜>",
        tail="<｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
        special=r"<｜[^｜]*｜>",
    ),
    Format(
        name="DeepSeek V3.1",
        source="vLLM `deepseek_v31`; SGLang `deepseekv31`; llama.cpp by its template",
        head="<｜tool▁calls▁begin｜>",
        call="<｜tool▁call▁begin｜>@NAME@<｜tool▁sep｜>@ARGS@<｜tool▁call▁end｜>",
        join="",
        tail="<｜tool▁calls▁end｜>",
        special=r"<｜[^｜]*｜>",
    ),
    Format(
        name="DeepSeek V3.2 (DSML)",
        source="vLLM `deepseek_v32`; SGLang `deepseekv32`; llama.cpp `deepseek`",
        head="<｜DSML｜function_calls>\n",
        call='<｜DSML｜invoke name="@NAME@">\n@PARAMS@</｜DSML｜invoke>',
        tail="\n</｜DSML｜function_calls>",
        parameter=_typed(
            '<｜DSML｜parameter name="@KEY@" string="@STRING@">@VALUE@</｜DSML｜parameter>\n'
        ),
        special=r"｜DSML｜",
    ),
    Format(
        name="DeepSeek V4 (DSML)",
        source="vLLM `deepseek_v4`; SGLang `deepseekv4`; llama.cpp `deepseek`",
        head="<｜DSML｜tool_calls>\n",
        call='<｜DSML｜invoke name="@NAME@">\n@PARAMS@</｜DSML｜invoke>',
        tail="\n</｜DSML｜tool_calls>",
        parameter=_typed(
            '<｜DSML｜parameter name="@KEY@" string="@STRING@">@VALUE@</｜DSML｜parameter>\n'
        ),
        special=r"｜DSML｜",
    ),
    Format(
        name="DeepSeek V4.1 (DSML)",
        source="SGLang `deepseekv41`",
        head="\n\n<｜DSML｜ calls>\n",
        call='<｜DSML｜ invoke name="@NAME@">\n@PARAMS@</｜DSML｜ invoke>',
        tail="\n</｜DSML｜ calls>",
        parameter=_typed(
            '<｜DSML｜ parameter name="@KEY@" string="@STRING@">@VALUE@</｜DSML｜ parameter>\n'
        ),
        special=r"｜DSML｜",
        unread={"stripped": "what is left of a tag begins with a space"},
    ),
    Format(
        name="DeepSeek DSML with JSON",
        source="SGLang `deepseekv32`, `deepseekv4`",
        head="<｜DSML｜tool_calls>\n",
        call='<｜DSML｜invoke name="@NAME@">\n@ARGS@\n</｜DSML｜invoke>',
        tail="\n</｜DSML｜tool_calls>",
        special=r"｜DSML｜",
    ),
    Format(
        name="GigaChat 3.5 (GCML)",
        source="SGLang `gigachat35`; llama.cpp by its template",
        head="<｜GCML｜tool_calls>\n",
        call='<｜GCML｜invoke name="@NAME@">\n@PARAMS@</｜GCML｜invoke>',
        tail="\n</｜GCML｜tool_calls>",
        parameter=_typed(
            '<｜GCML｜parameter name="@KEY@" string="@STRING@">@VALUE@</｜GCML｜parameter>\n'
        ),
        special=r"｜GCML｜",
    ),
    Format(
        name="GigaChat 3",
        source="vLLM `gigachat3`; SGLang `gigachat3`; llama.cpp `gigachat-v3`",
        call="<|message_sep|>\n\nfunction call<|role_sep|>\n@JSON@",
        label="function call",
        join="",
        tail="</s>",
        special=r"<\|\w+\|>|</s>",
        afterwards=False,
    ),
    Format(
        name="GigaChat 3, one token",
        source="SGLang `gigachat3`",
        call="<|function_call|>@JSON@",
        join="",
        special=r"<\|\w+\|>",
        afterwards=False,
    ),
    Format(
        name="Llama 3.1 to 3.3, JSON",
        source="vLLM `llama3_json`, `llama4_json`; SGLang `llama3`; llama.cpp by its template",
        call='{"name": "@NAME@", "parameters": @ARGS@}',
        join="; ",
        shown="",
        afterwards=False,
    ),
    Format(
        name="Llama 3.1, python tag",
        source="vLLM `llama3_json`; SGLang `llama3`",
        head="<|python_tag|>",
        call='{"name": "@NAME@", "parameters": @ARGS@}',
        join="; ",
        tail="<|eom_id|>",
        special=r"<\|\w+\|>",
        afterwards=False,
    ),
    Format(
        name="Llama 3.1, function tags; Functionary 3.1",
        source="llama.cpp by its template; Meta's prompt of custom functions",
        call="<function=@NAME@>@ARGS@</function>",
    ),
    Format(
        name="Llama 4 and 3.2, pythonic",
        source="vLLM `llama4_pythonic`, `pythonic`; SGLang `pythonic`",
        head="[",
        call="@PYTHON@",
        join=", ",
        tail="]",
    ),
    Format(
        name="Llama 4, python start and end",
        source="vLLM `llama4_pythonic`; SGLang `pythonic`",
        head="<|python_start|>[",
        call="@PYTHON@",
        join=", ",
        tail="]<|python_end|>",
        special=r"<\|\w+\|>",
    ),
    Format(
        name="Mistral 7B v0.3 to Small 3, Nemo",
        source="vLLM `mistral`; SGLang `mistral`; llama.cpp by its template",
        head="[TOOL_CALLS] [",
        call="@JSON@",
        join=", ",
        tail="]",
        thought="[THINK]@THOUGHT@[/THINK]",
        special=r"\[TOOL_CALLS\] ?",
        afterwards=False,
    ),
    Format(
        name="Mistral Small 3.2, Magistral, Devstral, Ministral 3",
        source="vLLM `mistral`; SGLang `mistral`; llama.cpp `ministral3`",
        call="[TOOL_CALLS]@NAME@[ARGS]@ARGS@",
        join="",
        tail="</s>",
        thought="[THINK]@THOUGHT@[/THINK]",
        special=r"\[[A-Z_]+\]|</s>",
        afterwards=False,
    ),
    Format(
        name="Mistral with call ids",
        source="llama.cpp by its template; mistral-common v11",
        call="[TOOL_CALLS]@NAME@[CALL_ID]00000000@N@[ARGS]@ARGS@",
        join="",
        tail="</s>",
        thought="[THINK]@THOUGHT@[/THINK]",
        special=r"\[(?:TOOL_CALLS|ARGS)\]|\[CALL_ID\]\w+|</s>",
        afterwards=False,
    ),
    Format(
        name="Granite 3",
        source="vLLM `granite`; llama.cpp by its template",
        head="<|tool_call|>[",
        call="@JSON@",
        join=", ",
        tail="]",
        special=r"<\|\w+\|>",
        afterwards=False,
    ),
    Format(
        name="Granite 3.1 with a closed tag",
        source="vLLM `granite`",
        head="<tool_call>[",
        call="@JSON@",
        join=", ",
        tail="]</tool_call>",
        special=r"</?tool_call>",
    ),
    Format(
        name="Granite 4, EXAONE 4, ERNIE 4.5",
        source="vLLM `granite4`, `ernie45`; llama.cpp by its template",
        call="<tool_call>\n@JSON@\n</tool_call>\n",
        join="",
    ),
    Format(
        name="Granite 20B function calling",
        source="vLLM `granite-20b-fc`",
        call="<function_call> @JSON@",
        join=" ",
        afterwards=False,
    ),
    Format(
        name="Phi-4 mini",
        source="vLLM `phi4_mini_json`",
        head="functools[",
        call="@JSON@",
        join=", ",
        tail="]",
        afterwards=False,
    ),
    Format(
        name="Phi-4 mini, tokens",
        source="llama.cpp by its template",
        head="<|tool_call|>[",
        call="@JSON@",
        join=", ",
        tail="]<|/tool_call|>",
        special=r"<\|/?\w+\|>",
    ),
    Format(
        name="Kimi K2",
        source="vLLM `kimi_k2`; SGLang `kimi_k2`; llama.cpp `kimi-k2`",
        head="<|tool_calls_section_begin|>",
        call="<|tool_call_begin|>functions.@NAME@:@N@<|tool_call_argument_begin|>@ARGS@<|tool_call_end|>",
        join="",
        tail="<|tool_calls_section_end|>",
        special=r"<\|\w+\|>",
    ),
    Format(
        name="Kimi K3",
        source="vLLM `kimi_k3`; SGLang `kimi_k3`; llama.cpp `kimi-k3`",
        head="<|open|>tools<|sep|>",
        call='<|open|>call tool="@NAME@" index="@N@"<|sep|>@PARAMS@<|close|>call<|sep|>',
        join="",
        tail="<|close|>tools<|sep|><|close|>message<|sep|>",
        parameter=_typed(
            '<|open|>argument key="@KEY@" type="@TYPE@"<|sep|>@VALUE@<|close|>argument<|sep|>'
        ),
        thought="<|open|>think<|sep|>@THOUGHT@<|close|>think<|sep|>",
        shown="<|open|>response<|sep|>@TEXT@<|close|>response<|sep|>",
        special=r"<\|\w+\|>",
        unread={"stripped": _NO_BORDERS},
        afterwards=False,
    ),
    Format(
        name="GLM 4.5 and 4.6, Ling 3, Spark 2.5",
        source="vLLM `glm45`; SGLang `glm45`, `ling3`, `spark25`, `glm`; llama.cpp `ling3`",
        call="<tool_call>@NAME@\n@PARAMS@</tool_call>",
        parameter="<arg_key>@KEY@</arg_key>\n<arg_value>@VALUE@</arg_value>\n",
        special=r"</?tool_call>",
    ),
    Format(
        name="IQuest Q1",
        source="SGLang `iquest_q1`",
        call="<iquest_tool_call>@NAME@@PARAMS@</iquest_tool_call>",
        parameter="<arg_key>@KEY@</arg_key><arg_value>@VALUE@</arg_value>",
    ),
    Format(
        name="GLM 4.7 and 5",
        source="vLLM `glm47`; SGLang `glm47`",
        call="<tool_call>@NAME@@PARAMS@</tool_call>",
        join="",
        parameter="<arg_key>@KEY@</arg_key><arg_value>@VALUE@</arg_value>",
        special=r"</?tool_call>",
    ),
    Format(
        name="Poolside Laguna",
        source="vLLM `poolside_v1`; SGLang `poolside_v1`",
        call="<tool_call>@NAME@\n@PARAMS@</tool_call>",
        parameter="<arg_key>@KEY@</arg_key>\n<arg_value>\n@VALUE@\n</arg_value>\n",
        special=r"</?tool_call>",
    ),
    Format(
        name="Hunyuan 3",
        source="vLLM `hy_v3`; SGLang `hunyuan`",
        head="<tool_calls:opensource>\n",
        call="<tool_call:opensource>@NAME@<tool_sep:opensource>\n@PARAMS@</tool_call:opensource>",
        tail="\n</tool_calls:opensource>",
        parameter=(
            "<arg_key:opensource>@KEY@</arg_key:opensource>\n"
            "<arg_value:opensource>@VALUE@</arg_value:opensource>\n"
        ),
        special=r"</?tool_calls?:\w+>|<tool_sep:\w+>",
    ),
    Format(
        name="Hunyuan A13B",
        source="vLLM `hunyuan_a13b`; llama.cpp by its template",
        head="<tool_calls>[",
        call="@JSON@",
        join=", ",
        tail="]</tool_calls>",
        thought="<think>\n@THOUGHT@\n</think>\n",
        special=r"</?tool_calls>",
    ),
    Format(
        name="K2 Horizon",
        source="SGLang `k2_horizon`; llama.cpp `k2-horizon`",
        head="<ifm|tool_calls>\n",
        call="<ifm|tool_call>@NAME@\n@PARAMS@</ifm|tool_call>",
        tail="\n</ifm|tool_calls>",
        parameter=_typed(
            "<ifm|arg_key>@KEY@</ifm|arg_key>\n<ifm|arg_type>@TYPE@</ifm|arg_type>\n"
            "<ifm|arg_value>@VALUE@</ifm|arg_value>\n"
        ),
        thought="<ifm|think>@THOUGHT@</ifm|think>\n",
    ),
    Format(
        name="MiniMax M1",
        source="vLLM (until 0.12) `minimax`",
        head="<tool_calls>\n",
        call="@JSON@",
        tail="\n</tool_calls>",
    ),
    Format(
        name="MiniMax M2",
        source="vLLM `minimax_m2`; SGLang `minimax-m2`; llama.cpp by its template",
        head="<minimax:tool_call>\n",
        call='<invoke name="@NAME@">\n@PARAMS@</invoke>',
        tail="\n</minimax:tool_call>",
        parameter='<parameter name="@KEY@">@VALUE@</parameter>\n',
        special=r"</?minimax:tool_call>",
    ),
    Format(
        name="MiniMax M3",
        source="vLLM `minimax_m3`; SGLang `minimax-m3`; llama.cpp `minimax-m3`",
        head=f"{_M3}<tool_call>\n",
        call=f'{_M3}<invoke name="@NAME@">@PARAMS@{_M3}</invoke>',
        tail=f"\n{_M3}</tool_call>",
        parameter=_minimax_m3,
        special=r"\]<\]minimax\[>\[",
    ),
    Format(
        name="Dots",
        source="SGLang `dots`",
        head="<dots_function_call>\n",
        call='<invoke name="@NAME@">\n@PARAMS@</invoke>',
        tail="\n</dots_function_call>",
        parameter='<parameter name="@KEY@">@VALUE@</parameter>\n',
    ),
    Format(
        name="Muse Glimmer",
        source="SGLang `muse`; llama.cpp `muse-glimmer`",
        head="<|start|>assistant to=tools<|message|><atem:function_calls>\n",
        call='<atem:invoke name="@NAME@">\n@PARAMS@</atem:invoke>',
        tail="\n</atem:function_calls><|eom|>",
        parameter='<atem:parameter name="@KEY@">@VALUE@</atem:parameter>\n',
        thought="<|start|>assistant to=self<|message|>@THOUGHT@<|eom|>",
        special=r"<\|\w+\|>",
        label="assistant to=tools",
        shown="",
    ),
    Format(
        name="Step 3",
        source="vLLM `step3`; SGLang `step3`",
        head="<｜tool_calls_begin｜>\n",
        call=(
            '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="@NAME@">\n'
            "@PARAMS@</steptml:invoke><｜tool_call_end｜>"
        ),
        tail="\n<｜tool_calls_end｜>",
        parameter='<steptml:parameter name="@KEY@">@VALUE@</steptml:parameter>\n',
        special=r"(?:function)?<｜[^｜]*｜>",
    ),
    Format(
        name="gpt-oss (harmony)",
        source="vLLM `openai`; SGLang `gpt-oss`; llama.cpp `gpt-oss`",
        call=(
            "<|channel|>commentary to=functions.@NAME@ <|constrain|>json<|message|>@ARGS@<|call|>"
        ),
        join="<|start|>assistant",
        thought="<|channel|>analysis<|message|>@THOUGHT@<|end|><|start|>assistant",
        shown="<|channel|>commentary<|message|>@TEXT@<|end|><|start|>assistant",
        special=r"<\|\w+\|>",
        afterwards=False,
    ),
    Format(
        name="gpt-oss, the recipient before the channel",
        source="vLLM `openai`; llama.cpp `gpt-oss`",
        head="<|start|>",
        call="assistant to=functions.@NAME@<|channel|>commentary json<|message|>@ARGS@<|call|>",
        join="<|start|>",
        thought="<|channel|>analysis<|message|>@THOUGHT@<|end|>",
        shown="<|channel|>commentary<|message|>@TEXT@<|end|>",
        special=r"<\|\w+\|>",
        afterwards=False,
    ),
    Format(
        name="LLM-jp 4.1 (harmony)",
        source="llama.cpp `llm-jp-harmony`",
        call="<|channel|> commentary to=functions.@NAME@ <|constrain|> json<|message|> @ARGS@",
        join="<|end|><|start|> assistant",
        tail="<|call|>",
        thought="<|channel|> analysis<|message|> @THOUGHT@<|end|><|start|> assistant",
        shown="<|channel|> commentary<|message|> @TEXT@<|end|><|start|> assistant",
        special=r"<\|\w+\|>",
        afterwards=False,
    ),
    Format(
        name="LLM-jp 4.1, the recipient before the channel",
        source="llama.cpp `llm-jp-harmony`",
        head="<|start|> ",
        call="assistant to=functions.@NAME@<|channel|> commentary<|message|> @ARGS@",
        join="<|end|><|start|> ",
        tail="<|call|>",
        thought="<|channel|> analysis<|message|> @THOUGHT@<|end|>",
        shown="<|channel|> commentary<|message|> @TEXT@<|end|>",
        special=r"<\|\w+\|>",
        afterwards=False,
    ),
    Format(
        name="FunctionGemma",
        source="vLLM `functiongemma`",
        call="<start_function_call>call:@NAME@@ARGS@<end_function_call>",
        arguments=_gemma("<escape>"),
        join="",
        special=r"<(?:start|end)_function_call>",
    ),
    Format(
        name="Gemma 4",
        source="vLLM `gemma4`; SGLang `gemma4`; llama.cpp `gemma4`",
        call="<|tool_call>call:@NAME@@ARGS@<tool_call|>",
        arguments=_gemma('<|"|>'),
        join="",
        thought="<|channel>thought\n@THOUGHT@<channel|>",
        special=r"<\|?tool_call\|?>",
    ),
    Format(
        name="Gemma 3",
        source="Google's prompt of Gemma 3",
        call="```tool_code\n@PYTHON@\n```",
    ),
    Format(
        name="Command R7B and Command A",
        source="vLLM `cohere_command3`, `cohere_command4`; SGLang `cohere_command4`; llama.cpp `cohere2moe`",
        head="<|START_ACTION|>[\n",
        call='    {"tool_call_id": "@N@", "tool_name": "@NAME@", "parameters": @ARGS@}',
        join=",\n",
        tail="\n]<|END_ACTION|>",
        thought="<|START_THINKING|>@THOUGHT@<|END_THINKING|>",
        special=r"<\|\w+\|>",
    ),
    Format(
        name="Command R",
        source="Cohere's prompt of Command R and R+",
        head="Action: ```json\n[\n",
        label="Action:",
        call='    {\n        "tool_name": "@NAME@",\n        "parameters": @ARGS@\n    }',
        join=",\n",
        tail="\n]\n```",
    ),
    Format(
        name="xLAM",
        source="vLLM `xlam`",
        head="[",
        call="@JSON@",
        join=", ",
        tail="]",
    ),
    Format(
        name="xLAM, fenced",
        source="vLLM `xlam`",
        head="```json\n[",
        call="@JSON@",
        join=", ",
        tail="]\n```",
    ),
    Format(
        name="Functionary 3.2",
        source="llama.cpp `functionary-v3-2`",
        call=">>>@NAME@\n@ARGS@",
        thought="",
        shown=">>>all\n@TEXT@\n",
        afterwards=False,
    ),
    Format(
        name="InternLM 2, Intern-S1",
        source="vLLM `internlm`; SGLang `interns1`",
        call='<|action_start|><|plugin|>\n{"name": "@NAME@", "parameters": @ARGS@}<|action_end|>',
        special=r"<\|\w+\|>",
    ),
    Format(
        name="Nemotron Nano v2, Nemotron Super",
        source="llama.cpp by its template; NVIDIA's `nemotron_json`",
        head="<TOOLCALL>[",
        call="@JSON@",
        join=", ",
        tail="]</TOOLCALL>",
        special=r"</?TOOLCALL>",
    ),
    Format(
        name="Apriel 1.5 and 1.6",
        source="llama.cpp by its template",
        head="<tool_calls>[",
        call='{"name": "@NAME@", "arguments": @ARGS@, "id": "call_@N@"}',
        join=", ",
        tail="]</tool_calls>",
        thought="<thinking>@THOUGHT@</thinking>\n",
    ),
    Format(
        name="Olmo 3",
        source="vLLM `olmo3`",
        head="<function_calls>\n",
        call="@PYTHON@",
        tail="\n</function_calls>",
        special=r"</?function_calls>",
    ),
    Format(
        name="ToolACE",
        source="Team-ACE's prompt",
        head="[",
        call="@PYTHON@",
        join=", ",
        tail="]",
    ),
    Format(
        name="LFM2",
        source="vLLM `lfm2`; SGLang `lfm2`; llama.cpp `lfm2`",
        head="<|tool_call_start|>[",
        call="@PYTHON@",
        join=", ",
        tail="]<|tool_call_end|>",
        special=r"<\|\w+\|>",
    ),
    Format(
        name="LFM2 with JSON",
        source="SGLang `lfm2`",
        head="<|tool_call_start|>[",
        call="@JSON@",
        join=", ",
        tail="]<|tool_call_end|>",
        special=r"<\|\w+\|>",
    ),
    Format(
        name="Solar Open",
        source="llama.cpp by its template",
        head="<|tool_calls|>",
        call=(
            "<|tool_call:begin|>call000@N@<|tool_call:name|>@NAME@<|tool_call:args|>@ARGS@"
            "<|tool_call:end|>"
        ),
        join="",
        thought="<|think|>@THOUGHT@<|end|><|begin|>assistant",
        special=r"<\|[\w:]+\|>",
        unread={"stripped": "the id of the call and its name have become one word"},
        shown="<|content|>@TEXT@",
    ),
    Format(
        name="Solar Open 2",
        source="vLLM `solar_open2`",
        call="<|tool_call:start|>@NAME@\n@PARAMS@<|tool_call:end|>",
        parameter="<|tool_arg:start|>@KEY@<|tool_arg:value|>@VALUE@<|tool_arg:end|>\n",
        special=r"<\|[\w:]+\|>",
        unread={"stripped": _NO_BORDERS},
    ),
    Format(
        name="Apertus",
        source="vLLM `apertus`; SGLang `apertus2509`; llama.cpp by its template",
        head="<|tools_prefix|>[",
        call='{"@NAME@": @ARGS@}',
        join=", ",
        tail="]<|tools_suffix|>",
        thought="<|inner_prefix|>@THOUGHT@<|inner_suffix|>",
        special=r"<\|\w+\|>",
    ),
    Format(
        name="MiniCPM 5",
        source="vLLM `minicpm5`; SGLang `minicpm5`; llama.cpp `minicpm5`",
        call='<function name="@NAME@">@PARAMS@</function>',
        parameter='<param name="@KEY@">@VALUE@</param>',
    ),
    Format(
        name="MiniCPM 3",
        source="OpenBMB's prompt of MiniCPM 3",
        head="<|tool_call_start|>\n```python\n",
        call="@PYTHON@",
        tail="\n```\n<|tool_call_end|>",
        thought="<|thought_start|>\n@THOUGHT@\n<|thought_end|>\n",
        special=r"<\|\w+\|>",
    ),
    Format(
        name="LongCat Flash",
        source="vLLM `longcat`",
        call="<longcat_tool_call>\n@JSON@\n</longcat_tool_call>",
        special=r"</?longcat_tool_call>",
        thought="<longcat_think>\n@THOUGHT@\n</longcat_think>\n",
    ),
    Format(
        name="Jamba",
        source="vLLM `jamba`",
        head="<tool_calls>[\n    ",
        call="@JSON@",
        join=",\n    ",
        tail="\n]</tool_calls>",
    ),
    Format(
        name="Inkling",
        source="vLLM `inkling`; SGLang `inkling`; llama.cpp `inkling`",
        call=(
            "<|message_model|>@NAME@<|content_invoke_tool_json|>"
            '{"name":"@NAME@","args":@ARGS@}<|end_message|>'
        ),
        join="",
        special=r"<\|\w+\|>",
        shown="",
    ),
    Format(
        name="Grok (xAI)",
        source="xAI's prompt",
        call='<xai:function_call name="@NAME@">\n@PARAMS@</xai:function_call>',
        parameter='<parameter name="@KEY@">@VALUE@</parameter>\n',
    ),
    Format(
        name="Claude, function calls",
        source="Anthropic's prompt of Claude 3 and later",
        head="<function_calls>\n",
        call='<invoke name="@NAME@">\n@PARAMS@</invoke>',
        tail="\n</function_calls>",
        parameter='<parameter name="@KEY@">@VALUE@</parameter>\n',
        thought="<thinking>@THOUGHT@</thinking>\n",
    ),
    Format(
        name="Claude, with a namespace",
        source="Anthropic's prompt of Claude 4",
        head=f"<{_NS}:function_calls>\n",
        call=f'<{_NS}:invoke name="@NAME@">\n@PARAMS@</{_NS}:invoke>',
        tail=f"\n</{_NS}:function_calls>",
        parameter=f'<{_NS}:parameter name="@KEY@">@VALUE@</{_NS}:parameter>\n',
        thought=f"<{_NS}:thinking>@THOUGHT@</{_NS}:thinking>\n",
    ),
    Format(
        name="Claude 2",
        source="Anthropic's prompt of Claude 2",
        head="<function_calls>\n",
        call=(
            "<invoke>\n<tool_name>@NAME@</tool_name>\n<parameters>\n@PARAMS@</parameters>\n</invoke>"
        ),
        tail="\n</function_calls>",
        parameter="<@KEY@>@VALUE@</@KEY@>\n",
        thought="<thinking>@THOUGHT@</thinking>\n",
    ),
    Format(
        name="Anthropic's JSON",
        source="Anthropic's API",
        call='{"type": "tool_use", "id": "toolu_0@N@", "name": "@NAME@", "input": @ARGS@}',
    ),
    Format(
        name="OpenAI's JSON",
        source="OpenAI's API; SGLang JSON array",
        head='{"tool_calls": [',
        call=(
            '{"id": "call_@N@", "type": "function", '
            '"function": {"name": "@NAME@", "arguments": @ARGS@}}'
        ),
        join=", ",
        tail="]}",
        arguments=_quoted_json,
    ),
    Format(
        name="YAML",
        source="prompts of agents",
        call="- name: @NAME@\n  arguments: @ARGS@",
        head="```yaml\n",
        tail="\n```",
    ),
    Format(
        name="ReAct",
        source="LangChain's and LlamaIndex's prompts",
        label="Thought: ",
        call="Action: @NAME@\nAction Input: @ARGS@",
        thought="",
        shown="Thought: @TEXT@\n",
        afterwards=False,
    ),
    Format(
        name="smolagents",
        source="smolagents' prompt of CodeAgent",
        head="<code>\n",
        call="@PYTHON@",
        tail="\n</code>",
    ),
    Format(
        name="smolagents until 1.19",
        source="smolagents' prompt of CodeAgent",
        head="Code:\n```py\n",
        label="Code:",
        call="@PYTHON@",
        tail="\n```<end_code>",
    ),
    Format(
        name="smolagents, ToolCallingAgent",
        source="smolagents' prompt of ToolCallingAgent",
        call='Action:\n{\n  "name": "@NAME@",\n  "arguments": @ARGS@\n}',
        label="Action:",
        afterwards=False,
    ),
    Format(
        name="CodeAct",
        source="CodeAct's and OpenDevin's prompts",
        head="<execute>\n",
        call="@PYTHON@",
        tail="\n</execute>",
    ),
    Format(
        name="Elements named like the function",
        source="Cline's, Roo Code's and Kilo's prompts",
        call="<@NAME@>\n@PARAMS@</@NAME@>",
        parameter="<@KEY@>@VALUE@</@KEY@>\n",
    ),
    Format(
        name="Gorilla and BFCL",
        source="BFCL's prompt",
        call="@PYTHON@",
        head="[",
        join=", ",
        tail="]",
    ),
    Format(
        name="Quoted calls in a list",
        source="seen in BFCL's real outputs",
        unread={"wrong name": "a string that calls nothing that is offered is a string"},
        head="[",
        call="@QUOTED@",
        join=", ",
        tail="]",
    ),
    Format(
        name="Glaive",
        source="Glaive's function calling data set",
        call="<functioncall> @JSON@",
        afterwards=False,
    ),
    Format(
        name="Firefunction",
        source="llama.cpp by its template",
        head=" functools[",
        call="@JSON@",
        join=", ",
        tail="]",
        afterwards=False,
    ),
)


# ------------------------------------------------------------------------------------------------
# The variants that every row has to pass.

OSLO: Call = ("get_weather", {"city": "Oslo", "days": 3})
CET: Call = ("get_time", {"tz": "CET"})
BERGEN: Call = ("get_weather", {"city": "Bergen", "days": 1})
NESTED: Call = (
    "create_event",
    {"title": "Fika", "when": {"day": "Friday", "hours": [9, 10]}, "guests": [{"name": "Bo"}]},
)
CODE: Call = (
    "search",
    {"query": 'def f(x):\n    return {"a": x[0], "b": "it\'s"}  # <b>\n\nprint(f("y"))'},
)
TAGS: Call = (
    "send_email",
    {"to": "a@b.c", "body": "Write </tool_call> or </function>, then <|im_end|> and </s>. Done."},
)
LAST_NEWLINE: Call = ("search", {"query": "one\ntwo\n"})
WRONG: Call = ("get_wether", {"city": "Oslo"})

#: Variant -> the calls in it.#: Names that end like what some formats write behind a name.
LIKE_WORDS: tuple[Call, ...] = (
    ("sentiment_analysis", {"text": "Fine."}),
    ("parse_json", {"text": "no"}),
)

VARIANTS: dict[str, tuple[Call, ...]] = {
    "plain": (OSLO,),
    "no arguments": (("get_time", {}),),
    "reasoning": (OSLO,),
    "prose": (OSLO,),
    "several": (OSLO, CET, BERGEN),
    "nested": (NESTED,),
    "code": (CODE,),
    "tags": (TAGS,),
    "names like words": LIKE_WORDS,
    "last newline": (LAST_NEWLINE,),
    "cut off": (OSLO, CET),
    "wrong name": (WRONG,),
    "stripped": (OSLO, CET),
}

THOUGHT = "The user wants the weather. I could get it."
BEFORE = "I'll look that up."
AFTER = "\n\nOne moment, please."


def reply(format: Format, variant: str) -> str:
    """The whole reply of a variant."""
    text = format.write(VARIANTS[variant], stripped=variant == "stripped")
    if variant == "reasoning":
        return format.thought.replace("@THOUGHT@", THOUGHT) + text
    if variant == "prose":
        shown = format.shown.replace("@TEXT@", BEFORE)
        return shown + text + (AFTER if format.afterwards else "")
    return text
