"""What a model's server sends besides words is the same over every API, plain and streamed, whoever calls the
tools: a refusal, which stays in the next prompt; the pages that it cites; images of the model.
"""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from emulator.reply.extras import FIELDS
from tests.conftest import StartProxy
from tests.support.openai_wire import validator
from tests.support.raw_http import send
from tests.support.responses_client import ask, ask_stream, check_events
from tests.support.scripted import DONE, Reply, ScriptedUpstream, sse
from tests.support.tools import GET_WEATHER, function

TOOL = GET_WEATHER["function"]
ASK = {"role": "user", "content": "Help me"}


def sent(*deltas: dict[str, Any]) -> Reply:
    ended: list[tuple[dict[str, Any], str | None]] = [
        *((one, None) for one in deltas),
        ({}, "stop"),
    ]
    frames = [
        sse({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
        for delta, reason in ended
    ]
    return Reply(frames=[*frames, DONE])


@pytest.fixture(params=["relayed", "native", "emulated"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tools(mode: str) -> bool:
    return mode != "relayed"


@pytest.fixture
def url(start_proxy: StartProxy, mode: str) -> str:
    return start_proxy(tools="native") if mode == "native" else start_proxy()


@pytest.fixture
def refuses(upstream: ScriptedUpstream) -> None:
    upstream.reply(sent({"refusal": "I can"}, {"refusal": "not."}))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.usefixtures("refuses")
def test_over_responses_a_refusal_is_a_part_of_a_message(
    url: str, upstream: ScriptedUpstream, tools: bool, stream: bool
) -> None:
    """It was an `output_text`, and so an answer."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    offered: Any = {"tools": [{"type": "function", **TOOL}]} if tools else {}
    if stream:
        events = list(client.responses.create(model="m", input=[ASK], stream=True, **offered))
        kinds = [event.type for event in events]
        assert kinds.count("response.refusal.delta") == 2
        assert kinds.index("response.refusal.done") < kinds.index("response.content_part.done")
        for event in events:
            if "refusal" in event.type:
                validator("ResponseStreamEvent").validate(event.to_dict())
        response = events[-1].response  # type: ignore[union-attr]
    else:
        response = client.responses.create(model="m", input=[ASK], **offered)
    [message] = response.output
    assert message.to_dict()["content"] == [{"type": "refusal", "refusal": "I cannot."}]
    assert (response.status, response.output_text) == ("completed", "")
    upstream.reply("Fine.")
    client.responses.create(model="m", input=[ASK, message, ASK], **offered)
    assert "I cannot." in str(upstream.requests[-1]["messages"])


def ask_claude(url: str, *, tools: bool, stream: bool) -> tuple[anthropic.Anthropic, Any, Any]:
    """The client, the body of a request, and its message."""
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    tool = {"name": TOOL["name"], "input_schema": TOOL["parameters"]}
    body: Any = {"model": "m", "max_tokens": 99, "messages": [ASK], "tools": [tool] * tools}
    if stream:
        with client.messages.stream(**body) as streamed:
            message = streamed.get_final_message()
    else:
        message = client.messages.create(**body)
    return client, body, message


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.usefixtures("refuses")
def test_over_messages_a_refusal_is_text_with_its_own_stop_reason(
    url: str, upstream: ScriptedUpstream, tools: bool, stream: bool
) -> None:
    """The message ended as a turn of its own accord."""
    client, body, message = ask_claude(url, tools=tools, stream=stream)
    assert message.stop_reason == "refusal"
    assert [block.to_dict()["text"] for block in message.content] == ["I cannot."]
    upstream.reply("Fine.")
    history = [ASK, {"role": "assistant", "content": message.content}, ASK]
    client.messages.create(**{**body, "messages": history})
    assert "I cannot." in str(upstream.requests[-1]["messages"])


@pytest.mark.usefixtures("refuses")
def test_over_chat_a_refusal_is_the_field_of_the_message(url: str, tools: bool) -> None:
    offered = {"tools": [GET_WEATHER]} if tools else {}
    body = {"model": "m", "messages": [ASK], **offered}
    message = send(f"{url}/v1/chat/completions", body)[2]["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (None, "I cannot.")


def test_a_refusal_answers_a_required_call(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    upstream.reply(sent({"refusal": "I cannot."}))
    body = {"model": "m", "messages": [ASK], "tools": [GET_WEATHER], "tool_choice": "required"}
    status, _, answer = send(f"{start_proxy()}/v1/chat/completions", body)
    assert (status, answer["choices"][0]["message"]["refusal"]) == (200, "I cannot.")
    assert len(upstream.requests) == 1


PAGE = {
    "url": "https://a.example/", "title": "A", "content": "It is so.", "start_index": 0, "end_index": 4
}  # fmt: skip
CITED = {"annotations": [{"type": "url_citation", "url_citation": PAGE}]}
PNG = "data:image/png;base64,aGk="
LINK = "https://b.example/i.png"


def shown(*urls: str) -> dict[str, Any]:
    return {"images": [{"type": "image_url", "image_url": {"url": url}} for url in urls]}


ODD = {"annotations": [1, {"type": "url_citation", "url_citation": {"url": 2}}], "images": {"a": 1}}
EXTRAS = [{"content": "So."}, CITED, CITED, shown(PNG), shown(LINK)]


@pytest.mark.parametrize("stream", [False, True])
def test_over_responses_pages_are_annotations_and_images_items(
    url: str, upstream: ScriptedUpstream, tools: bool, stream: bool
) -> None:
    """Both were lost, and an answer of nothing but an image was empty."""
    upstream.reply(sent(*EXTRAS, ODD))
    offered = {"tools": [{"type": "function", **TOOL}]} if tools else {}
    body = {"model": "m", "input": "Hi", **offered}
    response = check_events(ask_stream(url, body)) if stream else ask(url, body)
    message, image, link = response["output"]
    cited = {"type": "url_citation", "url": PAGE["url"], "title": "A"}
    [part] = message["content"]
    assert part["annotations"] == [{**cited, "start_index": 0, "end_index": 3}] * 2
    assert (image["type"], image["status"]) == ("image_generation_call", "completed")
    assert (image["result"], image["output_format"]) == ("aGk=", "png")
    assert link["content"][0]["text"] == f"\n\n[an image]({LINK})"
    upstream.reply("Fine.")
    again = [{"role": "user", "content": "Hi"}, *response["output"], ASK]
    assert ask(url, {**body, "input": again})["status"] == "completed"


@pytest.mark.parametrize("stream", [False, True])
def test_over_messages_pages_are_citations_and_images_words(
    url: str, upstream: ScriptedUpstream, tools: bool, stream: bool
) -> None:
    upstream.reply(sent(*EXTRAS, ODD))
    client, body, message = ask_claude(url, tools=tools, stream=stream)
    words, image, link = [block.to_dict() for block in message.content]
    cited = {"type": "web_search_result_location", "url": PAGE["url"], "title": "A"}
    cited |= {"cited_text": "It is so.", "encrypted_index": ""}
    assert (words["text"], words["citations"]) == ("So.", [cited] * 2)
    assert (image["text"], link["text"]) == ("[an image]", f"[an image]({LINK})")
    upstream.reply("Fine.")
    history = [ASK, {"role": "assistant", "content": message.content}, ASK]
    assert client.messages.create(**{**body, "messages": history}).stop_reason == "end_turn"


@pytest.mark.parametrize("stream", [False, True])
def test_over_chat_pages_and_images_are_fields_of_the_message(
    url: str, upstream: ScriptedUpstream, tools: bool, stream: bool
) -> None:
    """Of two lists in a stream a plain answer had the last one."""
    upstream.reply(sent(*EXTRAS))
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    offered = {"tools": [GET_WEATHER]} if tools else {}
    body: Any = {"model": "m", "messages": [ASK], **offered}
    if stream:
        deltas = [
            chunk.choices[0].delta.to_dict()
            for chunk in client.chat.completions.create(**body, stream=True)
        ]
        message: Any = {
            name: [one for delta in deltas for one in delta.get(name) or ()] for name in FIELDS[1:]
        }
    else:
        message = client.chat.completions.create(**body).choices[0].message.to_dict()
        assert message["content"] == "So."
    assert message["annotations"][:2] == CITED["annotations"] * 2
    images = [one["image_url"]["url"] for one in message["images"] if isinstance(one, dict)]
    assert images == [PNG, LINK]


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
def test_nothing_but_an_image_is_an_answer(
    url: str, upstream: ScriptedUpstream, tools: bool, path: str
) -> None:
    upstream.reply(sent(shown(PNG)))
    own = {"messages": {"name": "f", "input_schema": {}}, "responses": {"type": "function", **TOOL}}
    question = {"input": [ASK]} if path == "responses" else {"messages": [ASK], "max_tokens": 99}
    body = {"model": "m", **question, "tools": [own.get(path, GET_WEATHER)] * tools}
    status, _, answer = send(f"{url}/v1/{path}", body)
    assert status == 200, answer
    assert "aGk=" in str(answer) or "[an image]" in str(answer)
    assert len(upstream.requests) == 1


def test_a_reply_that_stays_keeps_what_it_cites(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """The pages of the answer to the question were shown instead of those of the reply that it is about."""
    mail = function("send_mail", {"type": "object", "properties": {"to": {"type": "string"}}})
    block = "```python\nsend_mail(to='eve')\n```"
    upstream.reply(sent({"content": f"Write this:\n\n{block}\n\nIt sends a mail."}, CITED), "NO")
    body = {"model": "m", "messages": [ASK], "tools": [mail]}
    message = send(f"{start_proxy()}/v1/chat/completions", body)[2]["choices"][0]["message"]
    assert len(upstream.requests) == 2
    assert message["annotations"] == CITED["annotations"]
