"""What becomes of a name in a request: of each field, item, block, tool and beta of an API, one decision.

Each front has one table of literal rows (`emulator.fronts.*.wire`), which a test compares with the types of
the vendor's package, so that a new name is decided about, not omitted.

    applied     the proxy acts by it, or returns it, as the vendor does
    passed      it goes to the model's server, under chat's name for it
    ignored     it has no effect here; the response's header `x-emulator-ignored` names it
    refused     the request is refused with a reason
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

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

_LOADED = (
    "lora lora_adapters lora_path lora_request logits_processors custom_logit_processor keep_alive ttl "
    "mm_processor_kwargs media_io_kwargs num_ctx n_ctx"
)
"""Adapters, models, processors."""
_TEMPLATED = "chat_template add_generation_prompt continue_final_message add_special_tokens"
_SCHEDULED = "priority data_parallel_rank cache_prompt n_cache_reuse"
_ADDRESSED = (
    "id_slot slot_id cache_salt extra_key kv_transfer_params session_params rid request_id bootstrap_host "
    "bootstrap_port bootstrap_room vllm_xargs"
)
"""Slots, caches and connections of the server."""
STATE_FIELDS = frozenset(f"{_LOADED} {_TEMPLATED} {_SCHEDULED} {_ADDRESSED}".split())
"""Fields that load, template, schedule or address what a server keeps for all its clients."""
_STATE_INSIDE: Mapping[str, frozenset[str]] = {
    "options": STATE_FIELDS
    | frozenset(
        "num_batch num_gpu main_gpu num_thread num_keep low_vram use_mmap use_mlock numa vocab_only".split()
    ),
    # vLLM handed these to its template's function: CVE-2025-61620, CVE-2025-62426.
    "chat_template_kwargs": STATE_FIELDS | {"tokenize", "tokenizer_kwargs", "return_tensors"},
    "extra_body": STATE_FIELDS,
}
"""Of the same kind inside objects: Ollama's, vLLM's, and what a client's SDK merges."""


def state_names(fields: Mapping[str, Any], named: Collection[str]) -> list[str]:
    """The names of such fields that the operator has not ``named``; one inside an object follows its
    name and a full stop. Servers in Go ignore the case of names."""
    found: list[str] = []
    for name, value in fields.items():
        known = name.casefold()
        if known in STATE_FIELDS:
            found.append(name)
        elif known in _STATE_INSIDE and isinstance(value, dict):
            inside = _STATE_INSIDE[known]
            found += [f"{name}.{each}" for each in value if each.casefold() in inside]
    return [name for name in found if name not in named]


def without(fields: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The fields without ``names``, which are those of `state_names`."""
    rest = {name: value for name, value in fields.items() if name not in names}
    for name in names:
        outer, dot, inner = name.partition(".")
        if dot and isinstance(found := rest.get(outer), dict):
            rest[outer] = {each: value for each, value in found.items() if each != inner}
    return rest


def check_fields(table: Table, fields: Mapping[str, Any]) -> None:
    """Raises `BadRequest` if ``fields`` has one that is refused, unless its value is empty."""
    for name in fields.keys() & table.keys():
        decision = table[name]
        if decision.kind == "refused" and fields[name]:
            raise BadRequest(decision.note, param=name, code="unsupported_parameter")


def upstream_fields(table: Table, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a translated request in a chat request: what passes under chat's names, the names of what
    is ignored, and what the table does not name. Null is as if it had not been sent.

    Of an object that is applied the table names the fields, too, after its name and a full stop. Others have
    no effect.
    """
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
        elif isinstance(value, BaseModel | Mapping):
            sent = value.model_fields_set if isinstance(value, BaseModel) else value
            inside = (f"{name}.{each}" for each in sorted(sent))
            ignored += [each for each in inside if table.get(each, IGNORED).kind == "ignored"]
    return {**found, "ignored": tuple(ignored), "unlisted": unlisted}


def decisions(names: str, decision: Decision) -> Iterable[tuple[str, Decision]]:
    """Rows with one decision, for a table."""
    return ((name, decision) for name in names.split())
