"""The fields of a Chat Completions request. Chat is the model servers' own language: other fields pass."""

from __future__ import annotations

from emulator.core.wire import APPLIED, Table, passed, refused

FIELDS: Table = {
    "model": APPLIED,
    "messages": APPLIED,
    "stream": APPLIED,
    "stream_options": APPLIED,
    "tools": APPLIED,
    "tool_choice": APPLIED,
    "parallel_tool_calls": APPLIED,
    "functions": APPLIED,
    "function_call": APPLIED,
    "response_format": APPLIED,
    "n": APPLIED,
    "stop": APPLIED,
    "web_search_options": APPLIED,
    "temperature": passed("temperature"),
    "top_p": passed("top_p"),
    "max_tokens": passed("max_tokens"),
    "max_completion_tokens": passed("max_completion_tokens"),
    "frequency_penalty": passed("frequency_penalty"),
    "presence_penalty": passed("presence_penalty"),
    "logit_bias": passed("logit_bias"),
    "logprobs": passed("logprobs"),
    "top_logprobs": passed("top_logprobs"),
    "seed": passed("seed"),
    "reasoning_effort": passed("reasoning_effort"),
    "verbosity": passed("verbosity"),
    "prediction": passed("prediction"),
    "modalities": passed("modalities"),
    "audio": passed("audio"),
    "user": passed("user"),
    # Of the client's account: only profiles whose upstream supports them pass these.
    "metadata": passed("metadata"),
    "store": passed("store"),
    "service_tier": passed("service_tier"),
    "safety_identifier": passed("safety_identifier"),
    "prompt_cache_key": passed("prompt_cache_key"),
    "prompt_cache_options": passed("prompt_cache_options"),
    "prompt_cache_retention": passed("prompt_cache_retention"),
    "moderation": refused("Moderation is not supported; remove moderation."),
}
"""As of openai 3.57, openai.types.chat.completion_create_params."""

PARTS: Table = {
    "text": passed("text"),
    "image_url": passed("image_url"),
    "input_audio": passed("input_audio"),
    "file": passed("file"),
    "refusal": passed("refusal"),
}
"""As of openai 3.57, openai.types.chat.chat_completion_content_part_param. Others pass, too."""

TOOLS: Table = {"function": APPLIED, "custom": APPLIED, "code_interpreter": APPLIED}
"""As of openai 3.57, openai.types.chat.chat_completion_tool_union_param, and the code interpreter. Another
type runs only if the operator serves it; otherwise `x-emulator-dropped-tools` names it."""
