"""Models as they stand in a prompt, against datamodel-code-generator: it knows how Pydantic's are written."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.tools import codegen
from tests.support import generated_models
from tests.support.toolsets import toolset

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=12) | st.sampled_from(
    ["A 'quoted' \"word\"", "two\nlines", 'ends in "', "back\\slash", "\"\"\"", ""]
)  # fmt: skip
SMALL = st.integers(0, 9)
NUMBERS = SMALL | st.sampled_from([0.5, 2.5, -1.25, 1e20, -3])
DEFAULTS = {"string": WORDS, "integer": SMALL, "number": NUMBERS, "boolean": st.booleans()}


def bounded(kind: str, **bounds: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=bounds)


NUMBER = dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBERS)
INTEGER = dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBERS)
CHOICES = st.sampled_from(["a", "b'", 1, 2, None])
SCALARS = st.one_of(
    bounded("string", minLength=SMALL, maxLength=SMALL, pattern=st.sampled_from(["^a+$", r"\d'\"", "ü"])),
    bounded("number", **NUMBER, multipleOf=st.sampled_from([0.5, 2])),
    bounded("integer", **INTEGER, multipleOf=st.just(3)),
    st.sampled_from([{"type": "boolean"}, {"type": "object"}, {}]),
    st.just({"type": ["string", "null"], "minLength": 1}),
    bounded("array", maxItems=SMALL),
    st.builds(lambda each: {"enum": each}, st.lists(CHOICES, min_size=1, unique=True)),
)  # fmt: skip


def larger(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(schemas, min_size=1, max_size=3)
    return st.one_of(
        bounded("array", items=schemas, minItems=SMALL, maxItems=SMALL),
        st.fixed_dictionaries({"type": st.just("array"), "prefixItems": several}),
        st.fixed_dictionaries({"anyOf": several}),
        st.builds(lambda one: {"anyOf": [one, {"type": "null"}]}, schemas),
        st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": schemas}),
        objects(schemas),
    )


def described(schema: dict[str, Any], words: str, default: Any) -> dict[str, Any]:
    return {**schema, "description": words, **({} if default is None else {"default": default})}


def objects(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    kept = schemas | st.builds(
        described, schemas, WORDS, st.none() | NUMBERS | WORDS | st.booleans()
    )
    return st.builds(
        lambda properties, required, more, words: {
            "type": "object",
            "properties": dict(zip("abcdef", properties, strict=False)),
            "required": sorted(required & set("abcdef"[: len(properties)])),
            **({"additionalProperties": True} if more else {}),
            "description": words,
        },
        st.lists(kept, min_size=1, max_size=5),
        st.sets(st.sampled_from("abcdef")),
        st.booleans(),
        WORDS,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[*HealthCheck])
@given(objects(st.recursive(SCALARS, larger, max_leaves=12)))
def test_models_are_written_as_the_generator_writes_them(nested: dict[str, Any]) -> None:
    models = toolset({"type": "object", "properties": {"given": nested}}).models
    assert codegen.source(models) == generated_models.source(models)
