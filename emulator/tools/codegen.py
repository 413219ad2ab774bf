"""Source of Pydantic v2 models for a prompt, through datamodel-code-generator.

The generator sees only trees (see `models`) whose members are called f0, f1...: no name, path or
reference of a caller's reaches it. Its output is parsed, never executed; what is kept of it are the
class statements, with the members' Python names put in.
"""

from __future__ import annotations

import ast
import json
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from emulator.tools.schema_models import SchemaModel
from emulator.tools.type_trees import Parameter, TypeTree
from sandbox.parsing import parse

_ROOT = "ToolsetRoot"
MAX_REMARK = 600

# The generator keeps module state (and changes the working directory for some inputs).
_GENERATING = threading.Lock()


def source(models: Sequence[SchemaModel]) -> str:
    """One class statement for each model, in order; "" for none."""
    if not models:
        return ""
    document = {
        "title": _ROOT,
        "type": "object",
        "properties": {f"m{n}": _reference(model.name) for n, model in enumerate(models)},
        "$defs": {model.name: _definition(model) for model in models},
    }
    classes = _classes(json.dumps(document))
    return "\n\n\n".join(_renamed(classes[model.name], model) for model in models)


@lru_cache(maxsize=128)
def _generate(document: str) -> str:
    # Imported at first use, and no sooner: only nested schemas need it. The import and the first run take
    # 0.2 to 0.3 s of CPU, and what is imported is 16 MiB, which is a sixth of an idle proxy.
    from datamodel_code_generator import (  # type: ignore[attr-defined]
        DataModelType,
        InputFileType,
        LiteralType,
        PythonVersion,
        generate,
    )

    with _GENERATING:
        generated = generate(
            document,
            input_file_type=InputFileType.JsonSchema,
            output_model_type=DataModelType.PydanticV2BaseModel,
            enum_field_as_literal=LiteralType.All,
            target_python_version=PythonVersion.PY_311,
            disable_timestamp=True,
            use_union_operator=True,
            use_annotated=True,
            field_constraints=True,
            formatters=[],
        )
    assert isinstance(generated, str)  # a dict of modules only for names with dots
    return generated


def _classes(document: str) -> dict[str, ast.ClassDef]:
    module = parse(_generate(document))
    return {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}


def _definition(model: SchemaModel) -> TypeTree:
    return {
        "type": "object",
        "properties": {f"f{n}": _field(field) for n, field in enumerate(model.fields)},
        "required": [f"f{n}" for n, field in enumerate(model.fields) if field.required],
        **({"additionalProperties": True} if model.open else {}),
    }


def _field(field: Parameter) -> TypeTree:
    tree = _spelt(field.tree)
    notes = [(field.remark("description") or "")[:MAX_REMARK]]
    if isinstance(field.schema, dict) and isinstance(field.schema.get("format"), str):
        notes.append(f"(format: {field.schema['format'][:40]})")
    default = field.default
    if isinstance(default, str | int | float) and field.shows_default and not field.required:
        tree["default"] = default
    elif default is not None:
        notes.append(f"(default: {json.dumps(default)[:100]})")
    description = " ".join(note for note in notes if note)
    return {**tree, "description": description} if description else tree


def _spelt(tree: TypeTree, *, inside: bool = False) -> TypeTree:
    """A tree in words that the generator renders well: it knows no tuples, and makes a class of
    its own of every bounded scalar `inside` something else."""
    if "$ref" in tree:
        return _reference(tree["$ref"])
    if not inside:
        tree = _optional(tree)
    spelt: dict[str, Any] = {k: v for k, v in tree.items() if not inside or k in _KINDS}
    if "anyOf" in spelt:
        spelt["anyOf"] = [_spelt(part, inside=True) for part in spelt["anyOf"]]
    if "prefixItems" in spelt:
        parts = [_spelt(part, inside=True) for part in spelt.pop("prefixItems")]
        each = [part for n, part in enumerate(parts) if part not in parts[:n]]
        spelt["items"] = each[0] if len(each) == 1 else {"anyOf": each}
    elif "items" in spelt:
        spelt["items"] = _spelt(spelt["items"], inside=True)
    if "additionalProperties" in spelt:
        spelt["additionalProperties"] = _spelt(spelt["additionalProperties"], inside=True)
    return spelt


def _optional(tree: TypeTree) -> TypeTree:
    """``anyOf`` of one kind and null as a list of types, under which bounds can stand."""
    parts = tree.get("anyOf", ())
    if len(parts) == 2 and parts[1] == {"type": "null"} and "type" in parts[0]:
        return {**parts[0], "type": [parts[0]["type"], "null"]}
    return tree


_KINDS = frozenset({"type", "enum", "anyOf", "items", "prefixItems", "additionalProperties"})


def _reference(name: str) -> TypeTree:
    return {"$ref": f"#/$defs/{name}"}


def _renamed(class_: ast.ClassDef, model: SchemaModel) -> str:
    for statement in class_.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            field = model.fields[int(statement.target.id.removeprefix("f"))]
            statement.target = ast.Name(field.python_name, ast.Store())
    if model.description:
        text = ast.Constant(model.description[:MAX_REMARK])
        class_.body.insert(0, ast.Expr(text))
    return ast.unparse(ast.fix_missing_locations(class_))
