"""What a later request recalls of an answer, and from whom."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.hosted.test_hosted_calls import block, connect, hosted
from tests.support.hosted import SERVER
from tests.support.programs import CHAIN, INTERPRETER, TOOLS, result
from tests.support.raw_http import send
from tests.support.scripted import Reply, ScriptedUpstream

SEARCH, BOOK, CHECK = TOOLS
QUESTION: dict[str, Any] = {"role": "user", "content": "Is it on time?"}
LATER: list[Any] = [
    QUESTION,
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "Bye."},
]
HIDDEN: dict[str, tuple[list[Any], str]] = {
    "a reply that was repaired": ([CHECK], block("chek('{}')")),
    "a hosted call": ([SERVER], block("print(check('{}'))")),
    "a cell": ([INTERPRETER], block("print('{}')")),
}
"""What the client does not see: the request's tools, and a first reply with a secret."""


@pytest.mark.parametrize(("tools", "reply"), HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("secrets", [("secret-1", "secret-2"), ("", "secret"), ("secret", "")])
def test_two_users_whose_conversations_look_alike_recall_nothing_of_each_other(
    start_proxy: Any, upstream: ScriptedUpstream, tools: Any, reply: str, secrets: Any
) -> None:
    """They share the client key, as the users of one application do; "": nothing is hidden from that user."""
    client = connect(start_proxy(hosted=hosted(CHECK)))
    for secret in secrets:
        upstream.reply(*([reply.format(secret)] if secret else []), "Yes.")
        asked = client.chat.completions.create(model="m", messages=[QUESTION], tools=tools)
        assert asked.choices[0].message.content == "Yes."
    upstream.reply("Bye.")
    client.chat.completions.create(model="m", messages=LATER, tools=tools)
    assert "secret" not in str(upstream.requests[-1]["messages"])


@pytest.mark.parametrize(("tools", "reply"), HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("changes", [{"model": "m2"}, {"system": "You are B."}])
def test_another_model_or_instruction_is_another_conversation(
    start_proxy: Any, upstream: ScriptedUpstream, tools: Any, reply: str, changes: Any
) -> None:
    client = connect(start_proxy(hosted=hosted(CHECK)))
    upstream.reply(reply.format("secret"), "Yes.", "Bye.")
    client.chat.completions.create(model="m", messages=[QUESTION], tools=tools)
    system = [
        {"role": "system", "content": text} for key, text in changes.items() if key == "system"
    ]
    client.chat.completions.create(
        model=changes.get("model", "m"), messages=[*system, *LATER], tools=tools
    )
    assert "secret" not in str(upstream.requests[-1]["messages"])


@pytest.mark.parametrize(("tools", "reply"), HIDDEN.values(), ids=HIDDEN)
def test_a_conversation_recalls_its_own_calls(
    start_proxy: Any, upstream: ScriptedUpstream, tools: Any, reply: str
) -> None:
    """A client may change the white space of an answer, and cut it into parts."""
    client = connect(start_proxy(hosted=hosted(CHECK)))
    upstream.reply(reply.format("mine"), "Yes, it is.", "Bye.")
    client.chat.completions.create(model="m", messages=[QUESTION], tools=tools)
    parts = [{"type": "text", "text": text} for text in ("Yes,", "it is. ")]
    history: list[Any] = [QUESTION, {"role": "assistant", "content": parts}]
    history.append({"role": "user", "content": "Bye."})
    client.chat.completions.create(model="m", messages=history, tools=tools)
    assert "mine" in str(upstream.requests[-1]["messages"])


@pytest.mark.parametrize(("tools", "reply"), HIDDEN.values(), ids=HIDDEN)
def test_words_of_the_assistant_before_a_recalled_answer_stay_in_the_prompt(
    start_proxy: Any, upstream: ScriptedUpstream, tools: Any, reply: str
) -> None:
    client = connect(start_proxy(hosted=hosted(CHECK)))
    upstream.reply(reply.format("mine"), "Yes.", "Bye.")
    history: list[Any] = [QUESTION, {"role": "assistant", "content": "Let me see."}]
    client.chat.completions.create(model="m", messages=history, tools=tools)
    client.chat.completions.create(model="m", messages=[*history, *LATER[1:]], tools=tools)
    prompt = str(upstream.requests[-1]["messages"])
    assert "Let me see." in prompt and "mine" in prompt


def test_a_call_that_may_have_been_made_is_not_made_again_while_the_store_cannot_be_read(
    start_proxy: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    file, server = tmp_path / "kept.sqlite", hosted(SEARCH, CHECK)
    client = connect(start_proxy(hosted=server, database=str(file)))
    upstream.reply(CHAIN, Reply(status=400), "Booked.")
    request: Any = {"model": "m", "messages": [QUESTION], "tools": [BOOK, SERVER]}
    first = client.chat.completions.create(**request).choices[0].message
    [call] = first.tool_calls or []
    request["messages"] += [first.model_dump(exclude_none=True), result(call, '{"booked": "a2"}')]
    with pytest.raises(openai.BadRequestError):  # after the hosted call
        client.chat.completions.create(**request)
    with closing(sqlite3.connect(file, isolation_level=None)) as kept:
        for table in ("documents", "journal"):
            kept.execute(f"ALTER TABLE {table} RENAME TO gone")
            with pytest.raises(
                openai.InternalServerError, match=r"hosted calls|This call is"
            ) as one:
                client.chat.completions.create(**request)
            assert one.value.status_code == 503
            kept.execute(f"ALTER TABLE gone RENAME TO {table}")
    assert client.chat.completions.create(**request).choices[0].message.content == "Booked."
    assert server.made == ["search(to='Oslo')", "check(id='a2')"]


def unkeyed(row: bytes) -> bytes:
    """The row as the version before sealed it, whatever its key."""
    value = row[hashlib.sha256().digest_size :]
    return hashlib.sha256(b"2" + value).digest() + value


def test_a_row_under_the_key_of_another_one_is_no_row(
    start_proxy: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """Its own digest was right, so that a program was read as an answer: a 500."""
    file, server = tmp_path / "kept.sqlite", hosted(SEARCH, CHECK)
    url = start_proxy(hosted=server, database=str(file))
    client = connect(url)
    request: Any = {"model": "m", "messages": [QUESTION], "tools": [BOOK, SERVER]}
    upstream.reply(CHAIN)
    first = client.chat.completions.create(**request).choices[0].message
    [call] = first.tool_calls or []
    request["messages"] += [first.model_dump(exclude_none=True), result(call, '{"booked": "a2"}')]
    with closing(sqlite3.connect(file, isolation_level=None)) as kept:
        stored = kept.execute("SELECT key, value FROM documents WHERE key LIKE '%:%'").fetchall()
        assert len({key.partition(":")[0] for key, _ in stored}) > 1
        for key, _ in stored:
            for _, value in stored:
                kept.executemany("UPDATE documents SET value = ?2 WHERE key = ?1", stored)
                kept.execute("UPDATE documents SET value = ? WHERE key = ?", (value, key))
                upstream.reply("Booked.")
                status, _, answer = send(f"{url}/v1/chat/completions", request)
                assert status in (200, 503), answer
                kept.execute("UPDATE documents SET value = ? WHERE key = ?", (unkeyed(value), key))
                upstream.reply("Booked.")
                status, _, answer = send(f"{url}/v1/chat/completions", request)
                assert status in (200, 503), answer
