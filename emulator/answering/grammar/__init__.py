"""Grammars that constrain a model's calls to the tools: schemas in, GBNF out.

Two laws. Every call that a grammar admits is valid by the tool's schema, as far as a context-free grammar
can express the schema; docs/upstreams.md lists what it cannot express. A grammar may admit less than the
schema (arguments in the schema's order, bounded depths), but always something if the schema admits
anything. The host validates calls anyway.

Start at `calls.gbnf`, which builds a grammar, and `values.Values`, which reads a schema; `numbers` and
`strings` write ranges and patterns, `words` defines the prose next to calls, and `fields` knows which
upstream accepts a grammar in which field.
"""
