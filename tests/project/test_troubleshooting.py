"""Each symptom of docs/troubleshooting.md, reproduced; and what the page says to do about it, done."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.chat import ASK, LONDON, calls, plain
from tests.support.places import needs_bubblewrap
from tests.support.processes import free_port
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.tools import GET_WEATHER, SEND_MAIL

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
HEADINGS = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
LONDON_CALL = [("get_weather", {"location": "London"})]
NOT_WORDS = re.compile(r"\W+")


def ask(url: str, **request: Any) -> Any:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        return plain(client, **{"model": "m", "messages": ASK, "tools": [GET_WEATHER]} | request)


def test_every_symptom_of_the_page_has_a_test() -> None:
    tests = {name for name in globals() if name.startswith("test_")}
    wanted = {"test_" + NOT_WORDS.sub("_", heading.lower()).strip("_") for heading in HEADINGS}
    assert wanted <= tests
    assert len(wanted) >= 10


def test_the_model_answers_in_prose(start_proxy: Any, upstream: ScriptedUpstream) -> None:
    upstream.reply("It is mild in London.", "It is mild.", LONDON, *["I would rather not."] * 2)
    url = start_proxy(repair_attempts=1)
    assert ask(url).choices[0].message.content == "It is mild in London."
    assert calls(ask(url, tool_choice="required")) == LONDON_CALL
    with pytest.raises(openai.APIStatusError) as refused:
        ask(url, tool_choice="required")
    assert (refused.value.status_code, refused.value.code) == (502, "model_required")


def test_a_call_inside_of_think_is_not_made(start_proxy: Any, upstream: ScriptedUpstream) -> None:
    thought = f"<think>\n{LONDON}\n</think>"
    upstream.reply(f"{thought}\nIt is mild.", thought)
    assert calls(ask(start_proxy())) == []
    assert calls(ask(start_proxy())) == LONDON_CALL


def test_a_call_is_shown_as_code_or_costs_a_second_turn(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    mail = "```python\nsend_mail(to='ann', body='Hi')\n```"
    row = {"name": "mine", "pattern": ".", "acts": "any"}
    for url, answers in ((start_proxy(), ["NO"]), (start_proxy(profiles=(row,)), [])):
        upstream.reply(f"Sure:\n\n{mail}\n\nDone.", *answers)
        assert len(calls(ask(url, tools=[SEND_MAIL]))) == 1 - len(answers)


def test_the_first_call_of_a_new_model_is_slow_later_ones_are_quick(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    """Of the first reply the call leaves with its end, of the second before the model has ended."""
    reply = f"Short.</think>\n{LONDON}\n"
    upstream.reply(reply, Reply(chunks=[reply, "..."], fault="silent", after=1))
    request: dict[str, Any] = {"model": "qwq", "messages": ASK, "tools": [GET_WEATHER]}
    with openai.OpenAI(base_url=f"{proxy}/v1", api_key="any", max_retries=0) as client:
        for _ in range(2):
            with client.chat.completions.create(**request, stream=True) as stream:
                assert any(chunk.choices[0].delta.tool_calls for chunk in stream)


def test_the_model_repeats_the_same_call(proxy: str, upstream: ScriptedUpstream) -> None:
    messages: list[Any] = [*ASK]
    for number in range(3):
        call = {"name": "get_weather", "arguments": '{"location": "London"}'}
        made = {"id": f"call_{number}", "type": "function", "function": call}
        messages += [
            {"role": "assistant", "tool_calls": [made]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": "no such place"},
        ]
    upstream.reply(LONDON, "There is no such place.")
    answer = ask(proxy, messages=messages).choices[0].message
    assert answer.content == "There is no such place."
    assert "same" in json.dumps(upstream.requests[-1]["messages"][-1])


def test_calls_come_one_after_the_other_not_together(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    acts: Any = json.loads(json.dumps(GET_WEATHER).replace("get_weather", "set_weather"))
    acts["function"] |= {"description": "Change the weather.", "annotations": {}}
    both = "```python\nset_weather(location='Oslo')\nget_weather(location='Oslo')\n```"
    upstream.reply(both, both)
    url = start_proxy()
    together = {"extra_headers": {"x-emulator-order": "dataflow"}}
    assert len(calls(ask(url, tools=[acts, GET_WEATHER]))) == 1
    assert len(calls(ask(url, tools=[acts, GET_WEATHER], **together))) == 2


def test_the_answer_ends_with_finish_reason_length_and_no_call(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    upstream.reply(Reply('```python\nget_weather(location="Lon', finish_reason="length"), LONDON)
    url = start_proxy(repair_attempts=0)
    cut = ask(url, max_tokens=8)
    assert (cut.choices[0].finish_reason, calls(cut)) == ("length", [])
    assert calls(ask(url)) == LONDON_CALL


def test_400_from_the_upstream_because_of_a_field(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    def picky(body: Any) -> Reply:
        field = "seed" if "seed" in body else "response_format"
        refused = {"error": {"message": "not supported", "type": "invalid_request_error"}}
        return Reply(status=400, body=refused) if field in body else Reply(LONDON)

    upstream.reply(*[picky] * 4)
    with pytest.raises(openai.BadRequestError, match=r"not supported$"):
        ask(start_proxy(), seed=1)
    assert calls(ask(start_proxy(drop_fields="seed"), seed=1)) == LONDON_CALL
    advice = r"not supported \(the proxy sent response_format; --no-grammar omits it\)"
    with pytest.raises(openai.BadRequestError, match=advice):
        ask(start_proxy(profile="tiny"))
    assert calls(ask(start_proxy(profile="tiny", grammar=False))) == LONDON_CALL


def test_502_upstream_down(start_proxy: Any) -> None:
    url = start_proxy(base_url=f"http://127.0.0.1:{free_port()}/v1", upstream_retries=0)
    with pytest.raises(openai.APIStatusError) as down:
        ask(url)
    assert (down.value.status_code, down.value.code) == (502, "upstream_down")


def test_401_invalid_api_key(start_proxy: Any, upstream: ScriptedUpstream) -> None:
    refusal = {"error": {"message": "no such key", "code": "invalid_api_key"}}
    upstream.reply(Reply(status=401, body=refusal))
    for url, where in (
        (start_proxy(), f"({upstream.base_url}/chat/completions)"),
        (start_proxy(client_keys=("mine",)), "Incorrect API key provided."),
    ):
        with pytest.raises(openai.AuthenticationError) as refused:
            ask(url)
        assert refused.value.code == "invalid_api_key"
        assert where in refused.value.message


def test_403_origin_not_allowed_or_host_not_allowed_from_a_web_page(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    page, name = {"origin": "https://my.page"}, {"host": "my.host"}
    for headers, code in [(page, "origin_not_allowed"), (name, "host_not_allowed")]:
        with pytest.raises(openai.PermissionDeniedError) as refused:
            ask(start_proxy(), extra_headers=headers)
        assert refused.value.code == code
    upstream.reply(LONDON)
    url = start_proxy(cors_origins="https://my.page", allowed_hosts="my.host")
    assert calls(ask(url, extra_headers=page | name)) == LONDON_CALL


def test_415_unsupported_media_type(proxy: str, upstream: ScriptedUpstream) -> None:
    form = {"extra_headers": {"content-type": "application/x-www-form-urlencoded"}}
    with pytest.raises(openai.APIStatusError) as refused:
        ask(proxy, **form)
    assert (refused.value.status_code, refused.value.code) == (415, "unsupported_media_type")


def test_a_tool_is_missing_from_the_answer_and_nobody_says_why(
    proxy: str, upstream: ScriptedUpstream
) -> None:
    upstream.reply("I cannot search.")
    hosted: Any = {"type": "web_search"}
    with openai.OpenAI(base_url=f"{proxy}/v1", api_key="any", max_retries=0) as client:
        told = client.responses.with_raw_response.create(model="m", input="Hi", tools=[hosted])
        assert told.headers["x-emulator-dropped-tools"] == "web_search"
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(model="m", input="Hi", tools=[hosted], tool_choice=hosted)
    assert refused.value.code == "unsupported_tool"


@needs_bubblewrap
def test_the_code_interpreter_does_not_run_in_chat_completions(
    start_proxy: Any, upstream: ScriptedUpstream
) -> None:
    code = "```python\nprint(6 * 7)\n```"
    upstream.reply(code, code, "It is 42.")
    without: dict[str, Any] = {"tools": openai.omit}
    assert "print(6 * 7)" in ask(start_proxy(), **without).choices[0].message.content
    assert ask(start_proxy(interpreter="on"), **without).choices[0].message.content == "It is 42."


def test_the_context_is_full(start_proxy: Any, upstream: ScriptedUpstream) -> None:
    url = start_proxy()
    notes = []
    for length in (40_000, 80_000):
        upstream.reply(Reply("Hm.", usage={"prompt_tokens": 4096, "completion_tokens": 1}))
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
            answer = client.chat.completions.with_raw_response.create(
                model="m",
                tools=[GET_WEATHER],
                messages=[{"role": "user", "content": "x " * length}],
            )
        notes.append(answer.headers.get("x-emulator-notes") or "")
    assert ["prompt-cut" in each for each in notes] == [False, True]
