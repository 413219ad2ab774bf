"""Constructors for nested models, as Python source that runs before a program.

They are plain functions that return the JSON object. A missing field is omitted, never filled with its
default, and an unknown one is included: the host validates both, with better messages than a TypeError's.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.tools.schema_models import SchemaModel

_CONSTRUCT = """\
def _construct(model, names, args, fields):
    if len(args) > len(names):
        raise TypeError(f"{model}() takes {len(names)} arguments but {len(args)} were given")
    value = {}
    for (python_name, name), arg in zip(names, args):
        value[name] = arg
    renamed = dict(names)
    for key, field in fields.items():
        name = renamed.get(key, key)
        if name in value:
            raise TypeError(f"{model}() got multiple values for {key!r}")
        value[name] = field
    return value
"""


def preamble(models: Sequence[SchemaModel]) -> str:
    """Return a constructor for each of `models`; "" for none. Positional arguments follow field
    order.
    """
    if not models:
        return ""
    functions = [
        f"def {model.name}(*args, **fields):\n"
        f"    return _construct({model.name!r}, {_names(model)}, args, fields)\n"
        for model in models
    ]
    return "\n\n".join([_CONSTRUCT, *functions])


def _names(model: SchemaModel) -> str:
    """Return (Python name, wire name) of each field, as a literal."""
    return repr(tuple((field.python_name, field.name) for field in model.fields))
