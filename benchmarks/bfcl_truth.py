"""BFCL's single-turn cases, the ideal calls of each, and its own AST checker as the judge.

A ground truth lists the accepted values of each argument. The ideal calls take the first ones that
satisfy the case's own schema; where there are none, the case has a `flaw` that says why, and no
caller could be expected to let such a call pass. Knows nothing of replies, servers or the emulator.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import ModuleType, SimpleNamespace
from typing import Any

import jsonschema_rs

from emulator.core.cached_property import cached_property

Json = Any
Arguments = dict[str, Json]

#: With a ground truth, then those where any call is wrong. `live_relevance` has neither.
CALLING = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
IRRELEVANT = ("irrelevance", "live_irrelevance")

_OMITTED = object()


@dataclass(frozen=True)
class Case:
    """One test entry. `truth` is empty for an irrelevance case."""

    id: str
    category: str
    messages: tuple[dict[str, str], ...]
    functions: tuple[dict[str, Any], ...]
    truth: tuple[dict[str, dict[str, list[Json]]], ...] = ()

    @property
    def tools(self) -> list[dict[str, Any]]:
        """OpenAI's shape around BFCL's schemas as they are, ``dict``, ``float`` and all."""
        return [{"type": "function", "function": function} for function in self.functions]

    @cached_property
    def ideal(self) -> tuple[tuple[str, Arguments], ...]:
        """(function, arguments) of each call that should be made."""
        return tuple(_ideal(self.functions, answer) for answer in self.truth)

    @cached_property
    def flaw(self) -> str:
        """Why the ideal calls cannot be held against anyone; "" where they can."""
        for name, arguments in self.ideal:
            flaw = _schema_flaw(self.functions, name, arguments)
            if flaw:
                return f"schema: {flaw}"
        refusal = judge(self, self.ideal)
        return f"checker: {refusal}" if refusal else ""


def load(categories: Sequence[str] = CALLING + IRRELEVANT) -> Iterator[Case]:
    """The cases of `categories`, in BFCL's order."""
    data = resources.files("bfcl_eval") / "data"
    for category in categories:
        file = f"BFCL_v4_{category}.json"
        truths: dict[str, Any] = {}
        if category in CALLING:
            entries = _lines((data / "possible_answer" / file).read_text("utf-8"))
            truths = {entry["id"]: entry["ground_truth"] for entry in entries}
        for entry in _lines((data / file).read_text("utf-8")):
            yield Case(
                entry["id"],
                category,
                tuple(entry["question"][0]),
                tuple(entry["function"]),
                tuple(truths.get(entry["id"], ())),
            )


def judge(case: Case, calls: Sequence[tuple[str, Arguments]]) -> str:
    """What BFCL's checker has against `calls`; "" for nothing."""
    if not case.truth:
        return f"{len(calls)} calls where none is right" if calls else ""
    checker, python = _checker()
    try:
        verdict = checker.ast_checker(
            list(case.functions),
            [{name: arguments} for name, arguments in calls],
            list(case.truth),
            python,
            case.category,
            _MODEL,
        )
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        return f"fails on this entry with {type(error).__name__}: {error}"
    return "" if verdict["valid"] else f"{verdict['error_type']}: {_brief(verdict['error'])}"


# The ideal calls


def _ideal(
    functions: Sequence[Mapping[str, Any]], answer: Mapping[str, Mapping[str, list[Json]]]
) -> tuple[str, Arguments]:
    name, accepted = next(iter(answer.items()))
    function = next((f for f in functions if f["name"] == name), None)
    schema = function["parameters"] if function else {}
    return name, _members(accepted, schema)


def _members(accepted: Mapping[str, Sequence[Json]], schema: Mapping[str, Any]) -> Arguments:
    """An object from the accepted values of each of its members."""
    properties = schema.get("properties") or {}
    required = schema.get("required") or ()
    chosen = {
        name: _choice(values, properties.get(name, {}), needed=name in required)
        for name, values in accepted.items()
    }
    return {name: value for name, value in chosen.items() if value is not _OMITTED}


