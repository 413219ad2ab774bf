"""The list of models: what is known of each, under the names that clients read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from tests.support.openai_wire import validator
from tests.support.raw_http import send
from tests.support.scripted import ScriptedUpstream


def test_a_model_has_its_date_its_context_and_that_it_can_call_tools(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream
) -> None:
    upstream.at_root["/v1/models"] = {
        "object": "list",
        "data": [
            {"id": "qwen3", "max_model_len": 40960},
            {"id": "r1", "object": "x", "created": None, "supported_parameters": ["seed"]},
            {
                "id": "mistral",
                "created": 5,
                "capabilities": {"function_calling": False, "vision": True},
            },
            {"id": "bge", "type": "embeddings"},
        ],
    }
    url, services = start_app(aliases={"gpt-4o": "qwen3"})
    services.reachability.check()
    rows = {row["id"]: row for row in send(f"{url}/v1/models")[2]["data"]}
    assert [*rows] == ["qwen3", "r1", "mistral", "bge", "gpt-4o"]
    for row in rows.values():
        validator("Model").validate(row)
    assert rows["mistral"]["created"] == 5
    for name in ("qwen3", "gpt-4o"):
        assert rows[name]["context_length"] == rows[name]["max_context_length"] == 40960
        assert {"tools", "tool_choice"} <= {*rows[name]["supported_parameters"]}
        assert {"tools", "tool_use"} <= {*rows[name]["capabilities"]}
    assert rows["r1"]["supported_parameters"][:2] == ["seed", "tools"]
    assert rows["mistral"]["capabilities"] == {"function_calling": True, "vision": True}
    assert "capabilities" not in rows["bge"]
    assert send(f"{url}/v1/models/qwen3")[2] == rows["qwen3"]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k")
    assert client.models.retrieve("r1").created == 0


def test_codex_gets_its_own_shape(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream
) -> None:
    upstream.at_root["/v1/models"] = {
        "object": "list",
        "data": [{"id": "qwen3", "max_model_len": 40960}, {"id": "r1"}],
    }
    url, services = start_app()
    services.reachability.check()
    answer = send(f"{url}/v1/models?client_version=0.99.0")[2]
    assert [*answer] == ["models"]
    known, unknown = answer["models"]
    assert (known["slug"], known["context_window"], known["priority"]) == ("qwen3", 40960, 0)
    assert (unknown["slug"], "context_window" in unknown) == ("r1", False)
    # What ModelInfo requires (codex-rs/protocol/src/openai_models.rs).
    required = (
        "slug display_name description supported_reasoning_levels shell_type visibility priority "
    )
    required += (
        "supported_in_api upgrade base_instructions supports_reasoning_summaries support_verbosity "
    )
    required += (
        "default_verbosity apply_patch_tool_type truncation_policy supports_parallel_tool_calls "
    )
    required += "experimental_supported_tools"
    assert {*required.split()} <= known.keys()


def test_anthropics_sdk_lists_models_in_its_own_shape(
    start_app: Callable[..., tuple[str, Any]], upstream: ScriptedUpstream
) -> None:
    """It got OpenAI's rows, which have no `display_name`, and OpenAI's errors."""
    names = [f"m{n}" for n in range(25)]
    rows = [{"id": name, "created": 1_700_000_000, "max_model_len": 4096} for name in names]
    rows[3]["created"] = 10**15
    upstream.at_root["/v1/models"] = {"object": "list", "data": rows}
    url, services = start_app()
    services.reachability.check()
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    for limit in (1, 7, 20, 1000):
        assert [model.id for model in client.models.list(limit=limit)] == names
    page = client.models.list(before_id="m9", limit=4)
    assert ([model.id for model in page.data], page.has_more) == (names[5:9], True)
    model = client.models.retrieve("m7")
    assert (model.type, model.display_name, model.max_input_tokens) == ("model", "m7", 4096)
    assert model.created_at.year == 2023
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.models.retrieve("other")
    body: Any = missing.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    with pytest.raises(anthropic.BadRequestError, match="after_id"):
        client.models.list(after_id="other")
    assert openai.OpenAI(base_url=f"{url}/v1", api_key="k").models.list().object == "list"
