"""Tool schemas: how they are read, shown to a model, and enforced on its calls.

In comes the ``tools`` array of a request; `toolset.Toolset.parse` is the only door. It gives `stubs`
(what a model reads), `preamble` (what an engine defines) and `bind` (what a call must be).

Laws:

* Schemas are from strangers: `schema` bounds them before anything recursive looks at one.
* One authority on values: `validator`. Coercion (`coercion`) only moves a value to where the schema
  leaves one reading; what leaves `Toolset.bind` is valid, whatever a sandbox handed in.
* Every name has two forms, on the wire and in Python (`names`); nothing outside needs to know both.

Start at `toolset`, then `binding` (a call's way in) and `models` (a schema's way to Python).
"""
