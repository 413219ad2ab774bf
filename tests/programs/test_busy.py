"""A program that waits for a result while others use all children: it is neither lost nor made again."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import openai
import pytest

from app import create_app
from emulator.settings.settings import Settings
from sandbox.engine import Limits
from sandbox.errors import SandboxUnavailable
from sandbox.programs.server import ProgramServer
from tests.support.chat import BOTH, calls, plain
from tests.support.programs import CHAIN, TOOLS
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serve


@BOTH
def test_a_busy_sandbox_is_a_503_and_the_retry_resumes_the_program(
    upstream: ScriptedUpstream, ask: Any
) -> None:
    """Before, the model was asked again because another client flooded, and asked for its acts again."""
    upstream.reply(CHAIN)
    settings = Settings(base_url=upstream.base_url, database=":memory:")
    with closing(ProgramServer(Limits(seconds=5), most=1)) as programs:
        try:
            programs.check()
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        app = create_app(settings, programs=programs)
        with closing(app.extensions["emulator"]), serve(app) as url:
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
            messages: list[Any] = [{"role": "user", "content": "Go."}]
            first = plain(client, model="m", messages=messages, tools=TOOLS).choices[0].message
            [call] = first.tool_calls or []
            hits = '[{"id": "a1", "price": 90}, {"id": "a2", "price": 50}]'
            messages += [
                first.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.id, "content": hits},
            ]
            with (
                programs.open("another client"),
                pytest.raises(openai.InternalServerError) as busy,
            ):
                ask(client, model="m", messages=messages, tools=TOOLS)
            assert busy.value.status_code == 503
            assert busy.value.response.headers["retry-after"] == "1"
            answer = ask(client, model="m", messages=messages, tools=TOOLS)
            assert calls(answer) == [("book", {"id": "a2"})]
    assert len(upstream.requests) == 1
