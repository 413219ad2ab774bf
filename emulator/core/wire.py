"""What becomes of a name in a request: of each field, item, block, tool and beta of an API, one decision.

Each front has one table of literal rows (`emulator.fronts.*.wire`), which a test compares with the types of
the vendor's package, so that a new name is decided about, not omitted.

    applied     the proxy acts by it, or returns it, as the vendor does
    passed      it goes to the model's server, under chat's name for it
    ignored     it has no effect here; the response's header `x-emulator-ignored` names it
    refused     the request is refused with a reason
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from emulator.core.errors import BadRequest


@dataclass(frozen=True)
class Decision:
    kind: Literal["applied", "passed", "ignored", "refused"]
    note: str = ""
    """Of ``passed`` chat's name, of ``refused`` the reason for the client."""


APPLIED = Decision("applied")
IGNORED = Decision("ignored")


def passed(name: str) -> Decision:
    """``name`` is chat's name of the field."""
    return Decision("passed", name)


def refused(reason: str) -> Decision:
    return Decision("refused", reason)


Table = Mapping[str, Decision]

SERVER_EXTRAS = frozenset(
    {
        # sampling: llama.cpp, vLLM, SGLang, Ollama, LM Studio, Mistral, OpenRouter
        *("top_k", "top_a", "min_p", "typical_p", "tfs_z", "repetition_penalty", "repeat_penalty"),
        *(
            "repeat_last_n",
            "frequency_penalty",
            "presence_penalty",
            "length_penalty",
            "seed",
            "random_seed",
        ),
        *(
            "logit_bias",
            "mirostat",
            "mirostat_tau",
            "mirostat_eta",
            "dynatemp_range",
            "dynatemp_exponent",
        ),
        *(
            "dry_multiplier",
            "dry_base",
            "dry_allowed_length",
            "dry_penalty_last_n",
            "dry_sequence_breakers",
        ),
        *(
            "xtc_probability",
            "xtc_threshold",
            "top_n_sigma",
            "samplers",
            "min_tokens",
            "ignore_eos",
        ),
        *(
            "bad_words",
            "stop",
            "stop_token_ids",
            "min_keep",
            "use_beam_search",
            "best_of",
            "n_predict",
        ),
        # output
        *(
            "grammar",
            "json_schema",
            "structured_outputs",
            "guided_json",
            "guided_regex",
            "guided_choice",
        ),
        *("guided_grammar", "guided_decoding_backend", "regex", "ebnf", "skip_special_tokens"),
        *("spaces_between_special_tokens", "include_stop_str_in_output", "separate_reasoning"),
        # reasoning: `REASONING_SWITCHES` in `protocol`
        *(
            "reasoning_effort",
            "enable_thinking",
            "thinking_budget",
            "think",
            "chat_template_kwargs",
        ),
    }
)
"""Fields of model servers that shape a reply. They pass from every API without a field of that name."""

STATE_FIELDS = frozenset(
    {
        # load: adapters, models, processors
        *(
            "lora",
            "lora_path",
            "lora_request",
            "logits_processors",
            "custom_logit_processor",
            "keep_alive",
            "ttl",
        ),
        "mm_processor_kwargs",
        # template
        *("chat_template", "add_generation_prompt", "continue_final_message", "add_special_tokens"),
        # schedule
        *("priority", "data_parallel_rank", "cache_prompt", "n_cache_reuse"),
        # address: slots, caches and connections of the server
        *(
            "id_slot",
            "slot_id",
            "cache_salt",
            "kv_transfer_params",
            "session_params",
            "rid",
            "request_id",
        ),
        *("bootstrap_host", "bootstrap_port", "bootstrap_room", "vllm_xargs"),
    }
)
"""Fields that load, template, schedule or address what a server keeps for all its clients."""
STATE_OPTIONS = frozenset(
    {
        *("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "low_vram"),
        *("use_mmap", "use_mlock", "numa", "vocab_only"),
    }
)
"""Of the same kind inside Ollama's ``options``."""


def check_fields(table: Table, fields: Mapping[str, Any]) -> None:
    """Raises `BadRequest` if ``fields`` has one that is refused, unless its value is empty."""
    for name in fields.keys() & table.keys():
        decision = table[name]
        if decision.kind == "refused" and fields[name]:
            raise BadRequest(decision.note, param=name, code="unsupported_parameter")


def upstream_fields(table: Table, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a translated request in a chat request: what passes under chat's names, the names of what
    is ignored, and what the table does not name. Null is as if it had not been sent."""
    found: dict[str, Any] = {}
    ignored: list[str] = []
    unlisted: dict[str, Any] = {}
    for name, value in fields.items():
        decision = table.get(name)
        if value is None:
            continue
        if decision is None:
            (found if name in SERVER_EXTRAS else unlisted)[name] = value
        elif decision.kind == "passed":
            found[decision.note] = value
        elif decision.kind == "ignored":
            ignored.append(name)
    return {**found, "ignored": tuple(ignored), "unlisted": unlisted}


def decisions(names: str, decision: Decision) -> Iterable[tuple[str, Decision]]:
    """Rows with one decision, for a table."""
    return ((name, decision) for name in names.split())