def _choice(values: Sequence[Json], schema: Mapping[str, Any], *, needed: bool) -> Json:
    """The first accepted value that fits; "" among them means that none need be given."""
    written = [_written(value, schema) for value in values if value != ""]
    fitting = [value for value in written if not _first_error(value, schema)]
    if fitting:
        return fitting[0]
    if "" in values:
        return "" if needed else _OMITTED
    return written[0] if written else _OMITTED


def _written(value: Json, schema: Mapping[str, Any]) -> Json:
    """`value` without the lists of choices that BFCL keeps in objects and in lists of objects."""
    kind, items = schema.get("type"), schema.get("items") or {}
    if kind == "dict" and isinstance(value, dict) and _all_choices([value]):
        return _members(value, schema)
    if kind == "array" and items.get("type") == "dict" and _all_choices(value):
        return [_members(item, items) for item in value]
    return value


def _all_choices(value: Json) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, dict) and all(isinstance(choices, list) for choices in item.values())
        for item in value
    )


# Schemas, read independently of the emulator


def _schema_flaw(functions: Sequence[Mapping[str, Any]], name: str, arguments: Arguments) -> str:
    function = next((f for f in functions if f["name"] == name), None)
    if function is None:
        return f"no function {name!r} is offered"
    parameters = function["parameters"]
    unknown = sorted(set(arguments) - set(parameters.get("properties") or {}))
    if unknown:
        return f"{name} has no parameter {', '.join(unknown)}"
    error = _first_error(arguments, parameters)
    return f"{name}: {error}" if error else ""


def _first_error(value: Json, schema: Mapping[str, Any]) -> str:
    validator = jsonschema_rs.Draft202012Validator(_json_schema(schema))
    for error in validator.iter_errors(value):
        place = ".".join(str(step) for step in error.instance_path)
        return f"{place + ': ' if place else ''}{_brief(error.message)}"
    return ""


def _json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """BFCL's dialect in JSON Schema's words."""
    from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI

    plain: dict[str, Any] = {}
    for keyword, said in schema.items():
        if keyword == "type":
            # BFCL calls "any" a string for OpenAI's sake, and answers such parameters with anything.
            if said.lower() != "any":
                plain["type"] = GORILLA_TO_OPENAPI[said]
        elif keyword == "properties":
            plain[keyword] = {name: _json_schema(part) for name, part in said.items()}
        elif keyword == "items" or (keyword == "additionalProperties" and isinstance(said, dict)):
            plain[keyword] = _json_schema(said)
        elif (keyword == "required" and isinstance(said, list)) or keyword in _LIMITS:
            plain[keyword] = said
    return plain


_LIMITS = frozenset(
    "enum minimum maximum minItems maxItems minLength maxLength pattern additionalProperties".split()
)


# The checker

_MODEL = "emulator"


def _checker() -> tuple[ModuleType, Any]:
    """BFCL's checker, and what it calls Python.

    It reads one flag of its table of models: whether a model was shown ``.`` in names as ``_``.
    Ours is not, and importing the real table takes the clients of every vendor.
    """
    models = "bfcl_eval.constants.model_config"
    if models not in sys.modules:
        table = ModuleType(models)
        table.MODEL_CONFIG_MAPPING = {  # type: ignore[attr-defined]
            _MODEL: SimpleNamespace(underscore_to_dot=False)
        }
        sys.modules[models] = table
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval import ast_checker

    return ast_checker, Language.PYTHON


def _lines(text: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in text.splitlines() if line.strip())


def _brief(said: object, limit: int = 200) -> str:
    text = " ".join(map(str, said)) if isinstance(said, list) else str(said)
    return text if len(text) <= limit else f"{text[:limit]}..."
