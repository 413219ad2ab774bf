"""Tool schemas: how they are read, shown to a model, and enforced on its calls.

Input: the ``tools`` array of a request. `toolset.Toolset.parse` is the only entry. Output: `stubs`
(what a model reads), `preamble` (what runs before a program) and `bind` (the arguments object of a
call).

How a schema becomes a stub:

1. `schema` checks its size, `schema_cleaning` rewrites it as plain JSON Schema 2020-12 and refuses
  what is dangerous (`dialects` translates older drafts).
2. `schema_models` reads it into type trees (`type_trees`) and names nested objects; `expansion`
  follows references and merges ``allOf``.
3. `stubs` writes function signatures and docstrings, `codegen` the Pydantic models, `constructors`
  the functions that build them.

How a call becomes arguments (`binding`): positional and keyword arguments get their wire names,
`coercion` converts values that have one possible reading, `validator` judges, `diagnosis` explains
a refusal.

Laws:

* Schemas come from strangers: their size is checked before any recursive code reads them.
* One authority on values: `validator`. Coercion changes a value only if the schema leaves one
  reading. Every result of `Toolset.bind` is valid, whatever a sandbox passed in.
* Every name has two forms, on the wire and in Python (`names`). Code outside this room needs only
  one of them.

Start at `toolset`, then `binding` and `schema_models`.
"""
