# ruff: noqa: E501
"""A prompt that does not fit: every server has its own words, clients know OpenAI's."""

from __future__ import annotations

import json

import pytest

from tests.conftest import StartProxy
from tests.support.raw_http import fetch
from tests.support.scripted import Reply, ScriptedUpstream
from tests.support.three_apis import APIS, PATHS, ask, request_body

# Server -> status, type, message; from the tests of LiteLLM and pi, or from the issue that is named.
# fmt: off
TOO_LONG: dict[str, tuple[int, str | None, str]] = {
    "OpenAI": (400, "invalid_request_error", "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."),
    "OpenAI Responses": (400, None, "Your input exceeds the context window of this model."),
    "llama.cpp": (400, "exceed_context_size_error", "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it"),
    # ggml-org/llama.cpp#15780, #19774
    "llama.cpp, older": (500, "exceed_context_size_error", "the request exceeds the available context size. try increasing the context size or enable context shift"),
    "llama.cpp, in the reply": (500, "server_error", "Context size has been exceeded."),
    "llama-cpp-python": (400, None, "Requested tokens (2285) exceed context window of 2048"),
    "vLLM": (400, "BadRequestError", "The prompt (total length 9000) is longer than the maximum model length of 8192."),
    "vLLM, output": (400, "BadRequestError", "max_tokens=999999 cannot be greater than max_model_len=81920."),
    "SGLang": (400, None, "The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
    "SGLang, sum": (400, None, "Requested token count exceeds the model's maximum context length of 131072 tokens."),
    "Ollama": (400, None, "prompt too long; exceeded max context length by 100918 tokens"),
    "LM Studio": (400, None, "The number of tokens to keep from the initial prompt is greater than the context length."),
    "LM Studio, overflow": (400, None, "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens"),
    "LiteLLM": (503, None, "litellm.APIConnectionError: OpenAIException - Requested token count exceeds the model's maximum context length of 131072 tokens."),
    "LiteLLM, class": (400, None, "litellm.ContextWindowExceededError: too much"),
    "TGI, input": (422, "validation", "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168"),  # text-generation-inference#695
    "Together": (422, None, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3997 `inputs` tokens and 100 `max_new_tokens`"),  # stanford-crfm/helm#2080
    "TensorRT-LLM": (400, None, "Cannot process new request: Prompt length (5056) exceeds maximum sequence length (2048)"),  # tensorrtllm_backend#141
    "TensorRT-LLM, input": (500, None, "Encountered an error when fetching new request: Prompt length (200) exceeds maximum input length (1)"),  # tensorrtllm_backend#565
    "TGI": (422, "validation", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"),  # text-generation-inference#628
    "Mistral": (400, None, "Prompt contains 200000 tokens, too large for model with 131072 maximum context length"),
    "DeepSeek": (400, None, "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens"),
    "Anthropic": (400, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"),
    "Anthropic, sum": (400, None, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    "OpenRouter": (400, None, "This endpoint's maximum context length is 131072 tokens. However, you requested about 200000"),
    "Gemini": (400, None, "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)"),
    "xAI": (400, None, "This model's maximum prompt length is 131072 but the request contains 537812 tokens"),
    "Groq": (400, None, "Please reduce the length of the messages or completion."),
    "Bedrock": (400, None, "Input is too long for requested model."),
    "Kimi": (400, None, "Your request exceeded model token limit: 256000 (requested: 300000)"),
    "Qwen": (400, None, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]"),  # QwenLM/qwen-code#98
    "MiniMax": (400, None, "invalid params, context window exceeds limit (2013)"),  # MiniMax-AI/MiniMax-M2#119
    "Zhipu": (400, None, "Prompt exceeds max length"),  # tashfeenahmed/freellmapi#873
    "Cerebras": (400, None, "Current length is 9000 while limit is 8192"),
    "Copilot": (400, None, "prompt token count of 93854 exceeds the limit of 90000"),  # jjleng/copilot-more#35
}
OTHERS = {
    "a rate": (429, None, "Rate limit exceeded: too many tokens per minute, maximum input length is fine."),
    "a field": (400, None, "string too long: expected a string with maximum length 64 for user"),
    "a role": (400, None, "the context of the message is unknown"),
}
# fmt: on


def refusal(status: int, kind: str | None, message: str) -> Reply:
    error = {"message": message, "type": kind or "error", "code": status}
    return Reply(status=status, body={"error": error}, headers={"x-should-retry": "false"})


@pytest.mark.parametrize("server", TOO_LONG)
def test_a_prompt_that_is_too_long_has_openais_code(
    start_proxy: StartProxy, upstream: ScriptedUpstream, server: str
) -> None:
    url = start_proxy()
    for api in APIS:
        upstream.reply(refusal(*TOO_LONG[server]))
        status, _, raw = fetch(url + PATHS[api], request_body(api, None, stream=False))
        assert status == 400
        error = json.loads(raw)["error"]
        assert error["type"] == "invalid_request_error"
        assert "context_length_exceeded" in (error.get("code") or error["message"])


@pytest.mark.parametrize("cause", OTHERS)
def test_another_refusal_keeps_its_own_code(
    start_proxy: StartProxy, upstream: ScriptedUpstream, cause: str
) -> None:
    upstream.reply(refusal(*OTHERS[cause]))
    status, _, raw = fetch(start_proxy() + PATHS["chat"], request_body("chat", None, stream=False))
    assert (status, json.loads(raw)["error"]["code"]) == (OTHERS[cause][0], str(status))


def test_an_error_within_a_stream_has_the_code_too(
    start_proxy: StartProxy, upstream: ScriptedUpstream
) -> None:
    event = {"error": {"message": TOO_LONG["llama.cpp, in the reply"][2], "code": 500}}
    upstream.default = Reply(frames=[f"data: {json.dumps(event)}\n\n".encode()])
    url = start_proxy()
    for api in APIS:
        assert ask(url, api, None, stream=False).status == 400
