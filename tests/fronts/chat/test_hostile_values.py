"""Values at the edges of JSON and of Python, in calls and results: exact, or refused; never a 500."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from emulator.core import json_codec
from tests.conftest import StartProxy
from tests.support.examples import example_count
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.tools import function

GET = function("get", {"type": "object", "properties": {"x": {}}, "required": ["x"]})
LATER = function("later", {"type": "object", "properties": {"y": {}}, "required": ["y"]})
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def ask(url: str, messages: list[Any], **more: Any) -> tuple[int, Any]:
    body = {"model": "m", "messages": messages, "tools": [GET, LATER], **more}
    status, _, answer = send(f"{url}/v1/chat/completions", body)
    return status, answer


def called(answer: Any) -> list[str]:
    return [call["function"]["arguments"] for call in answer["choices"][0]["message"]["tool_calls"]]


BIG = [2**63, 2**64, -(2**64), 10**300, 2**53 + 1]


@pytest.mark.parametrize("number", BIG)
def test_an_integer_of_any_size_is_exact_in_a_call_and_in_a_result(
    start_proxy: StartProxy, upstream: ScriptedUpstream, number: int
) -> None:
    url = start_proxy()
    upstream.reply(fenced(f"n = get(x={number})\nlater(y=n + 1)"))
    status, answer = ask(url, HELLO)
    assert status == 200
    assert called(answer) == [json.dumps({"x": number}, separators=(",", ":"))]
    message = answer["choices"][0]["message"]
    result = {
        "role": "tool",
        "tool_call_id": message["tool_calls"][0]["id"],
        "content": str(number),
    }
    status, answer = ask(url, [*HELLO, message, result])
    assert (status, len(upstream.requests)) == (200, 1)
    assert json.loads(called(answer)[0]) == {"y": number + 1}


REFUSED = {
    "too many digits": "get(x=10**5000)",
    "no number": "get(x=float('inf'))",
    "half a character": "get(x='\\ud800')",
    "too long": "get(x='a' * 50_000_000)",
    "a key too long": "get(x={'a' * 2_000_000: 1})",
    "many long ones": "for n in range(20):\n    get(x=str(n) + 'a' * 1_000_000)",
    "too deep": "x = 1\nfor _ in range(100):\n    x = [x]\nget(x=x)",
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_call_that_no_client_should_get_is_refused_with_its_reason(
    start_proxy: StartProxy, upstream: ScriptedUpstream, what: str
) -> None:
    url = start_proxy(repair_attempts=0, stream_calls="block")
    upstream.reply(fenced(REFUSED[what]))
    status, answer = ask(url, HELLO, tool_choice="required")
    if status == 200:  # what was in order before the refusal has left
        assert sum(map(len, called(answer))) < 10_000_000
    else:
        assert (status, answer["error"]["code"]) == (502, "model_invalid"), answer


def test_a_program_that_calls_differently_in_each_run_is_stopped_and_keeps_its_calls(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    """Statements run as they close, each time from the top: what differs then was an error of 500."""
    from tests.support import places

    if (why := places.problem()) is not None:
        pytest.skip(str(why))
    url = start_proxy(repair_attempts=0)
    code = "import os\nget(x=os.urandom(8).hex())\nlater(y=os.urandom(8).hex())\nlater(y=2)"
    upstream.reply(fenced(code))
    status, answer = ask(url, HELLO)
    assert status == 200
    assert len(called(answer)) >= 1


def test_a_kernel_that_forges_its_protocol_has_a_status_and_a_code(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    from tests.support import places

    if (why := places.problem()) is not None:
        pytest.skip(str(why))
    url = start_proxy(repair_attempts=0)
    forged = (
        "kernel = get_ipython().kernel\n"
        "kernel.session.send(kernel.iopub_socket, 'stream', {'text': 5}, kernel.get_parent())\n"
        "get(x=1)"
    )
    upstream.reply(fenced(forged))
    status, answer = ask(url, HELLO)
    assert status == 200 or (status in (502, 503) and answer["error"]["code"]), answer


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
@settings(max_examples=example_count(300))
def test_json_is_written_and_read_as_python_does(value: Any) -> None:
    written = json_codec.dumps(value)
    assert json.loads(written) == value or "inf" in repr(value)
    if "inf" not in repr(value):
        assert json_codec.loads(written) == value
        assert json_codec.loads(json.dumps(value)) == value


@pytest.mark.parametrize("place", range(12))
@pytest.mark.parametrize("value", [10**18 + 1, 2**64, 10**30 + 7])
def test_a_long_number_is_exact_at_any_offset(value: int, place: int) -> None:
    read = json_codec.loads(b" " * place + b'{"x": %d}' % value)
    assert read == {"x": value}
    assert type(read["x"]) is int


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (2**64, b"18446744073709551616"),
        ([2**64, float("nan"), float("inf")], b"[18446744073709551616,null,null]"),
        ({"a": "\ud800", "b": 2**64}, b'{"a":"?","b":18446744073709551616}'),
        ("x" * 10, b'"xxxxxxxxxx"'),
    ],
)
def test_values_that_orjson_cannot_write_are_written(value: Any, written: bytes) -> None:
    assert json_codec.dumps(value) == written
