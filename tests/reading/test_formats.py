"""Every format of the table, in every variant: plain, with words around, nested, cut off, stripped ..."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import example_count
from tests.support.format_table import PAGE, page
from tests.support.formats import AFTER, BEFORE, FORMATS, THOUGHT, VARIANTS, Format, reply
from tests.support.replies import ReplyContent, read_reply, same_calls

every_format = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def wrong(format: Format, variant: str, found: ReplyContent) -> str:
    """Describe how the variant was misread; "" if it was read correctly."""
    shown = " ".join(found.shown.replace(format.label, "").split())
    if variant == "wrong name":
        return "" if found.needs_repair and not found.calls else f"no repair requested: {found}"
    if not same_calls(found.calls, VARIANTS[variant]):
        return f"other calls: {found}"
    if variant == "prose":
        before = BEFORE if format.shown else ""
        return (
            ""
            if shown in (before, f"{before} {AFTER.strip()}".strip())
            else f"other prose: {shown!r}"
        )
    if variant == "reasoning" and format.thought and found.thought.strip() != THOUGHT:
        return f"other reasoning: {found.thought!r}"
    return f"shown: {shown!r}" if shown else ""


@every_variant
@every_format
def test_a_format_is_read_whole_and_character_by_character(format: Format, variant: str) -> None:
    text = reply(format, variant)
    whole = read_reply(text)
    assert read_reply(text, range(1, len(text))) == whole
    if variant in format.unread:
        assert not whole.calls
    elif variant != "cut off":
        assert wrong(format, variant, whole) == ""


@settings(max_examples=example_count(300))
@given(st.sampled_from(FORMATS), st.sampled_from(sorted(VARIANTS)), st.data())
def test_a_format_is_read_the_same_however_it_is_cut(
    format: Format, variant: str, data: st.DataObject
) -> None:
    text = reply(format, variant)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    assert read_reply(text, cuts) == read_reply(text)


@every_format
def test_a_truncated_block_calls_nothing(format: Format) -> None:
    """Wherever a token limit cuts the reply, its calls are the first calls of the whole reply."""
    text, wanted = reply(format, "cut off"), VARIANTS["cut off"]
    for end in range(len(text)):
        calls = read_reply(text[:end], cut_off=True).calls
        assert same_calls(calls, wanted[: len(calls)]), text[:end]


def test_the_page_of_formats_is_up_to_date() -> None:
    """Run ``make pages`` after a change of the table."""
    assert PAGE.read_text(encoding="utf-8") == page()


#: The parsers of these servers, by their names in the registries; for llama.cpp only those that are not
#: derived from a model's template.
VLLM = """
apertus cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4
ernie45 functiongemma gemma4 gigachat3 glm45 glm47 granite granite-20b-fc granite4 hermes
hunyuan_a13b hy_v3 inkling internlm jamba kimi_k2 kimi_k3 lfm2 llama3_json llama4_json
llama4_pythonic longcat mimo minicpm5 minimax_m2 minimax_m3 mistral olmo3 openai
phi4_mini_json poolside_v1 pythonic qwen3_coder qwen3_xml seed_oss solar_open2 step3
step3p5 xlam
"""
SGLANG = """
apertus2509 cohere_command4 deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 dots
gemma4 gigachat3 gigachat35 glm glm45 glm47 gpt-oss hermes hunyuan inkling interns1
iquest_q1 k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3 mimo minicpm5 minimax-m2 minimax-m3
mistral muse nanbeige poolside_v1 pythonic qwen qwen25 qwen3_coder spark25 step3 step3p5
trinity
"""
LLAMA_CPP = """
cohere2moe deepseek functionary-v3-2 gemma4 gigachat-v3 gpt-oss inkling k2-horizon kimi-k2
kimi-k3 lfm2 ling3 llm-jp-harmony minicpm5 minimax-m3 ministral3 muse-glimmer qwen3-coder
"""


@pytest.mark.parametrize(
    ("server", "parsers"), [("vLLM", VLLM), ("SGLang", SGLANG), ("llama.cpp", LLAMA_CPP)]
)
def test_every_parser_of_a_server_has_a_row(server: str, parsers: str) -> None:
    named = {
        name
        for format in FORMATS
        for part in format.source.split("; ")
        if part.startswith(server)
        for name in re.findall(r"`([^`]+)`", part)
    }
    assert set(parsers.split()) - named == set()
