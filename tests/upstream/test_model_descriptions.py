"""A model under a name of the operator's choice gets the profile that fits what its server says about it."""

from __future__ import annotations

from typing import Any

import pytest

from app import create_app
from emulator.settings.settings import Settings
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import serve
from tests.support.tools import GET_WEATHER

FEW_SHOT = "Answer with a call of the right function."


def listed(owner: str, **fields: Any) -> dict[str, Any]:
    row = {"id": "assistant", "object": "model", "created": 1, "owned_by": owner, **fields}
    return {"/v1/models": {"object": "list", "data": [row]}}


def litellm(model: Any) -> dict[str, Any]:
    deployment = {"model_name": "assistant", "litellm_params": {"model": model}}
    return {**listed("openai"), "/model/info": {"data": [{"model_name": "x"}, deployment, None]}}


TINY = {
    "llama.cpp's list": listed("llamacpp", meta={"n_params": 134515008}),
    "llama.cpp's file": {**listed("llamacpp"), "/props": {"model_path": "/m/SmolLM2-360M.gguf"}},
    "vLLM's list": listed("vllm", root="HuggingFaceTB/SmolLM2-135M-Instruct"),
    "LiteLLM": litellm("openai/smollm2-135m-instruct"),
}
OTHERS = {
    "a large model": listed("llamacpp", meta={"n_params": 7_000_000_000}),
    "a folder's name": listed("vllm", root="/data/135m/Llama-70B"),
    "nothing": listed("somebody"),
    "nonsense": {**listed("llamacpp", meta=[1], root=7), "/props": ["x"]},
    "nonsense of LiteLLM": litellm({"a": 1}),
}


@pytest.mark.parametrize("answers", [*TINY.values(), *OTHERS.values()], ids=[*TINY, *OTHERS])
def test_the_profile_fits_what_the_server_says(
    answers: dict[str, Any], upstream: ScriptedUpstream
) -> None:
    upstream.at_root = answers
    body = {
        "model": "assistant",
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [GET_WEATHER],
    }
    for profile in ("auto", "default"):
        app = create_app(Settings(base_url=upstream.base_url, profile=profile, database=":memory:"))
        services = app.extensions["emulator"]
        try:
            services.reachability.check()
            upstream.reply("It is warm.")
            with serve(app) as url:
                assert send(f"{url}/v1/chat/completions", body)[0] == 200
        finally:
            services.close()
    automatic, chosen = (str(request["messages"][0]) for request in upstream.requests)
    assert (FEW_SHOT in automatic) == (answers in TINY.values())
    assert FEW_SHOT not in chosen
