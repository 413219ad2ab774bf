"""LangChain's own standard tests for chat models, through ChatOpenAI and ChatAnthropic.

They ask what they like, so the scripted model answers by what it finds in the prompt. Left out are those that
fetch pictures, sounds and documents from the web, and the benchmark on recorded traffic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

from tests.clients.conftest import SharedUpstream
from tests.clients.scenarios import MODEL

CLIENT = "LangChain's standard tests"
PACKAGES = ("langchain-tests", "langchain-openai", "langchain-anthropic")

JOKE = {"setup": "Why did the cat sit on the CPU?", "punchline": "To watch the mouse."}
# A text in the prompt -> the model's reply; the first match counts.
SCRIPT = [
    (r"def magic_function_no_args\(", "```tool_code\nmagic_function_no_args()\n```"),
    (r"def magic_function\(", "```tool_code\nmagic_function(input=3)\n```"),
    (r"def greeting_generator\(", "greeting_generator(answer_style='pirate')"),
    (
        r"def unicode_customer\([\s\S]*customer named '(.+?)'",
        "```tool_code\nunicode_customer(customer_name='{0}', description='A company')\n```",
    ),
    (r"def my_adder_tool\(", "[my_adder_tool(a=3, b=4)]"),
    (r"def get_weather\(", "```tool_code\nget_weather('San Francisco, CA')\n```"),
    (r"def Joke\(", f"```tool_code\nJoke(**{JOKE!r})\n```"),
    (r"def JokeDict\(", f"```tool_code\nJokeDict(**{JOKE!r})\n```"),
    (r"[Jj]oke", f"Here is one:\n```json\n{json.dumps(JOKE)}\n```"),
    (r"", "Hello there, how are you?"),
]


def answer(body: dict[str, Any]) -> str:
    texts = [_text(message["content"]) for message in body["messages"]]
    if texts[-1].startswith("Results:\n"):
        return "It is done."
    told = "\n".join(texts)
    for pattern, reply in SCRIPT:
        if found := re.search(pattern, told):
            return reply.format(*found.groups()) if found.groups() else reply
    raise AssertionError("the last pattern fits everything")


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(p.get("text", "") for p in content)


class Standard(ChatModelIntegrationTests):
    """What both models share."""

    @pytest.fixture(autouse=True)
    def scripted(self, base_url: str, upstream: SharedUpstream) -> Iterator[None]:
        self.base_url = base_url
        upstream.default = answer
        yield
        upstream.default = None

    @pytest.fixture
    def model(self, scripted: None, request: Any) -> BaseChatModel:
        extra = getattr(request, "param", None) or {}
        return self.chat_model_class(
            **{**self.standard_chat_model_params, **self.chat_model_params, **extra}
        )

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "deepseek-r1"


class TestChatOpenAI(Standard):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "base_url": self.base_url, "stream_usage": True}


class TestChatAnthropic(Standard):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatAnthropic

    @property
    def chat_model_params(self) -> dict[str, Any]:
        url = self.base_url.removesuffix("/v1")
        return {"model": MODEL, "base_url": url, "api_key": "k", "max_tokens": 1024}
