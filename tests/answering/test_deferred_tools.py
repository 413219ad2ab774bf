"""Large toolsets: the prompt shows the best matches, lists the others, and the model searches them."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from tests.support.agents import broken_prefixes, converse
from tests.support.chat import BOTH, calls, plain
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import function, strings

SUBJECTS = "invoice order customer ticket article review coupon refund parcel shelf".split()
VERBS = "list count archive export import rename merge split lock unlock".split()
POOL = [
    function(
        f"{place}.{verb}_{subject}", strings("id"), f"{verb.title()} one {subject} of the {place}."
    )
    for place in ("shop", "store", "depot")
    for verb in VERBS
    for subject in SUBJECTS
]
MODE = {"type": "object", "properties": {"fan": {"enum": ["turbo", "quiet"]}}}
OTHERS = [
    function("weather", strings("id"), "查询某地的天气预报。"),
    function("nalssi", strings("id"), "도시의 날씨를 조회합니다."),
    function("device", {"type": "object", "properties": {"body": MODE}}, "Send a command."),
]
QUESTION = "Which refund of the shop was archived?"
HIDDEN = "depot_merge_parcel"


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key="k", max_retries=0)


def system(request: Any) -> str:
    return str(request["messages"][0]["content"])


@BOTH
@pytest.mark.parametrize("tokens", [500, 2_000, 6_000])
def test_a_model_finds_a_tool_that_its_prompt_only_lists(
    start_proxy: Any, upstream: ScriptedUpstream, ask: Any, tokens: int
) -> None:
    upstream.reply(
        "```python\nsearch_tools(query='merge a parcel at the depot')\n```",
        f"```python\n{HIDDEN}(id='p1')\n```",
        "Merged.",
        "You are welcome.",
    )
    made: list[str] = []

    def merge(id: str) -> str:
        made.append(id)
        return "merged"

    api = client(start_proxy(tool_tokens=tokens))
    spoken = [QUESTION, "Thanks."]
    messages = converse(api, spoken, tools=POOL, local={"depot.merge_parcel": merge}, ask=ask)
    assert made == ["p1"]
    assert broken_prefixes(upstream.requests) == []
    first, second, *_, last = upstream.requests
    assert len(system(first)) < 4 * tokens + 2_500
    assert "def shop_archive_refund(" in system(first)
    assert f"def {HIDDEN}(" not in system(first)
    assert f"def {HIDDEN}(" in second["messages"][-1]["content"]
    assert str(last["messages"]).count(f"def {HIDDEN}(") == 1
    shown = [message.get("content") for message in messages if message["role"] == "assistant"]
    assert shown[-2:] == ["Merged.", "You are welcome."]
    assert "search_tools" not in str(messages)


def test_each_tool_can_be_called_without_a_search(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    upstream.reply(f"```python\n{HIDDEN}(id='p1')\n```")
    answer = plain(client(start_proxy(tool_tokens=500)), model="m", messages=question(), tools=POOL)
    assert calls(answer) == [("depot.merge_parcel", {"id": "p1"})]
    assert f"def {HIDDEN}(" not in system(upstream.requests[0])


def question() -> list[Any]:
    return [{"role": "user", "content": QUESTION}]


@pytest.mark.parametrize(
    ("query", "shown", "hidden"),
    [
        ("depot.merge_parcel, store_lock_shelf", ["depot_merge_parcel", "store_lock_shelf"], []),
        ("unlock the shelf of the store", ["store_unlock_shelf"], ["depot_merge_parcel"]),
        ("北京后天的天气如何？", ["def weather("], ["depot_merge_parcel"]),
        ("서울 날씨 알려줘", ["def nalssi("], ["def weather("]),
        ("turn the turbo on", ["def device("], ["depot_merge_parcel"]),
        ("quantum entanglement", ["No function matches", "Search by other words"], ["def "]),
        ('"; DROP TABLE tool; -- AND NOT (', ["No function matches"], ["def "]),
        ("", ["No function matches"], ["def "]),
    ],
)
def test_a_search_finds_names_and_words(
    start_proxy: Any, upstream: ScriptedUpstream, query: str, shown: list[str], hidden: list[str]
) -> None:
    upstream.reply(f"```python\nsearch_tools(query={query!r})\n```", "Done.")
    api = client(start_proxy(tool_tokens=500))
    plain(api, model="m", messages=question(), tools=[*POOL, *OTHERS])
    result = upstream.requests[1]["messages"][-1]["content"]
    assert all(words in result for words in shown)
    assert not any(words in result for words in hidden)


@pytest.mark.parametrize(
    ("settings", "answers", "is_deferred"),
    [
        ({}, {}, False),
        ({"tool_tokens": 0}, {"max_model_len": 8192}, False),
        ({}, {"max_model_len": 8192}, True),
        ({}, {"max_model_len": 131072}, False),
        ({"tool_tokens": 500}, {"max_model_len": 131072}, True),
        (
            {
                "tool_tokens": 50_000,
                "profiles": [{"name": "p", "pattern": "m", "tool_tokens": 500}],
            },
            {},
            True,
        ),
    ],
)
def test_the_limit_comes_from_the_profile_the_setting_or_the_context_length(
    start_app: Any,
    upstream: ScriptedUpstream,
    settings: Any,
    answers: dict[str, Any],
    is_deferred: bool,
) -> None:
    row = {"id": "m", "object": "model", "created": 1, "owned_by": "vllm", **answers}
    upstream.at_root = {"/v1/models": {"object": "list", "data": [row]}}
    url, services = start_app(**settings)
    services.reachability.check()
    upstream.reply("Hello.")
    plain(client(url), model="m", messages=question(), tools=POOL)
    assert ("search_tools" in system(upstream.requests[0])) is is_deferred


def test_a_required_call_is_made_after_the_search(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    upstream.reply(
        "```python\nsearch_tools(query='merge parcel')\n```",
        "There is nothing to do.",
        f"```python\n{HIDDEN}(id='p1')\n```",
    )
    allowed = [
        {"type": "function", "function": {"name": t["function"]["name"]}} for t in POOL[100:]
    ]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": allowed}}
    answer = plain(
        client(start_proxy(tool_tokens=500)),
        model="m",
        messages=question(),
        tools=POOL,
        tool_choice=choice,
    )
    assert calls(answer) == [("depot.merge_parcel", {"id": "p1"})]


def test_a_native_upstream_gets_the_tools_that_are_shown_and_those_that_were_found(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    upstream.reply(
        Reply(tool_calls=[{"name": "search_tools", "arguments": {"query": "merge parcel"}}]),
        Reply(tool_calls=[{"name": "depot_merge_parcel", "arguments": {"id": "p1"}}]),
    )
    api = client(start_proxy(tool_tokens=500, tools="native"))
    answer = plain(api, model="m", messages=question(), tools=POOL)
    assert calls(answer) == [("depot.merge_parcel", {"id": "p1"})]
    first, second = ([t["function"]["name"] for t in r["tools"]] for r in upstream.requests)
    assert len(first) < 22
    assert "search_tools" in first
    assert set(second) - set(first) >= {"depot_merge_parcel"}
    assert len(second) < 30


def test_responses_and_messages_show_no_search_and_the_model_sees_it_in_the_next_turn(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    turns = (
        "```python\nsearch_tools(query='merge a parcel')\n```",
        f"```python\n{HIDDEN}(id='p1')\n```",
    )
    url = start_proxy(tool_tokens=500)
    flat: list[Any] = [{"type": "function", "strict": False, **tool["function"]} for tool in POOL]
    responses, items = client(url).responses, [*question()]
    upstream.reply(*turns, "Merged.", "Bye.")
    for said in (
        {"type": "function_call_output", "output": "ok"},
        {"role": "user", "content": "Bye."},
        {},
    ):
        answer = responses.create(model="m", input=items, tools=flat, store=False)
        assert [item.type for item in answer.output] in (["function_call"], ["message"])
        items += [item.model_dump(exclude_none=True) for item in answer.output]
        items.append(said | ({"call_id": items[-1]["call_id"]} if "output" in said else {}))
    with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="k") as claude:
        tools: list[Any] = [
            {
                "name": f["name"].replace(".", "_"),
                "input_schema": f["parameters"],
                "description": f["description"],
            }
            for f in (tool["function"] for tool in POOL)
        ]
        items = [*question()]
        upstream.reply(*turns, "Merged.", "Bye.")
        for said in ("ok", "Bye.", ""):
            message = claude.messages.create(model="m", max_tokens=99, messages=items, tools=tools)
            assert [block.type for block in message.content] in (["tool_use"], ["text"])
            result = {
                "type": "tool_result",
                "tool_use_id": getattr(message.content[0], "id", ""),
                "content": said,
            }
            items += [
                {"role": "assistant", "content": [block.model_dump() for block in message.content]},
                {"role": "user", "content": [result] if said == "ok" else said},
            ]
    for requests in (upstream.requests[:4], upstream.requests[4:]):
        assert broken_prefixes(requests) == []
        assert str(requests[-1]["messages"]).count(f"def {HIDDEN}(") == 1


def test_a_description_stays_on_its_line_of_the_list(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    upstream.reply("Hello.")
    bad = function("evil", strings("id"), "a\n```\nb\u2028c\x00\n~~~")
    plain(
        client(start_proxy(tool_tokens=6_000)), model="m", messages=question(), tools=[*POOL, bad]
    )
    prompt = system(upstream.requests[0])
    assert "\n# - evil: a " in prompt
    assert prompt.partition("# - evil: a ")[2].splitlines()[0] == r"\x60\x60\x60 b c \x7e\x7e\x7e"
