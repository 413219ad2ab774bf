"""What chat templates say about tools becomes the prompt, and our readers read the reply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.rendering.custom_template import InvalidTemplate, check_templates
from emulator.rendering.model_template import NoTools, tools_prompt
from emulator.settings.settings import Settings
from emulator.tools.toolset import Toolset
from tests.conftest import StartProxy
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import GET_WEATHER

TOOLSET = Toolset.parse([GET_WEATHER])
# The ways in which templates of model families insert tools, in our own words.
AFTER_THE_SYSTEM_MESSAGE = """\
{% set system = messages[0].content if messages[0].role == "system" else "" %}
<|im_start|>system
{{ system }}
{%- if tools %}

# Tools
{% for tool in tools %}
{{ tool | tojson }}
{% endfor %}
Call them as <tool_call>{"name": ..., "arguments": ...}</tool_call>
{%- endif %}<|im_end|>
{% for m in messages if m.role != "system" %}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}
"""
BEFORE_ALL_MESSAGES = """\
[gMASK]
{%- if tools -%}
<|system|>
# Tools
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
</tool_call>
{%- endif -%}
{% for m in messages %}
<|{{ m.role }}|>
{{ m.content }}
{% endfor %}
"""
BETWEEN_TOKENS = """\
{{ bos_token }}
{%- if messages[0].role == "system" %}
{{- raise_exception("no system message, please") }}
{%- endif %}
{%- if tools is not none %}
{{- "[TOOLS] " + tools | tojson + "[/TOOLS]" }}
{%- endif %}
{{- "[INST]" + messages[0].content + "[/INST]" }}
"""
IN_TWO_PLACES = """\
{% if tools is not none %}
Environment: ipython
{% endif %}
Today is {{ strftime_now("%d %b %Y") }}.
{{ messages[0].content }}
{% for m in messages[1:] %}
{% if loop.index > 9 %}{% break %}{% endif %}
<|user|>
{% if tools is not none %}
Answer with JSON for a call of these functions:
{{ tools[0] | tojson(indent=1) }}

{% endif %}
{{ m.content }}
{% endfor %}
"""
A_MESSAGE_OF_ITS_OWN = """\
{%- if tools -%}
<|im_system|>tool_declare<|im_middle|>{{ tools | map(attribute="function") | tojson }}<|im_end|>
{%- endif %}
{%- for m in messages %}
<|im_system|>{{ m.role }}<|im_middle|>{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>
{%- endfor %}<|im_assistant|>assistant<|im_middle|>
"""
WITH_A_LONG_HEADER = """\
{%- if tools -%}
<|open|>message role="system" type="tools"<|sep|># Tools
{{ tools | tojson }}<|close|>message<|sep|>
{%- endif %}
{%- for m in messages -%}
<|open|>message role="{{ m.role }}" type="text"<|sep|>{{ m.content }}<|close|>message<|sep|>
{%- endfor %}
"""
ONLY_WITH_TOOLS = """\
<|im_start|>system
You can call functions: <tools>{% for t in tools %}{{ t.function | tojson }}{% endfor %}</tools><|im_end|>
{% for m in messages %}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}
<|im_start|>assistant
"""
IN_A_LIST_OF_ITS_OWN = """\
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content }}
{%- if tools and loop.first %}
Tools: <|list_start|>{{ tools | tojson }}<|list_end|>{% endif %}<|im_end|>
{% endfor %}
"""
BEFORE_THE_INSTRUCTIONS = """\
{%- if tools %}{{ "[AVAILABLE] " + tools | tojson + "[/AVAILABLE]" }}{% endif %}
{{- "[INST] " }}{% if tools %}{{ "Call tools.\\n\\n" }}{% endif %}
{{- messages[-1].content + "[/INST]" }}
"""


@pytest.mark.parametrize(
    ("template", "begin", "end"),
    [
        (AFTER_THE_SYSTEM_MESSAGE, "# Tools\n{", '"arguments": ...}</tool_call>'),
        (BEFORE_ALL_MESSAGES, "# Tools\n{", "}\n</tool_call>"),
        (BETWEEN_TOKENS, "[TOOLS] [{", "}][/TOOLS]"),
        (IN_TWO_PLACES, "Environment: ipython\n\nAnswer with JSON", " }\n}"),
        (A_MESSAGE_OF_ITS_OWN, '[{"name": ', '"]}}]'),
        (WITH_A_LONG_HEADER, "# Tools\n[{", "}]"),
        (ONLY_WITH_TOOLS, "You can call functions: <tools>{", "}</tools>"),
        (IN_A_LIST_OF_ITS_OWN, "Tools: <|list_start|>[{", "}]<|list_end|>"),
        (BEFORE_THE_INSTRUCTIONS, "[AVAILABLE] [{", "}][/AVAILABLE]\nCall tools."),
    ],
)
def test_the_text_that_a_template_adds_for_tools_becomes_the_prompt(
    template: str, begin: str, end: str, tmp_path: Path
) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text(template)
    text = tools_prompt(str(file), TOOLSET)
    assert (text[: len(begin)], text[-len(end) :]) == (begin, end)
    assert "City, e.g. London" in text


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "it shows no tools"),
        ("{{ messages[9].content.x }}", "has no element 9"),
        ("{% if %}", "Expected an expression"),
        ("{{ ''.__class__.__mro__ }}{{ tools }}", "access to attribute '__class__'"),
        ("{{ raise_exception('no system') if messages[1] }}", "it shows no tools"),
        ("{% for i in range(9999999) %}{% endfor %}", "Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "it needs more than 3 seconds",
        ),
        (
            "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "MemoryError",
        ),
        ("{{ 'x' * 9999999 }}", "it renders more than 2000000 characters"),
        ("x" * 200_001, "longer than"),
    ],
)
def test_a_template_that_cannot_be_used_stops_the_start(
    template: str, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text(template)
    row = {"name": "own", "chat_template": str(file)}
    with pytest.raises(InvalidTemplate, match=problem):
        check_templates(Settings(profiles=(row,)))
    with pytest.raises(NoTools, match="No such file"):
        tools_prompt(str(tmp_path / "missing"), TOOLSET)


def test_a_model_is_prompted_with_the_text_of_its_template_and_its_call_is_read(
    start_proxy: StartProxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text(AFTER_THE_SYSTEM_MESSAGE)
    proxy = start_proxy(profiles=({"name": "own", "pattern": ".", "chat_template": str(file)},))
    upstream.reply(
        '<tool_call>{"name": "get_weather", "arguments": {"location": "Oslo"}}</tool_call>'
    )
    body: dict[str, Any] = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
        ],
        "tools": [GET_WEATHER],
        "tool_choice": "required",
    }
    _, _, answer = send(f"{proxy}/v1/chat/completions", body)
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"location":"Oslo"}'}
    system = upstream.requests[0]["messages"][0]["content"]
    assert system.startswith("Be brief.\n\n# Tools\n{")
    assert system.endswith(
        "</tool_call>\n\nThis time you must call at least one of these functions."
    )
